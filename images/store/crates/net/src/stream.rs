//! The bytes of one connection, between its socket and the framing of messages: as they are, or encrypted.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::{SockRef, TcpKeepalive};
use tls::{Channel, ChannelError, Identity};

use crate::handshakes::Ready;

/// Peers that vanished without a word are found by the kernel.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// So much is read of an encrypted connection at a time. The rest of the scratch is for what came before, which is at most as much and one message more.
const READ_BYTES: usize = 64 << 10;
const SCRATCH_BYTES: usize = READ_BYTES + (96 << 10);
/// So much is encrypted at a time, before the kernel has taken it.
const SEALED_BYTES: usize = 64 << 10;
/// At least so much is read at a time, a record and its end, whatever room there is for what is in it.
const SHORT_BYTES: usize = 4 << 10;

thread_local! {
    /// Where records lie while they are decrypted. Nothing of it is needed between two calls.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddrV4,
    /// Whom its certificate names, if the connection is encrypted. Nothing proves more than the address else.
    pub identity: Option<Arc<Identity>>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Some(identity) => write!(f, "{identity} at {}", self.address),
            None => self.address.fmt(f),
        }
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

/// A connection's socket, its encryption, and who is at its other end.
pub(crate) struct Stream {
    socket: TcpStream,
    peer: Peer,
    channel: Option<Box<Channel>>,
}

impl Stream {
    /// Begins to connect.
    pub fn connect(address: SocketAddrV4) -> io::Result<Stream> {
        Ok(Stream {
            socket: TcpStream::connect(address.into())?,
            peer: plain(address),
            channel: None,
        })
    }

    /// Another one has connected.
    pub fn accepted(socket: TcpStream, address: SocketAddrV4) -> io::Result<Stream> {
        set_options(&socket)?;
        Ok(Stream {
            socket,
            peer: plain(address),
            channel: None,
        })
    }

    /// One that is ready after its handshake, or was found to be plain.
    pub fn ready(ready: Ready) -> Result<Stream, ChannelError> {
        let mut peer = plain(ready.address);
        if let Some(channel) = &ready.channel {
            peer.identity = Some(Arc::new(channel.peer()?));
        }
        Ok(Stream {
            socket: ready.socket,
            peer,
            channel: ready.channel.map(Box::new),
        })
    }

    /// For a handshake.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// How long the connection may live yet: until the first of its certificates ends; `None`: it has none.
    pub fn time_left(&self) -> Result<Option<Duration>, ChannelError> {
        let Some(channel) = &self.channel else {
            return Ok(None);
        };
        let left = channel.expires_at()?.duration_since(SystemTime::now());
        Ok(Some(left.unwrap_or_default()))
    }

    /// Memory of its encryption.
    pub fn held_bytes(&self) -> usize {
        self.channel
            .as_ref()
            .map_or(0, |channel| channel.held_bytes())
    }

    /// Encrypted bytes that the kernel has yet to take.
    pub fn pending_bytes(&self) -> usize {
        self.channel
            .as_ref()
            .map_or(0, |channel| channel.sealed().len())
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
        self.peer.clone()
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
        match &mut self.channel {
            None => receive_plain(&mut self.socket, space),
            Some(channel) => receive_encrypted(&mut self.socket, channel, space),
        }
    }

    /// Sends as much of `slices` as can go out now, and says how many bytes that is. Of an encrypted connection some may wait here yet
    /// ([`Stream::flush`]).
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else {
            return send_plain(&self.socket, slices);
        };
        flush(&self.socket, channel)?;
        if !channel.sealed().is_empty() {
            return Ok(0);
        }
        let taken = channel.seal(slices, SEALED_BYTES).map_err(broken)?;
        flush(&self.socket, channel)?;
        Ok(taken)
    }

    /// Gives the kernel what waits here.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.channel {
            Some(channel) => flush(&self.socket, channel),
            None => Ok(()),
        }
    }

    /// Says that nothing more comes, if the kernel takes it.
    pub fn end(&mut self) {
        if let Some(channel) = &mut self.channel
            && channel.seal_end().is_ok()
        {
            // The connection ends in any case.
            let _ = flush(&self.socket, channel);
        }
    }
}

fn plain(address: SocketAddrV4) -> Peer {
    Peer {
        address,
        identity: None,
    }
}

fn broken(error: ChannelError) -> io::Error {
    io::Error::other(error)
}

fn receive_plain(socket: &mut TcpStream, space: &mut [u8]) -> io::Result<Received> {
    let room = space.len();
    match socket.read(space) {
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

fn receive_encrypted(
    socket: &mut TcpStream,
    channel: &mut Channel,
    space: &mut [u8],
) -> io::Result<Received> {
    if channel.has_plain() {
        let bytes = channel.take_plain(space);
        return Ok(Received::Some {
            bytes,
            drained: false,
        });
    }
    if channel.is_ended() {
        return Ok(Received::End);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let begun = channel.begin(scratch);
        // More than there is room for would have to be kept.
        let room = READ_BYTES.min(space.len().max(SHORT_BYTES));
        let received = receive_plain(socket, &mut scratch[begun..begun + room])?;
        let Received::Some { bytes, drained } = received else {
            return Ok(received);
        };
        let opened = channel.open(&mut scratch[..begun + bytes], space);
        // Messages of the protocol itself, or an alert that says why this is the end.
        let flushed = flush(socket, channel);
        let opened = opened.map_err(broken)?;
        flushed?;
        // After the last bytes comes the end, of which the kernel may not tell.
        Ok(Received::Some {
            bytes: opened.bytes,
            drained: drained && !channel.has_plain() && !opened.is_end,
        })
    })
}

fn send_plain(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let sent = match slices {
            [one] => (&*socket).write(one),
            several => send_all(socket, several),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return sent,
        }
    }
}

fn flush(socket: &TcpStream, channel: &mut Channel) -> io::Result<()> {
    while !channel.sealed().is_empty() {
        match send_plain(socket, &[IoSlice::new(channel.sealed())])? {
            0 => return Ok(()),
            sent => channel.sent(sent),
        }
    }
    Ok(())
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
