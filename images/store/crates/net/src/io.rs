//! What a handler may do: send, connect, close.

use std::io::{self, IoSlice};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use base::time::Time;
use mio::{Registry, Token, Waker};
use trace::Event;
use transport::{LONG_BYTES, Lender, Loan, Outbound, member, rpc};

use crate::Options;
use crate::accounts::{Accounts, Origin};
use crate::address::{Address, Resolver};
use crate::clock;
use crate::connection::{CloseReason, Protocol, SendHalf, Stage, send_now};
use crate::handshakes::{HandshakeError, Handshakes, Secure};
use crate::ports::{Outlet, Senders, of_connection};
use crate::stream::{Peer, Stream};
use crate::target::Target;

/// Bits of a connection's number that say where its state lies; the rest is never used twice.
const SLOT_BITS: u32 = 20;

/// Bounds of one reactor.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at one time; more are refused.
    pub connections: usize,
    /// Memory of the buffers of all clients' connections and sessions: at most a quarter for those of one address, or what one of the longest
    /// messages takes. Messages of one address wait for each other; where that is not enough, the address with most of it loses connections.
    pub buffer_bytes: usize,
    /// The same for other servers, half of it at most for those of one address, and for connections that this program opens.
    pub peer_buffer_bytes: usize,
    /// A message that was begun has to be complete after this; else its connection is closed.
    pub message_timeout: Duration,
    /// When all connections are in use, one that was silent for so long, and to which nothing is owed, makes room for another.
    pub idle_timeout: Duration,
    /// Handshakes under way at one time that others have begun, a quarter of them with one address; and as many that this program has.
    pub handshakes: usize,
    /// With more output than this waiting, nothing is read from a connection.
    pub throttle_bytes: usize,
    /// With more output than this waiting, a connection is closed.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            buffer_bytes: 512 << 20,
            peer_buffer_bytes: 512 << 20,
            message_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(10),
            handshakes: 1024,
            throttle_bytes: 4 << 20,
            output_bytes: 64 << 20,
        }
    }
}

/// What a reactor has done so far, and how much it holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub connections: u64,
    pub accepted: u64,
    /// Not accepted, because there were too many.
    pub refused: u64,
    /// Closed because a bound was passed: not reading, out of buffers, a message too slow, displaced by another.
    pub closed_by_bound: u64,
    /// Long messages that waited because others of their address had all that is for one address.
    pub messages_delayed: u64,
    pub frames_in: u64,
    pub frames_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Memory of all buffers.
    pub buffer_bytes: u64,
    /// Time spent polling with nothing to do.
    pub spin_ns: u64,
    /// How often the thread went to sleep.
    pub blocks: u64,
    /// Of the ports for datagrams, all together.
    pub fast: FastCounters,
}

/// What the ports for datagrams have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastCounters {
    pub packets_in: u64,
    pub packets_out: u64,
    /// With a wrong sum, of another version, or not of this protocol.
    pub malformed: u64,
    /// That came twice, or too late to be of use.
    pub stale: u64,
    /// Requests that were repeated or asked about, because nothing came.
    pub retries: u64,
    /// Packets that were sent again.
    pub resent: u64,
    pub sessions: u64,
}

/// The sending side of a reactor.
pub struct Io {
    pub(crate) links: Vec<Option<SendHalf>>,
    free: Vec<usize>,
    next_serial: u64,
    pub(crate) limits: Limits,
    /// As in [`crate::Options`].
    pub(crate) spin: Duration,
    pub(crate) counters: Counters,
    registry: Registry,
    resolver: Resolver,
    pub(crate) handshakes: Handshakes,
    /// When the first certificate of a connection ends.
    pub(crate) next_expiry: Time,
    pub(crate) accounts: Accounts,
    /// Tokens of loans that are not needed any more; the handler has yet to be told.
    pub(crate) returned: Vec<u64>,
    /// Links with output that nobody has offered to the kernel in this round.
    pub(crate) dirty: Vec<usize>,
    /// Links to be closed at the end of the round.
    doomed: Vec<usize>,
    /// Connections to which something was sent in this round and whose answer is worth waiting for.
    pub(crate) awaited: Vec<usize>,
    /// Connections that were not read from for too much output, and may be again.
    pub(crate) resumed: Vec<usize>,
    /// Ports for datagrams.
    pub(crate) outlets: Vec<Outlet>,
    pub(crate) senders: Senders,
    /// Some output waits for the kernel, or a connect is under way: look at the deadlines from time to time.
    pub(crate) watched: bool,
}

