//! The loop: receive, hand over, flush, tick; spin or sleep when there is nothing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use trace::Event;
use transport::BASE_BYTES;
use wire::time::Time;

use crate::accounts::Origin;
use crate::budget::Audience;
use crate::clock;
use crate::connection::{CloseReason, Input, Protocol, Received, Stage};
use crate::handler::Handler;
use crate::heat::Heat;
use crate::io::{Counters, Io, Limits};
use crate::ports::{self, DOZE, Inlet, MAX_PORTS, Port, PortListeners};
use crate::spin::{Idle, Spin};

const WAKER: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 64;
const FIRST_PORT: usize = FIRST_LISTENER - MAX_PORTS;
const BACKLOG: i32 = 1024;
const EVENTS: usize = 256;
/// While spinning on hot connections, epoll is asked for news of all the others every so many rounds ...
const ROUNDS_PER_POLL: u32 = 16;
/// ... or after this time, if rounds are long.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// How long one connection's messages may be handled before the others have their turn.
const TURN: Duration = Duration::from_micros(200);
/// New connections taken in one round.
const ACCEPTS: usize = 64;
/// A listener that could not accept (no file descriptor left) tries again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const SWEEP: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Output that makes no progress for this long ends the connection.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Peers that vanished without a word are found by the kernel.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// At most one line in this time about connections that are refused.
const COMPLAINT: Duration = Duration::from_secs(10);

/// How a reactor behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to spin after the last message before going to sleep.
    pub spin: Duration,
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            spin: Duration::from_micros(100),
            limits: Limits::default(),
        }
    }
}

/// Reaches a reactor from other threads.
#[derive(Clone)]
pub struct Remote {
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
}

impl Remote {
    /// Makes the reactor call [`Handler::woken`] soon.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!("cannot wake a thread: {error}");
        }
    }

    /// Makes [`Reactor::run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}

struct Listener {
    socket: TcpListener,
    protocol: Protocol,
    audience: Audience,
    /// There may be more to accept than epoll will tell of.
    retry_at: Option<Time>,
}

/// One thread's sockets.
pub struct Reactor {
    poll: Poll,
    events: Events,
    io: Io,
    inputs: Vec<Option<Input>>,
    listeners: Vec<Listener>,
    /// The receiving halves of ports for datagrams.
    inlets: Vec<Inlet>,
    /// Connections that are read in every round.
    heat: Heat,
    /// Connections that may have unread bytes, to be read in the next round.
    unread: Vec<usize>,
    spin: Spin,
    rounds: u32,
    last_poll: Time,
    last_round: Time,
    next_tick: Time,
    next_sweep: Time,
    last_complaint: Option<Time>,
    remote: Remote,
    woken: bool,
}

