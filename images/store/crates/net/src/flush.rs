//! Gives what waits for connections to the kernel.

use std::io::{self, IoSlice};

use transport::{Lender, Next, Outbound};

use crate::connection::{CloseReason, SendHalf, send_now};
use crate::io::Io;
use crate::stream::Stream;

impl Io {
    /// Offers everything that waits to the kernel.
    pub(crate) fn flush_dirty(&mut self, lend: &Lender<'_>) {
        self.flush_ports();
        while let Some(slot) = self.dirty.pop() {
            if let Some(link) = &mut self.links[slot] {
                link.dirty = false;
            }
            self.flush(slot, lend);
        }
    }

    /// Offers what waits for one connection to the kernel.
    pub(crate) fn flush(&mut self, slot: usize, lend: &Lender<'_>) {
        self.flush_while(slot, lend, |_| true);
    }

    /// As [`Io::flush`], but no long message is begun: a short one may come that passes it.
    pub(crate) fn flush_short(&mut self, slot: usize, lend: &Lender<'_>) {
        self.flush_while(slot, lend, |output| !output.is_about_to_begin());
    }

    /// Whether a long message is the next for a connection, and has not begun.
    pub(crate) fn is_about_to_begin(&self, slot: usize) -> bool {
        let link = self.links.get(slot).and_then(Option::as_ref);
        link.is_some_and(|link| link.output.is_about_to_begin())
    }

    fn flush_while(&mut self, slot: usize, lend: &Lender<'_>, goes_on: impl Fn(&Outbound) -> bool) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        let before = link.pending_bytes();
        let flushed = link.stream.as_mut().map_or(Ok(()), Stream::flush);
        let mut failed = flushed.err();
        while failed.is_none() && !link.output.is_empty() && goes_on(&link.output) {
            let SendHalf {
                output,
                stream,
                stage,
                id,
                ..
            } = &mut *link;
            let written = match output.next(lend) {
                Next::Nothing => Ok(0),
                Next::Parts([one, []]) => send_now(stream, stage, *id, &[IoSlice::new(one)]),
                Next::Parts([one, other]) => {
                    let slices = [IoSlice::new(one), IoSlice::new(other)];
                    send_now(stream, stage, *id, &slices)
                }
                Next::Gone => Err(io::Error::other("the end of an answer is gone")),
            };
            if let Ok(count) = written {
                self.returned.extend(output.sent(count));
            }
            match written {
                Ok(0) => break,
                Ok(count) => self.counters.bytes_out += count as u64,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let is_put_off = !link.output.is_empty() && !goes_on(&link.output);
        let waiting = link.pending_bytes();
        if waiting < before {
            link.waiting_since = None;
        }
        let throttle_bytes = self.accounts.throttle_bytes(link.origin, &self.limits);
        if link.throttled && waiting < throttle_bytes / 2 {
            link.throttled = false;
            self.resumed.push(slot);
        }
        self.watched |= waiting > 0;
        if is_put_off {
            self.mark_dirty(slot);
        }
        if let Some(error) = failed {
            self.doom(slot, CloseReason::Broken(error));
        } else if waiting > self.limits.output_bytes {
            self.doom(slot, CloseReason::NotReading);
        }
        self.account(slot);
    }
}
