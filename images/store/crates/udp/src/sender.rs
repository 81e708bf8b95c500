//! The sending half.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use transport::datagram::Transmit;

use crate::to_kernel;

/// Runs that go to the kernel in one call.
const BATCH: usize = 32;
/// Datagrams of one run, at most: what the kernel cuts at a time.
const MAX_SEGMENTS: usize = 64;
/// The longest that the kernel cuts.
const MAX_RUN_BYTES: usize = 65_000;
/// What waits for room in the kernel, at most; more is dropped, and sent again by the protocol above.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Room for the one control message that is used.
const CONTROL_BYTES: usize = 32;

/// Datagrams of equal length (but for the last) to one address, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: SocketAddrV4,
    start: usize,
    bytes: usize,
    /// Of each datagram but the last.
    segment_bytes: usize,
    is_closed: bool,
}

pub struct Sender {
    socket: Arc<OwnedFd>,
    address: SocketAddrV4,
    payload_bytes: usize,
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The kernel cuts runs.
    cuts: bool,
    is_complaint_made: bool,
}

/// Memory for a control message, as aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl Sender {
    pub(crate) fn new(socket: Arc<OwnedFd>, address: SocketAddrV4, payload_bytes: usize) -> Sender {
        Sender {
            socket,
            address,
            payload_bytes,
            bytes: Vec::new(),
            runs: Vec::new(),
            cuts: true,
            is_complaint_made: false,
        }
    }

    /// Adds a datagram of `length` bytes, which lie at the end already.
    fn list(&mut self, to: SocketAddrV4, start: usize, length: usize) {
        if self.cuts
            && let Some(run) = self.runs.last_mut()
            && run.to == to
            && !run.is_closed
            && length <= run.segment_bytes
            && run.bytes + length <= MAX_RUN_BYTES
            && run.bytes / run.segment_bytes < MAX_SEGMENTS - 1
        {
            run.bytes += length;
            run.is_closed = length < run.segment_bytes;
            return;
        }
        self.runs.push(Run {
            to,
            start,
            bytes: length,
            segment_bytes: length,
            is_closed: length == 0,
        });
    }

    /// Hands the first runs over; how many the kernel took.
    fn hand_over(&self, runs: &[Run]) -> io::Result<usize> {
        let mut names = [to_kernel(self.address); BATCH];
        let mut controls = [const { Control([0; CONTROL_BYTES]) }; BATCH];
        // SAFETY: null pointers and zero lengths are what an empty iovec and an empty mmsghdr consist of.
        let mut slices: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let count = runs.len().min(BATCH);
        for (index, run) in runs[..count].iter().enumerate() {
            names[index] = to_kernel(run.to);
            let bytes = &self.bytes[run.start..run.start + run.bytes];
            slices[index].iov_base = bytes.as_ptr().cast_mut().cast();
            slices[index].iov_len = bytes.len();
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut slices[index];
            header.msg_iovlen = 1;
            if run.bytes > run.segment_bytes {
                header.msg_control = (&raw mut controls[index]).cast();
                header.msg_controllen = put_segment_bytes(&mut controls[index], run.segment_bytes);
            }
        }
        // SAFETY: the socket is open; each header names memory that lives until after the call. The kernel only reads it.
        let taken = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// From now on each datagram goes by itself: the kernel, or the way to a peer, does not take runs.
    fn stop_cutting(&mut self) {
        self.cuts = false;
        let runs = std::mem::take(&mut self.runs);
        for run in runs {
            let mut start = run.start;
            let end = run.start + run.bytes;
            while start < end {
                let length = run.segment_bytes.min(end - start);
                self.list(run.to, start, length);
                start += length;
            }
        }
    }

    fn complain(&mut self, to: SocketAddrV4, error: &io::Error) {
        if !std::mem::replace(&mut self.is_complaint_made, true) {
            tracing::warn!("cannot send datagrams to {to}: {error} (said once)");
        }
    }
}

/// Writes the control message that has a run cut; its length.
fn put_segment_bytes(control: &mut Control, segment_bytes: usize) -> usize {
    let header = libc::cmsghdr {
        // SAFETY: only computes.
        cmsg_len: unsafe { libc::CMSG_LEN(2) } as usize,
        cmsg_level: libc::SOL_UDP,
        cmsg_type: libc::UDP_SEGMENT,
    };
    // SAFETY: `control` is as aligned as a header has to be, and longer than one with two bytes behind it.
    unsafe { (&raw mut *control).cast::<libc::cmsghdr>().write(header) };
    let at = size_of::<libc::cmsghdr>();
    control.0[at..at + 2].copy_from_slice(&(segment_bytes as u16).to_ne_bytes());
    // SAFETY: only computes.
    unsafe { libc::CMSG_SPACE(2) as usize }
}

impl Transmit for Sender {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn max_payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn send(&mut self, to: SocketAddrV4, parts: &[&[u8]]) {
        let start = self.bytes.len();
        if start > MAX_WAITING_BYTES {
            return;
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        let length = self.bytes.len() - start;
        self.list(to, start, length);
    }

    fn flush(&mut self) {
        let mut done = 0;
        while done < self.runs.len() {
            match self.hand_over(&self.runs[done..]) {
                Ok(taken) => done += taken.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let run = self.runs[done];
                    if self.cuts && run.bytes > run.segment_bytes {
                        self.runs.drain(..done);
                        done = 0;
                        self.stop_cutting();
                    } else {
                        self.complain(run.to, &error);
                        done += 1;
                    }
                }
            }
        }
        self.runs.drain(..done);
        if self.runs.is_empty() {
            self.bytes.clear();
        }
    }
}