impl Io {
    pub(crate) fn new(options: Options, registry: Registry, waker: Arc<Waker>) -> Io {
        let Options { spin, limits } = options;
        Io {
            links: Vec::new(),
            free: Vec::new(),
            next_serial: 1,
            limits,
            spin,
            counters: Counters::default(),
            registry,
            resolver: Resolver::new(Arc::clone(&waker)),
            handshakes: Handshakes::new(waker, limits.handshakes),
            next_expiry: Time::NEVER,
            accounts: Accounts::new(&limits),
            returned: Vec::new(),
            dirty: Vec::new(),
            doomed: Vec::new(),
            awaited: Vec::new(),
            resumed: Vec::new(),
            outlets: Vec::new(),
            senders: Vec::new(),
            watched: false,
        }
    }

    /// From now on the thread spins for so long after the last message before it sleeps.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// No connection is taken from now on while there are so many. Those that are there stay.
    pub fn set_max_connections(&mut self, connections: usize) {
        self.limits.connections = connections;
        self.set_max_sessions(connections);
    }

    /// Sends one message: `parts`, one after the other, behind the protocol's header. `nonce` is left out on a member
    /// stream. False when the connection is gone (what was meant for it has no reader any more) or not open yet.
    pub fn send(&mut self, connection: u64, nonce: u64, parts: &[&[u8]]) -> bool {
        if of_connection(connection).is_some() {
            return self.send_in_session(connection, nonce, parts);
        }
        let Some(slot) = self.slot(connection) else {
            return false;
        };
        let Some(link) = &mut self.links[slot] else {
            return false;
        };
        if !matches!(link.stage, Stage::Open) || link.doomed.is_some() {
            return false;
        }
        trace::record_at(Event::FrameOut, connection, nonce);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(length_field) = u32::try_from(length) else {
            return false;
        };
        let sent = match link.protocol {
            Protocol::Rpc => put(link, &rpc::header(nonce, length_field), parts, length),
            Protocol::Member => put(link, &member::header(length_field), parts, length),
        };
        self.counters.frames_out += 1;
        match sent {
            Ok(bytes) => self.counters.bytes_out += bytes as u64,
            Err(error) => self.doom(slot, CloseReason::Broken(error)),
        }
        self.mark_dirty(slot);
        true
    }

    /// As [`Io::send`], for an answer on a stream whose end is lent. False if nothing was lent, and nothing sent.
    pub(crate) fn send_lent_on_stream(
        &mut self,
        connection: u64,
        nonce: u64,
        head: &[u8],
        loan: Loan,
    ) -> bool {
        let length = head.len() + loan.length;
        let Some((slot, length_field)) = self.slot(connection).zip(u32::try_from(length).ok())
        else {
            return false;
        };
        let Some(link) = &mut self.links[slot] else {
            return false;
        };
        let is_open = matches!(link.stage, Stage::Open) && link.doomed.is_none();
        if !is_open || !link.takes_loans() || length < LONG_BYTES {
            return false;
        }
        trace::record_at(Event::FrameOut, connection, nonce);
        let header = rpc::header(nonce, length_field);
        link.output.push_lent(&[&header, head], loan);
        self.counters.frames_out += 1;
        self.mark_dirty(slot);
        true
    }

    /// Copies what was lent on streams under tokens that are meant, and gives it back.
    pub(crate) fn recall_from_streams(
        &mut self,
        is_meant: impl Fn(u64) -> bool,
        lend: &Lender<'_>,
    ) {
        for slot in 0..self.links.len() {
            let Some(link) = &mut self.links[slot] else {
                continue;
            };
            let kept = link.output.keep(&is_meant, lend);
            if !kept.is_empty() {
                self.returned.extend(kept);
                self.account(slot);
            }
        }
    }

    /// Closes a connection at the end of the round, after what waits for it was offered to the kernel once. The handler
    /// is not told.
    pub fn close(&mut self, connection: u64) {
        if let Some((port, session)) = of_connection(connection) {
            return self.close_session(port, session);
        }
        let Some(slot) = self.slot(connection) else {
            return;
        };
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        if link.doomed.is_none() {
            self.doomed.push(slot);
        }
        link.doomed = Some(None);
    }

    /// Starts to connect. The handler is told with `opened` or `closed`.
    pub fn connect(&mut self, address: &Address, protocol: Protocol) -> u64 {
        self.begin(address, protocol, None)
    }

    /// As [`Io::connect`], for a connection that is encrypted before the handler is told.
    pub fn connect_securely(
        &mut self,
        address: &Address,
        protocol: Protocol,
        secure: Secure,
    ) -> u64 {
        self.begin(address, protocol, Some(secure))
    }