impl Reactor {
    /// # Errors
    /// The kernel gives no epoll instance (out of file descriptors).
    pub fn new(options: Options) -> io::Result<Reactor> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let io = Io::new(options, poll.registry().try_clone()?, Arc::clone(&waker));
        Ok(Reactor {
            poll,
            events: Events::with_capacity(EVENTS),
            io,
            inputs: Vec::new(),
            listeners: Vec::new(),
            inlets: Vec::new(),
            heat: Heat::default(),
            unread: Vec::new(),
            spin: Spin::default(),
            rounds: 0,
            last_poll: Time::ZERO,
            last_round: Time::ZERO,
            next_tick: Time::ZERO,
            next_sweep: Time::NEVER,
            last_complaint: None,
            remote: Remote {
                waker,
                stop: Arc::default(),
            },
            woken: false,
        })
    }

    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// For use between rounds, by the thread that runs them.
    pub fn io(&mut self) -> &mut Io {
        &mut self.io
    }

    pub fn counters(&self) -> Counters {
        self.io.counters()
    }

    /// Listens on `address`; port 0 lets the kernel choose. Gives the listener's number and the address in use.
    pub fn listen(
        &mut self,
        address: SocketAddrV4,
        protocol: Protocol,
        audience: Audience,
    ) -> io::Result<(usize, SocketAddrV4)> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::V4(address).into())?;
        socket.listen(BACKLOG)?;
        let mut socket = TcpListener::from_std(socket.into());
        let bound = match socket.local_addr()? {
            SocketAddr::V4(bound) => bound,
            SocketAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        };
        let number = self.listeners.len();
        assert!(
            FIRST_LISTENER + number < WAKER.0,
            "more listeners than tokens"
        );
        self.poll.registry().register(
            &mut socket,
            Token(FIRST_LISTENER + number),
            Interest::READABLE,
        )?;
        self.listeners.push(Listener {
            socket,
            protocol,
            audience,
            retry_at: None,
        });
        Ok((number, bound))
    }

    /// Speaks the `fast` protocol on a port for datagrams from now on. Gives under which numbers of listeners sessions are reported that others open.
    ///
    /// # Errors
    /// The kernel gives no random numbers, or does not watch the port's descriptor; or there are too many ports.
    pub fn add_port(&mut self, port: Port, config: fast::Config) -> io::Result<PortListeners> {
        let first = self.io.outlets.len();
        let udp_ports = 1 + usize::from(port.sender.peer_address().is_some());
        if first + udp_ports > MAX_PORTS {
            return Err(io::Error::other(format!("more than {MAX_PORTS} UDP ports")));
        }
        let seeds = [random_seed()?, random_seed()?];
        let number = self.inlets.len();
        let inlet = self.io.add_port(port, config, seeds);
        if let Some(descriptor) = inlet.descriptor() {
            let token = Token(FIRST_PORT + number);
            let mut source = mio::unix::SourceFd(&descriptor);
            self.poll
                .registry()
                .register(&mut source, token, Interest::READABLE)?;
        }
        self.inlets.push(inlet);
        Ok(PortListeners::of(first, first + udp_ports - 1))
    }

    /// Runs until [`Remote::stop`], then offers what waits to the kernel once more.
    ///
    /// # Errors
    /// epoll fails, which it does not while this program is sound.
    pub fn run(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        self.run_until(handler, |_| false)?;
        Ok(())
    }

    /// As [`Reactor::run`], but also returns as soon as `is_done` says so between two rounds: whether it did.
    pub fn run_until<H: Handler>(
        &mut self,
        handler: &mut H,
        is_done: impl Fn(&H) -> bool,
    ) -> io::Result<bool> {
        while !self.remote.stop.load(Ordering::Acquire) {
            if is_done(handler) {
                return Ok(true);
            }
            self.turn(handler)?;
        }
        self.io.flush_dirty();
        Ok(false)
    }

    /// One round: receives what there is and hands it over, or spins, or sleeps until something comes or the next tick.
    pub fn turn(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        let mut worked = self.read_known(handler);
        self.rounds = self.rounds.wrapping_add(1);
        if self.heat.is_empty() && !ports::is_hot(&self.inlets)
            || self.rounds.is_multiple_of(ROUNDS_PER_POLL)
            || self.last_round.since(self.last_poll) > POLL_INTERVAL
        {
            self.last_poll = self.last_round;
            worked |= self.poll_events(Some(Duration::ZERO), handler)?;
        }
        let now = clock::now();
        self.finish_round(now, worked, handler);
        if worked {
            self.spin.worked(now);
            return Ok(());
        }
        if self.next_tick <= now || self.io.is_pumping() {
            // The handler has more to do. Giving the core away after each piece of it would leave most of the core to others.
            return Ok(());
        }
        match self.spin.idle(now, self.io.spin) {
            Idle::Spin => std::thread::yield_now(),
            Idle::Block => self.block(now, handler)?,
        }
        Ok(())
    }

    /// One round that neither spins nor sleeps.
    pub fn poll(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        let mut worked = self.read_known(handler);
        self.last_poll = self.last_round;
        worked |= self.poll_events(Some(Duration::ZERO), handler)?;
        let now = clock::now();
        self.finish_round(now, worked, handler);
        if worked {
            self.spin.worked(now);
        }
        Ok(())
    }

    /// Gives what was sent from outside a round to the kernel and to ports.
    pub fn flush(&mut self) {
        self.io.flush_dirty();
    }

    /// Something that will be answered was sent from outside a round: spin for the answer.
    pub fn expect_answer(&mut self) {
        self.io.flush_dirty();
        let now = clock::now();
        self.heat_awaited(now);
        ports::expect(now, &mut self.inlets, &mut self.io);
        self.spin.worked(now);
    }

    /// Has [`Handler::tick`] called in the next round, whatever it asked for.
    pub fn tick_soon(&mut self) {
        self.next_tick = Time::ZERO;
    }

    fn block(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<()> {
        self.heat.clear();
        let wake_at = self.next_deadline();
        if !self.unread.is_empty() || !self.io.resumed.is_empty() || wake_at <= now {
            return Ok(());
        }
        self.io.counters.blocks += 1;
        trace::record(Event::Slept, 0);
        let mut wait = (wake_at != Time::NEVER).then(|| wake_at.since(now));
        let must_look = ports::must_look(&self.inlets);
        if must_look {
            // epoll counts in milliseconds.
            std::thread::sleep(DOZE.min(wait.unwrap_or(DOZE)));
            wait = Some(Duration::ZERO);
        }
        let mut worked = self.poll_events(wait, handler)?;
        if must_look {
            trace::record(Event::Woke, 0);
            worked |= ports::read(&mut self.inlets, &mut self.io, handler);
        }
        let now = clock::now();
        self.finish_round(now, worked, handler);
        if worked {
            self.spin.worked(now);
        }
        Ok(())
    }

    fn next_deadline(&self) -> Time {
        let retry = self
            .listeners
            .iter()
            .filter_map(|listener| listener.retry_at)
            .min();
        let sweep = if self.io.watched {
            self.next_sweep
        } else {
            Time::NEVER
        };
        let port = self.io.next_port_tick();
        let deadline = self.next_tick.min(sweep).min(port);
        deadline.min(retry.unwrap_or(Time::NEVER))
    }

    /// After the frames of a round: flush, deadlines, tick, ends of connections.
    fn finish_round(&mut self, now: Time, worked: bool, handler: &mut impl Handler) {
        self.last_round = now;
        self.io.counters.spin_ns = self.spin.spun.as_nanos() as u64;
        self.io.flush_dirty();
        self.heat_awaited(now);
        if !self.inlets.is_empty() && ports::tend(now, &mut self.inlets, &mut self.io, handler) {
            self.next_tick = Time::ZERO;
        }
        if std::mem::take(&mut self.woken) {
            self.io.take_answers();
            self.next_tick = Time::ZERO;
            handler.woken(now, &mut self.io);
        }
        if worked || now >= self.next_tick {
            self.next_tick = handler.tick(now, &mut self.io);
        }
        self.run_deadlines(now, handler);
        self.io.flush_dirty();
        self.heat_awaited(now);
        if self.rounds.is_multiple_of(ROUNDS_PER_POLL) {
            self.heat.cool(now, self.io.spin);
            ports::cool(now, self.io.spin, &mut self.inlets);
        }
        self.end_doomed(now, handler);
    }

    fn run_deadlines(&mut self, now: Time, handler: &mut impl Handler) {
        if self.io.watched && self.next_sweep == Time::NEVER {
            self.next_sweep = now + SWEEP;
        }
        if now >= self.next_sweep {
            self.next_sweep = Time::NEVER;
            self.io.sweep(now, CONNECT_TIMEOUT, STALL_TIMEOUT);
            self.save_buffers(Io::is_short_of_buffers);
            if self.io.watched {
                self.next_sweep = now + SWEEP;
            }
        }
        for number in 0..self.listeners.len() {
            if self.listeners[number].retry_at.is_some_and(|at| now >= at) {
                self.accept(number, handler);
            }
        }
    }

    fn end_doomed(&mut self, now: Time, handler: &mut impl Handler) {
        while let Some((slot, connection, reason)) = self.io.take_doomed() {
            if let Some(input) = self.inputs.get_mut(slot) {
                *input = None;
            }
            self.heat.forget(slot);
            self.unread.retain(|unread| *unread != slot);
            self.io.awaited.retain(|awaited| *awaited != slot);
            self.io.release(slot);
            if let Some(reason) = reason {
                if matches!(reason, CloseReason::OutOfBuffers) {
                    self.complain(|| format!("closed a connection: {reason}"));
                }
                self.next_tick = Time::ZERO;
                handler.closed(now, connection, reason, &mut self.io);
            }
        }
        // The handler may have answered an end with a new beginning.
        self.io.flush_dirty();
    }

    /// Reads the connections of which something is known or expected; true when a frame or an end came.
    fn read_known(&mut self, handler: &mut impl Handler) -> bool {
        let is_idle = self.next_tick > self.last_round && self.io.resumed.is_empty();
        let mut worked = match is_idle {
            true => ports::read_patiently(&mut self.inlets, &mut self.io, handler),
            false => ports::read(&mut self.inlets, &mut self.io, handler),
        };
        // Whoever is to go on after this turn is listed anew.
        for slot in std::mem::take(&mut self.io.resumed) {
            self.pump(slot, handler);
            if !self.has_backlog(slot) {
                self.keep_unread(slot);
            }
            worked = true;
        }
        for slot in std::mem::take(&mut self.unread) {
            if let Some(Some(input)) = self.inputs.get_mut(slot) {
                input.unread = false;
            }
            worked |= self.read(slot, handler);
        }
        for place in (0..self.heat.len()).rev() {
            // The list may become shorter meanwhile, never longer.
            if let Some(slot) = self.heat.at(place) {
                worked |= self.read(slot, handler);
            }
        }
        worked
    }

    fn poll_events(
        &mut self,
        wait: Option<Duration>,
        handler: &mut impl Handler,
    ) -> io::Result<bool> {
        let polled = self.poll.poll(&mut self.events, wait);
        if wait != Some(Duration::ZERO) {
            trace::record(Event::Woke, 0);
        }
        match polled {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.events.is_empty() {
            return Ok(false);
        }
        let mut worked = false;
        // Handlers borrow the whole reactor: hand the list out meanwhile.
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                WAKER => {
                    self.woken = true;
                    worked = true;
                }
                Token(number) if number >= FIRST_LISTENER => {
                    self.accept(number - FIRST_LISTENER, handler);
                    worked = true;
                }
                Token(number) if number >= FIRST_PORT => {
                    self.inlets[number - FIRST_PORT].readable();
                    worked |= ports::read(&mut self.inlets, &mut self.io, handler);
                }
                Token(slot) => {
                    if event.is_writable() || event.is_error() {
                        self.writable(slot, handler);
                    }
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        worked |= self.read(slot, handler);
                    }
                    if event.is_read_closed() {
                        // One read may give the last bytes only, and epoll will not speak of the end again.
                        self.keep_unread(slot);
                    }
                }
            }
        }
        self.events = events;
        Ok(worked)
    }

    fn accept(&mut self, number: usize, handler: &mut impl Handler) {
        self.listeners[number].retry_at = None;
        for _ in 0..ACCEPTS {
            match self.listeners[number].socket.accept() {
                Ok((stream, peer)) => self.accepted(number, stream, peer, handler),
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
        stream: TcpStream,
        peer: SocketAddr,
        handler: &mut impl Handler,
    ) {
        let SocketAddr::V4(peer) = peer else {
            return; // Listeners have addresses of IPv4.
        };
        let origin = Origin::Accepted(self.listeners[number].audience, *peer.ip());
        // Whoever is displaced leaves a place at the end of the round; until then there is one more.
        if !self.io.has_room() && !self.io.displace(clock::now(), origin) {
            self.io.counters.refused += 1;
            let limit = self.io.limits.connections;
            self.complain(|| {
                format!("refusing connections: all {limit} are in use (see --maxConnections)")
            });
            return;
        }
        if set_options(&stream).is_err() {
            return; // Gone already.
        }
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

    fn complain(&mut self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if self
            .last_complaint
            .is_none_or(|last| now.since(last) >= COMPLAINT)
        {
            self.last_complaint = Some(now);
            tracing::warn!("{}", text());
        }
    }

    /// The kernel takes bytes again, or a connect has come to its end.
    fn writable(&mut self, slot: usize, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        match link.stage {
            Stage::Connecting => self.connected(slot, handler),
            Stage::Open if link.output.is_empty() => {}
            Stage::Open => self.io.flush(slot),
            Stage::Resolving => {}
        }
    }

    fn connected(&mut self, slot: usize, handler: &mut impl Handler) {
        let Some(link) = self.io.link(slot) else {
            return;
        };
        let (connection, protocol) = (link.id, link.protocol);
        let Some(stream) = &link.stream else { return };
        let outcome = match stream.take_error() {
            Ok(None) => match (stream.peer_addr(), stream.local_addr()) {
                // A connect to a free port of this machine can meet itself.
                (Ok(peer), Ok(local)) if peer == local => {
                    Err(io::Error::from(io::ErrorKind::ConnectionRefused))
                }
                (Ok(_), Ok(_)) => set_options(stream),
                (Err(error), _) if error.kind() == io::ErrorKind::NotConnected => return, // Not yet.
                (Err(error), _) | (_, Err(error)) => Err(error),
            },
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                self.put_input(slot, Input::new(protocol, false));
                self.io.opened(slot);
                self.next_tick = Time::ZERO;
                handler.opened(clock::now(), connection, None, &mut self.io);
            }
            Err(error) => self.io.doom(slot, CloseReason::Connect(error)),
        }
    }

    /// Receives once and hands over what is complete.
    fn read(&mut self, slot: usize, handler: &mut impl Handler) -> bool {
        let Some(link) = self.io.link(slot) else {
            return false;
        };
        let Some(Some(input)) = self.inputs.get_mut(slot) else {
            return false;
        };
        if link.doomed.is_some() {
            return false;
        }
        if link.throttled || input.backlog {
            input.missed_news = true;
            return false; // Read again when the output has drained, or when what is here has been handled.
        }
        let announced = input.announced_bytes();
        if announced > BASE_BYTES && !self.may_arrive(slot, announced) {
            if let Some(Some(input)) = self.inputs.get_mut(slot) {
                input.missed_news = true;
            }
            return false; // Read again when others of its address have arrived.
        }
        let (Some(link), Some(Some(input))) = (self.io.link(slot), self.inputs.get_mut(slot))
        else {
            return false;
        };
        let Some(stream) = &mut link.stream else {
            return false;
        };
        match input.receive(stream) {
            Ok(Received::Nothing) => {
                input.missed_news = false;
                false
            }
            Ok(Received::End) => {
                self.io.doom(slot, CloseReason::EndOfStream);
                true
            }
            Ok(Received::Some { bytes, drained }) => {
                trace::record_at(Event::Received, link.id, bytes as u64);
                let is_drained = drained && !input.missed_news;
                self.io.counters.bytes_in += bytes as u64;
                self.pump(slot, handler);
                self.settle(slot);
                if !is_drained {
                    self.keep_unread(slot);
                }
                true
            }
            Err(error) => {
                self.io.doom(slot, CloseReason::Broken(error));
                true
            }
        }
    }

    /// Whether a long message may arrive now. What its address has for idle connections goes back first.
    fn may_arrive(&mut self, slot: usize, announced: usize) -> bool {
        if !self.io.admit(slot, announced) {
            self.complain(|| {
                "long messages wait: others of their address have all buffers that are for one address (see \
                 rcbox_messages_delayed_by_bound_total)"
                    .to_owned()
            });
            return false;
        }
        if let Some(origin) = self.io.tight_origin(slot, announced) {
            self.save_buffers(|io, slot| io.is_of(slot, origin));
        }
        true
    }

    /// Counts what the connection holds; where memory for buffers is short, what it does not need goes back first.
    fn settle(&mut self, slot: usize) {
        let Some(Some(input)) = self.inputs.get_mut(slot) else {
            return;
        };
        if self.io.is_short_of_buffers(slot) {
            input.give_back();
        }
        let is_partial = input.held_bytes() > 0 && !input.backlog;
        self.io
            .note_input(slot, input.capacity(), is_partial, clock::now());
    }

    /// Memory for buffers is short: takes back what connections hold that are not heard of.
    fn save_buffers(&mut self, is_meant: impl Fn(&mut Io, usize) -> bool) {
        for slot in 0..self.inputs.len() {
            if let Some(input) = &mut self.inputs[slot]
                && is_meant(&mut self.io, slot)
            {
                input.give_back();
                let capacity = input.capacity();
                self.io.shrunk(slot, capacity);
            }
        }
    }

    /// Has a connection read again in the next round, without waiting for epoll.
    fn keep_unread(&mut self, slot: usize) {
        if let Some(Some(input)) = self.inputs.get_mut(slot)
            && !input.unread
        {
            input.unread = true;
            self.unread.push(slot);
        }
    }

    fn has_backlog(&self, slot: usize) -> bool {
        matches!(self.inputs.get(slot), Some(Some(input)) if input.backlog)
    }

    /// Hands complete frames over, and their answers to the kernel, until there are none, too many answers wait, or others
    /// have waited for long enough.
    fn pump(&mut self, slot: usize, handler: &mut impl Handler) {
        let (mut first, mut last) = (None, None);
        while let Some(connection) = self.may_handle(slot) {
            let Some(Some(input)) = self.inputs.get_mut(slot) else {
                break;
            };
            input.backlog =
                matches!((first, last), (Some(first), Some(last)) if last - first >= TURN);
            if input.backlog {
                self.io.resumed.push(slot);
                break;
            }
            match input.next_frame() {
                Ok(Some(frame)) => {
                    let now = clock::now();
                    first = first.or(Some(now));
                    last = Some(now);
                    self.io.counters.frames_in += 1;
                    self.io.message_came(slot);
                    if frame.announced_bytes > frame.payload.len() {
                        let (announced, kept) = (frame.announced_bytes, frame.payload.len());
                        tracing::warn!(
                            "a message of {announced} bytes was cut to the {kept} that are allowed"
                        );
                    }
                    trace::record_at(Event::FrameIn, connection, frame.nonce);
                    handler.frame(now, connection, frame.nonce, frame.payload, &mut self.io);
                }
                Ok(None) => break,
                Err(error) => self.io.doom(slot, CloseReason::Stream(error)),
            }
        }
        self.io.flush(slot);
        if let Some(now) = last {
            self.heat.heat(slot, now);
        }
    }

    /// The connection's number if its next frame may be handled; otherwise it ends, or waits for its peer to read.
    fn may_handle(&mut self, slot: usize) -> Option<u64> {
        let origin = self.io.link(slot)?.origin;
        let limits = self.io.limits;
        let throttle_bytes = self.io.accounts.throttle_bytes(origin, &limits);
        if self.io.link(slot)?.output.pending().len() > throttle_bytes {
            self.io.flush(slot);
        }
        self.io.account(slot);
        let link = self.io.link(slot)?;
        if link.doomed.is_some() {
            return None;
        }
        link.throttled = link.output.pending().len() > throttle_bytes;
        (!link.throttled).then_some(link.id)
    }

    fn heat_awaited(&mut self, now: Time) {
        while let Some(slot) = self.io.awaited.pop() {
            self.heat.heat(slot, now);
        }
    }
}

/// What nobody can guess.
fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let bytes = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    match bytes == seed.len() {
        true => Ok(seed),
        false => Err(io::Error::other("the kernel gives too few random numbers")),
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )
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
