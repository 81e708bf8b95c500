//! The bytes of one connection, between its socket and the framing of messages. They go out as they are; encryption will have its place here.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::{SockRef, TcpKeepalive};

/// Peers that vanished without a word are found by the kernel.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Who is at the other end of a connection. Nothing proves more than the address yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddrV4,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// How one attempt to receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    /// This many bytes; `drained` when there are no more.
    Some {
        bytes: usize,
        drained: bool,
    },
    End,
}

/// A connection's socket, and who is at its other end.
pub(crate) struct Stream {
    socket: TcpStream,
    peer: Peer,
}

impl Stream {
    /// Begins to connect.
    pub fn connect(address: SocketAddrV4) -> io::Result<Stream> {
        Ok(Stream {
            socket: TcpStream::connect(address.into())?,
            peer: Peer { address },
        })
    }

    /// Another one has connected.
    pub fn accepted(socket: TcpStream, address: SocketAddrV4) -> io::Result<Stream> {
        set_options(&socket)?;
        Ok(Stream {
            socket,
            peer: Peer { address },
        })
    }

    /// Whether the connection that was begun stands.
    pub fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        let peer = match self.socket.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            peer => peer?,
        };
        // A connect to a free port of this machine can meet itself.
        if peer == self.socket.local_addr()? {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        set_options(&self.socket)?;
        Ok(true)
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// For both directions, once and for ever: epoll is edge-triggered.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.socket, token, both)
    }

    pub fn deregister(&mut self, registry: &Registry) {
        // It fails only if the socket was never registered.
        let _ = registry.deregister(&mut self.socket);
    }

    /// Puts what has come into `space`.
    pub fn receive(&mut self, space: &mut [u8]) -> io::Result<Received> {
        let room = space.len();
        match self.socket.read(space) {
            Ok(0) => Ok(Received::End),
            Ok(bytes) => Ok(Received::Some {
                bytes,
                drained: bytes < room,
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Some {
                bytes: 0,
                drained: false,
            }),
            Err(error) => Err(error),
        }
    }

    /// Sends as much of `slices` as can go out now, and says how many bytes that is.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let sent = match slices {
                [one] => self.socket.write(one),
                several => send_all(&self.socket, several),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent,
            }
        }
    }
}

/// As `write_vectored`, without the signal that comes where the other side is gone: a client may be part of a program that it would end.
fn send_all(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing = SendAncillaryBuffer::default();
    Ok(sendmsg(socket, slices, &mut nothing, SendFlags::NOSIGNAL)?)
}

fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )
}
