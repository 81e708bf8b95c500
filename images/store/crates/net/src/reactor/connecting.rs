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
        let (connection, slot) = self.io.add(protocol, Stage::Open, origin, Some(stream));
        self.io.counters.accepted += 1;
        if let Err(error) = self.io.register(slot) {
            self.io.doom(slot, CloseReason::Broken(error));
        }
        self.put_input(slot, Input::new(protocol, true));
        self.io.opened(slot);
        self.next_tick = Time::ZERO;
        handler.opened(clock::now(), connection, Some(number), &mut self.io);
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
            Stage::Open if link.output.is_empty() => {}
            Stage::Open => self
                .io
                .flush(slot, &|token, length| handler.lent(token, length)),
            Stage::Resolving => {}
        }
    }

    fn connected(&mut self, slot: usize, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        let (connection, protocol) = (link.id, link.protocol);
        let Some(stream) = &link.stream else { return };
        match stream.is_connected() {
            Ok(false) => {}
            Ok(true) => {
                self.put_input(slot, Input::new(protocol, false));
                self.io.opened(slot);
                self.next_tick = Time::ZERO;
                handler.opened(clock::now(), connection, None, &mut self.io);
            }
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
