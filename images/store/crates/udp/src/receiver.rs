//! The receiving half.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use transport::datagram::{BURST, Datagram, Receive, Transmit};

use crate::{from_kernel, to_kernel};

pub struct Receiver {
    socket: Arc<OwnedFd>,
    /// Room for a burst, one place of `place_bytes` after the other.
    bytes: Vec<u8>,
    place_bytes: usize,
    came: [(SocketAddrV4, usize); BURST],
    count: usize,
}

impl Receiver {
    pub(crate) fn new(socket: Arc<OwnedFd>, payload_bytes: usize) -> Receiver {
        // One byte more than there may be: what fills it was cut.
        let place_bytes = payload_bytes + 1;
        Receiver {
            socket,
            bytes: vec![0; BURST * place_bytes],
            place_bytes,
            came: [(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), 0); BURST],
            count: 0,
        }
    }
}

impl Receive for Receiver {
    fn poll(&mut self, _sender: &mut dyn Transmit) -> usize {
        let nobody = to_kernel(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let mut names = [nobody; BURST];
        // SAFETY: null pointers and zero lengths are what an empty iovec and an empty mmsghdr consist of.
        let mut slices: [libc::iovec; BURST] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        let places = self.bytes.chunks_exact_mut(self.place_bytes);
        for (index, place) in places.enumerate() {
            slices[index].iov_base = place.as_mut_ptr().cast();
            slices[index].iov_len = place.len();
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut slices[index];
            header.msg_iovlen = 1;
        }
        // SAFETY: the socket is open; each header names memory that lives until after the call and that nothing else refers to: one place of
        // `self.bytes`, one name, one slice.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BURST as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        // Nothing there, or an error that a datagram sent earlier has caused: neither is anything that came.
        self.count = usize::try_from(count).unwrap_or(0);
        for index in 0..self.count {
            let bytes = headers[index].msg_len as usize;
            // One that was cut cannot be used: without bytes it is dropped above.
            let whole = if bytes < self.place_bytes { bytes } else { 0 };
            self.came[index] = (from_kernel(&names[index]), whole);
        }
        self.count
    }

    fn datagram(&self, index: usize) -> Datagram<'_> {
        assert!(index < self.count, "there are {} datagrams", self.count);
        let (from, bytes) = self.came[index];
        let start = index * self.place_bytes;
        Datagram {
            from,
            payload: &self.bytes[start..start + bytes],
            to_peers: false,
        }
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }
}