    fn begin(&mut self, address: &Address, protocol: Protocol, secure: Option<Secure>) -> u64 {
        let (id, slot) = self.add(protocol, Stage::Resolving, Origin::Own, None);
        if let Some(link) = &mut self.links[slot] {
            link.secure = secure;
        }
        let begun = match address.literal() {
            Some(literal) => self.begin_connect(slot, literal),
            None => self.resolver.ask(id, address.clone()),
        };
        if let Err(error) = begun {
            self.doom(slot, CloseReason::Connect(error));
        }
        self.watched = true;
        id
    }

    /// As [`Io::connect`] or [`Io::open_session`], whatever the target is. What there is no port for cannot be reached.
    pub fn connect_to(&mut self, target: &Target, is_ordered: bool) -> u64 {
        match target {
            Target::Tcp(address) => self.connect(address, Protocol::Rpc),
            Target::Fast(peer) => self.open_session(peer, is_ordered).unwrap_or_else(|| {
                let (id, slot) = self.add(Protocol::Rpc, Stage::Resolving, Origin::Own, None);
                let protocol = peer.kind.protocol();
                let error = io::Error::other(format!(
                    "this program has no port that reaches {protocol} there"
                ));
                self.doom(slot, CloseReason::Connect(error));
                id
            }),
        }
    }

    /// Whether there is a way to a target.
    pub fn speaks(&self, target: &Target) -> bool {
        match target {
            Target::Tcp(_) => true,
            Target::Fast(peer) => self.has_port(peer.kind),
        }
    }

