//! What comes to the ports, and what is due on them.

use std::borrow::Cow;
use std::time::Duration;

use base::time::Time;
use fast::Event;
use fast::packet::Glimpse;
use trace::Event as Traced;

use super::{Inlet, Outlet, connection, listener};
use crate::clock;
use crate::connection::CloseReason;
use crate::handler::Handler;
use crate::io::Io;

/// How often a port that wakes nobody is looked at in a round of which nothing else is due: looking costs some nanoseconds, the rest of a round some hundred.
const PATIENCE: usize = 64;
/// Bursts that one port hands over before others have their turn.
const BURSTS: usize = 2;

/// Hands one event to the handler.
fn dispatch(port: usize, now: Time, event: Event<'_>, handler: &mut impl Handler, io: &mut Io) {
    match event {
        Event::Opened {
            session,
            is_accepted,
            ..
        } => {
            let listener = is_accepted.then_some(listener(port));
            handler.opened(now, connection(port, session), listener, io);
        }
        Event::Message {
            session,
            nonce,
            payload,
        } => {
            let connection = connection(port, session);
            trace::record_at(Traced::FrameIn, connection, nonce);
            match payload {
                Cow::Borrowed(payload) => handler.frame(now, connection, nonce, payload, io),
                Cow::Owned(payload) => {
                    if let Some(read) = handler.message(now, connection, nonce, payload, io) {
                        io.outlets[port].endpoint.recycle(read);
                    }
                }
            }
        }
        Event::Closed { session, reason } => {
            let reason = CloseReason::Session(reason);
            handler.closed(now, connection(port, session), reason, io);
        }
        Event::Returned { token } => handler.returned(token),
    }
}

fn dispatch_waiting(port: usize, now: Time, handler: &mut impl Handler, io: &mut Io) -> bool {
    let mut worked = false;
    while let Some(event) = io.outlets[port].endpoint.next_event() {
        dispatch(port, now, event, handler, io);
        worked = true;
    }
    worked
}

/// As [`read`], for a thread that has nothing else to do: looks at ports that wake nobody again and again for a while.
pub(crate) fn read_patiently(
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
) -> bool {
    if read(inlets, io, handler) {
        return true;
    }
    let looks = match must_look(inlets) && !io.is_pumping() {
        true => PATIENCE,
        false => 0,
    };
    (0..looks).any(|_| read_those(inlets, io, handler, |inlet| inlet.wakes.is_none()))
}

/// Receives what has come to the ports and hands it over; true if something did.
pub(crate) fn read(inlets: &mut [Inlet], io: &mut Io, handler: &mut impl Handler) -> bool {
    read_those(inlets, io, handler, Inlet::is_due)
}

fn read_those(
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
    is_due: impl Fn(&Inlet) -> bool,
) -> bool {
    let mut worked = false;
    for inlet in inlets {
        for _ in 0..BURSTS {
            if !is_due(inlet) || !read_burst(inlet, io, handler) {
                break;
            }
            worked = true;
        }
    }
    worked
}

fn read_burst(inlet: &mut Inlet, io: &mut Io, handler: &mut impl Handler) -> bool {
    let sender = io.outlets[inlet.outlets[0]].sender;
    let count = inlet.receiver.poll(&mut *io.senders[sender]);
    if count == 0 {
        // What epoll told of has been read, but where there is traffic more will come before it tells again.
        inlet.is_unread = inlet.heard_at != Time::ZERO;
        return false;
    }
    if count > 1 {
        let glimpses = (0..count).map(|index| glimpse(inlet, index));
        handler.foresee(&mut glimpses.filter_map(|seen| match seen {
            Glimpse::Request(request) => Some(request),
            Glimpse::Piece | Glimpse::Other => None,
        }));
    }
    let now = clock::now();
    inlet.heard_at = now;
    for port in inlet.ports() {
        io.share_buffers(now, port);
    }
    // What is short does not wait for what is long, here as little as on the way.
    let mut pieces = 0;
    for index in 0..count {
        match glimpse(inlet, index) {
            Glimpse::Piece => pieces += 1,
            Glimpse::Request(_) | Glimpse::Other => take(inlet, now, index, io, handler),
        }
    }
    for index in (0..count).filter(|_| pieces > 0) {
        if glimpse(inlet, index) == Glimpse::Piece {
            take(inlet, now, index, io, handler);
        }
    }
    for port in inlet.ports() {
        io.outlets[port].next_tick = Time::ZERO;
        io.outlets[port].pump(&mut io.senders, handler);
    }
    true
}

fn glimpse(inlet: &Inlet, index: usize) -> Glimpse<'_> {
    fast::packet::glimpse(inlet.receiver.datagram(index).payload)
}

/// Hands over what one datagram brings.
fn take(inlet: &Inlet, now: Time, index: usize, io: &mut Io, handler: &mut impl Handler) {
    let datagram = inlet.receiver.datagram(index);
    let port = inlet.outlets[usize::from(datagram.to_peers)];
    trace::record_at(
        Traced::Received,
        trace::DATAGRAMS,
        datagram.payload.len() as u64,
    );
    let outlet = &mut io.outlets[port];
    let event = outlet.with(&mut io.senders, |endpoint, sender| {
        endpoint.receive(now, datagram.from, datagram.payload, sender)
    });
    outlet.sent_to.get_or_insert(0);
    if let Some(event) = event {
        dispatch(port, now, event, handler, io);
    }
    dispatch_waiting(port, now, handler, io);
}

/// Does what is due on the ports; true if the handler was told something.
pub(crate) fn tend(
    now: Time,
    inlets: &mut [Inlet],
    io: &mut Io,
    handler: &mut impl Handler,
) -> bool {
    let mut worked = false;
    for inlet in inlets {
        for port in inlet.ports() {
            if now >= io.outlets[port].next_tick {
                io.share_buffers(now, port);
                let outlet = &mut io.outlets[port];
                outlet.next_tick = outlet.with(&mut io.senders, |endpoint, sender| {
                    endpoint.tick(now, sender)
                });
                outlet.sent_to.get_or_insert(0);
            }
            expect_one(now, inlet, &mut io.outlets[port]);
            worked |= dispatch_waiting(port, now, handler, io);
            io.outlets[port].pump(&mut io.senders, handler);
        }
    }
    worked
}

/// Looks at the ports in every round from which something was asked.
pub(crate) fn expect(now: Time, inlets: &mut [Inlet], io: &mut Io) {
    for inlet in inlets {
        for port in inlet.ports() {
            expect_one(now, inlet, &mut io.outlets[port]);
        }
    }
}

fn expect_one(now: Time, inlet: &mut Inlet, outlet: &mut Outlet) {
    if std::mem::take(&mut outlet.is_awaited) {
        inlet.heard_at = now;
        inlet.is_unread = true;
    }
}

/// Forgets that there was traffic, where that was long ago: only epoll tells of the next.
pub(crate) fn cool(now: Time, spin: Duration, inlets: &mut [Inlet]) {
    for inlet in inlets {
        if now.since(inlet.heard_at) >= spin {
            inlet.heard_at = Time::ZERO;
        }
    }
}

/// Whether a port is looked at in every round, so that epoll need not be asked in each.
pub(crate) fn is_hot(inlets: &[Inlet]) -> bool {
    inlets.iter().any(|inlet| inlet.is_due())
}

/// Whether a port has nothing that would wake a sleeping thread.
pub(crate) fn must_look(inlets: &[Inlet]) -> bool {
    inlets.iter().any(|inlet| inlet.wakes.is_none())
}
