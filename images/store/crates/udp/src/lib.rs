//! Datagrams by the kernel: a UDP socket that is read and written in batches (`recvmmsg`, `sendmmsg`), with the cutting of long runs left to the
//! kernel (UDP_SEGMENT) where it knows how.

mod receiver;
mod sender;

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

pub use receiver::Receiver;
pub use sender::Sender;

/// What the kernel may hold for the socket in each direction. It gives less where `net.core.rmem_max` says so.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// IPv4 and UDP before each payload.
const HEADER_BYTES: usize = 28;
/// The MTU of Ethernet.
pub const USUAL_MTU: usize = 1500;
/// The longest that IPv4 has.
const MAX_MTU: usize = 65_535;
const MIN_MTU: usize = 576;

/// Opens a socket at `address`; port 0 lets the kernel choose.
///
/// # Errors
/// The address is not there or in use, or no network carries packets of `mtu` bytes.
pub fn open(address: SocketAddrV4, mtu: usize) -> io::Result<(Receiver, Sender)> {
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        let text = format!("an MTU of {mtu} bytes: it has to be {MIN_MTU} to {MAX_MTU}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    // As much as there is; the protocol above repeats what does not fit.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&SocketAddr::V4(address).into())?;
    let bound = match socket.local_addr()?.as_socket_ipv4() {
        Some(bound) => bound,
        None => return Err(io::Error::other("the kernel gives no IPv4 address")),
    };
    let socket = Arc::new(OwnedFd::from(socket));
    let payload_bytes = mtu - HEADER_BYTES;
    Ok((
        Receiver::new(Arc::clone(&socket), payload_bytes),
        Sender::new(socket, bound, payload_bytes),
    ))
}

/// An address as the kernel has it.
fn to_kernel(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn from_kernel(address: &libc::sockaddr_in) -> SocketAddrV4 {
    let ip = address.sin_addr.s_addr.to_ne_bytes();
    SocketAddrV4::new(ip.into(), u16::from_be(address.sin_port))
}

#[cfg(test)]
mod tests;
