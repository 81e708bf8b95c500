//! Connections that begin: those that others open, and those that this process opens.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base::time::Time;
use mio::net::TcpStream;

use super::Reactor;
use crate::accounts::Origin;
use crate::clock;
use crate::connection::{CloseReason, Input, Stage};
use crate::handler::Handler;
use crate::handshakes::{Door, HandshakeError};
use crate::stream::Stream;

/// New connections taken in one round.
const ACCEPTS: usize = 64;
/// A listener that could not accept (no file descriptor left) tries again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

impl Reactor {
    pub(super) fn accept(&mut self, number: usize, handler: &mut impl Handler) {
        self.listeners[number].retry_at = None;
        for _ in 0..ACCEPTS {
            match self.listeners[number].socket.accept() {
                Ok((socket, peer)) => self.accepted(number, socket, peer, handler),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.complain(|| {
                        format!(
                            "cannot accept connections: {error} (raise the limit of open files)"
                        )
                    });
                    self.listeners[number].retry_at = Some(clock::now() + ACCEPT_RETRY);
                    return;
                }
            }
        }
        self.listeners[number].retry_at = Some(Time::ZERO);
    }

    fn accepted(
        &mut self,
        number: usize,
        socket: TcpStream,
        peer: SocketAddr,
        handler: &mut impl Handler,
    ) {
        let SocketAddr::V4(peer) = peer else {
            return; // Listeners have addresses of IPv4.
        };
        let origin = Origin::Accepted(self.listeners[number].audience, *peer.ip());
        // The connection that is displaced leaves its place at the end of the round; until then there is one more.
        if !self.io.has_room() && !self.io.displace(clock::now(), origin) {
            self.io.counters.refused += 1;
            let limit = self.io.limits.connections;
            self.complain(|| {
                format!("refusing connections: all {limit} are in use (see --maxConnections)")
            });
            return;
        }
        let Ok(stream) = Stream::accepted(socket, peer) else {
            return; // Gone already.
        };
        let protocol = self.listeners[number].protocol;
        self.io.counters.accepted += 1;
        let (secure, may_be_plain) = match &self.listeners[number].door {
            Door::Plain => {
                let (_, slot) = self.io.add(protocol, Stage::Open, origin, Some(stream));
                if let Err(error) = self.io.register(slot) {
                    self.io.doom(slot, CloseReason::Broken(error));
                }
                return self.open(slot, Some(number), handler);
            }
            Door::Mixed(secure) => (secure, true),
            Door::Required(secure) => (secure, false),
        };
        let (_, slot) = self.io.add(protocol, Stage::Open, origin, None);
        let begun = self
            .io
            .secure(slot, stream, secure, (Some(number), may_be_plain));
        if let Err(error) = begun {
            self.not_secured(slot, error);
        }
    }

    /// A connection does not become encrypted: the handler is told, if it has asked for the connection.
    fn not_secured(&mut self, slot: usize, error: HandshakeError) {
        let link = self.io.link(slot);
        if let Some(Origin::Accepted(_, address)) = link.map(|link| link.origin) {
            self.complain(|| format!("a connection from {address} is not let in: {error}"));
        }
        self.io.doom(slot, CloseReason::Handshake(error));
    }

    /// A connection is ready for messages.
    fn open(&mut self, slot: usize, listener: Option<usize>, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        let (connection, protocol) = (link.id, link.protocol);
        self.put_input(slot, Input::new(protocol, listener.is_some()));
        self.io.opened(slot);
        self.next_tick = Time::ZERO;
        handler.opened(clock::now(), connection, listener, &mut self.io);
    }

    /// Goes on with connections whose handshakes are over.
    pub(super) fn take_secured(&mut self, now: Time, handler: &mut impl Handler) {
        for (connection, ready) in self.io.handshakes.done() {
            let Some(slot) = self.io.slot(connection) else {
                continue; // It has ended meanwhile.
            };
            match self.io.secured(now, slot, ready) {
                Ok(Some(listener)) => {
                    self.open(slot, listener, handler);
                    // Messages may have come with the end of the handshake.
                    self.keep_unread(slot);
                }
                Ok(None) => {}
                Err(error) => self.not_secured(slot, error),
            }
        }
    }

    fn put_input(&mut self, slot: usize, input: Input) {
        if self.inputs.len() < self.io.slots() {
            self.inputs.resize_with(self.io.slots(), || None);
        }
        self.inputs[slot] = Some(input);
    }

    /// The kernel takes bytes again, or a connect has come to its end.
    pub(super) fn writable(&mut self, slot: usize, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        match link.stage {
            Stage::Connecting => self.connected(slot, handler),
            Stage::Open if link.pending_bytes() == 0 => {}
            Stage::Open => self
                .io
                .flush(slot, &|token, length| handler.lent(token, length)),
            Stage::Resolving | Stage::Securing(_) => {}
        }
    }

    fn connected(&mut self, slot: usize, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        let Some(stream) = &link.stream else { return };
        match stream.is_connected() {
            Ok(false) => {}
            Ok(true) => match link.secure.take() {
                Some(secure) => {
                    let Some(mut stream) = link.stream.take() else {
                        return;
                    };
                    stream.deregister(self.poll.registry());
                    if let Err(error) = self.io.secure(slot, stream, &secure, (None, false)) {
                        self.not_secured(slot, error);
                    }
                }
                None => self.open(slot, None, handler),
            },
            Err(error) => self.io.doom(slot, CloseReason::Connect(error)),
        }
    }
}

/// Errors of accept that concern the connection which was about to be accepted, not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