    /// What the reactor has done until this round.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        self.add_port_counters(&mut counters);
        counters
    }

    /// How much output waits for a connection.
    pub fn pending_bytes(&self, connection: u64) -> usize {
        if let Some((port, session)) = of_connection(connection) {
            return self.queued_in_session(port, session);
        }
        let link = self
            .slot(connection)
            .and_then(|slot| self.links[slot].as_ref());
        link.map_or(0, SendHalf::pending_bytes)
    }

    /// Who is at the other end of a connection or session; `None` if the connection is gone, or its peer's name is still being looked up.
    pub fn peer(&self, connection: u64) -> Option<Peer> {
        if let Some((port, session)) = of_connection(connection) {
            return self.peer_in_session(port, session);
        }
        let link = self.links[self.slot(connection)?].as_ref()?;
        link.stream.as_ref().map(Stream::peer)
    }

    pub(crate) fn link(&mut self, slot: usize) -> Option<&mut SendHalf> {
        self.links.get_mut(slot)?.as_mut()
    }

    pub(crate) fn slots(&self) -> usize {
        self.links.len()
    }

    /// Where the state of a live connection lies.
    pub(crate) fn slot(&self, connection: u64) -> Option<usize> {
        let slot = (connection & ((1 << SLOT_BITS) - 1)) as usize;
        let link = self.links.get(slot)?.as_ref()?;
        (link.id == connection).then_some(slot)
    }

    /// Whether one more connection fits.
    pub(crate) fn has_room(&self) -> bool {
        self.links.len() - self.free.len() < self.limits.connections.min(1 << SLOT_BITS)
    }

    pub(crate) fn add(
        &mut self,
        protocol: Protocol,
        stage: Stage,
        origin: Origin,
        stream: Option<Stream>,
    ) -> (u64, usize) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let id = self.next_serial << SLOT_BITS | slot as u64;
        self.next_serial += 1;
        self.counters.connections += 1;
        self.accounts.of(origin).opened(origin.peer());
        self.links[slot] = Some(SendHalf {
            id,
            protocol,
            stage,
            origin,
            stream,
            secure: None,
            expires: Time::NEVER,
            output: match (protocol, origin) {
                (Protocol::Rpc, Origin::Accepted(..)) => Outbound::answers(),
                _ => Outbound::ordered(),
            },
            dirty: false,
            throttled: false,
            waiting_since: None,
            input_bytes: 0,
            accounted: 0,
            partial_since: None,
            heard: clock::now(),
            admitted_bytes: 0,
            wants_room: false,
            is_waiting: false,
            doomed: None,
        });
        (id, slot)
    }

    /// Has the kernel tell what happens on the connection of `slot`.
    pub(crate) fn register(&mut self, slot: usize) -> io::Result<()> {
        if let Some(stream) = self.links[slot]
            .as_mut()
            .and_then(|link| link.stream.as_mut())
        {
            stream.register(&self.registry, Token(slot))?;
        }
        Ok(())
    }

    fn begin_connect(&mut self, slot: usize, address: SocketAddrV4) -> io::Result<()> {
        let stream = Stream::connect(address)?;
        if let Some(link) = &mut self.links[slot] {
            link.stream = Some(stream);
            link.stage = Stage::Connecting;
        }
        self.register(slot)
    }

    /// Goes on with connections whose names have been looked up.
    pub(crate) fn take_answers(&mut self) {
        for (connection, answer) in self.resolver.answers() {
            let Some(slot) = self.slot(connection) else {
                continue;
            };
            let begun = answer.and_then(|address| self.begin_connect(slot, address));
            if let Err(error) = begun {
                self.doom(slot, CloseReason::Connect(error));
            }
        }
    }

    /// A connection is open: a member stream begins with the preface.
    pub(crate) fn opened(&mut self, slot: usize) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        link.stage = Stage::Open;
        link.waiting_since = None;
        if link.protocol == Protocol::Member {
            link.output.push(&member::preface(), &[], 0);
            self.mark_dirty(slot);
        }
    }

    pub(crate) fn mark_dirty(&mut self, slot: usize) {
        if let Some(link) = &mut self.links[slot]
            && !link.dirty
        {
            link.dirty = true;
            self.dirty.push(slot);
            self.awaited.push(slot);
        }
    }

    /// Marks a connection for its end; the handler is told at the end of the round.
    pub(crate) fn doom(&mut self, slot: usize, reason: CloseReason) {
        let Some(link) = &mut self.links[slot] else {
            return;
        };
        if link.doomed.is_none() {
            link.doomed = Some(Some(reason));
            self.doomed.push(slot);
        }
    }

    /// Connections that are to end now, each with what the handler is to be told.
    pub(crate) fn take_doomed(
        &mut self,
        lend: &Lender<'_>,
    ) -> Option<(usize, u64, Option<CloseReason>)> {
        let slot = self.doomed.pop()?;
        if self.links[slot]
            .as_ref()
            .is_some_and(|link| matches!(link.doomed, Some(None)))
        {
            self.flush(slot, lend);
        }
        let mut link = self.links[slot].take()?;
        self.returned.extend(link.output.take_loans());
        if let Some(stream) = &mut link.stream {
            stream.end();
            stream.deregister(&self.registry);
        }
        self.counters.connections -= 1;
        self.settle_accounts(&mut link);
        let reason = link.doomed.take().flatten();
        if matches!(
            reason,
            Some(
                CloseReason::NotReading
                    | CloseReason::OutOfBuffers
                    | CloseReason::SlowMessage
                    | CloseReason::Displaced
            )
        ) {
            self.counters.closed_by_bound += 1;
        }
        // Of one that was never open the handler knows nothing.
        let reason = reason.filter(|_| !matches!(link.stage, Stage::Securing(Some(_))));
        Some((slot, link.id, reason))
    }

    /// Lets `slot` be used again, once nothing refers to it any more.
    pub(crate) fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Ends what has waited for too long: connects, output that nobody reads, messages that were begun.
    pub(crate) fn sweep(&mut self, now: Time, connect: Duration, stalled: Duration) {
        self.watched = self.accounts.is_any_short();
        let message_timeout = self.limits.message_timeout;
        for slot in 0..self.links.len() {
            let Some(link) = &mut self.links[slot] else {
                continue;
            };
            if let Some(since) = link.partial_since {
                self.watched = true;
                // What is not read because the peer does not read either is not late.
                if now.since(since) >= message_timeout && !link.throttled {
                    self.doom(slot, CloseReason::SlowMessage);
                    continue;
                }
            }
            if matches!(link.stage, Stage::Open) && link.pending_bytes() == 0 {
                continue;
            }
            self.watched = true;
            let waited = now.since(*link.waiting_since.get_or_insert(now));
            match link.stage {
                Stage::Open if waited >= stalled => self.doom(slot, CloseReason::NotReading),
                // The thread of handshakes ends them before; it may have ended itself.
                Stage::Securing(_) if waited >= stalled => {
                    self.doom(slot, CloseReason::Handshake(HandshakeError::TimedOut));
                }
                Stage::Resolving | Stage::Connecting if waited >= connect => {
                    self.doom(
                        slot,
                        CloseReason::Connect(io::Error::from(io::ErrorKind::TimedOut)),
                    );
                }
                _ => {}
            }
        }
    }
}

/// Puts one message into a link's output; large ones go to the kernel first, as far as it takes them. Gives the bytes
/// that have gone out.
fn put(link: &mut SendHalf, header: &[u8], parts: &[&[u8]], length: usize) -> io::Result<usize> {
    let mut gone = 0;
    if length >= LONG_BYTES && link.output.is_empty() {
        gone = write_direct(link, header, parts)?;
    }
    link.output.push(header, parts, gone);
    Ok(gone)
}

/// One gathering write; more parts than the array holds wait for the buffer.
fn write_direct(link: &mut SendHalf, header: &[u8], parts: &[&[u8]]) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); 8];
    slices[0] = IoSlice::new(header);
    let used = parts.len().min(slices.len() - 1);
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    send_now(&mut link.stream, &link.stage, link.id, &slices[..=used])
}
