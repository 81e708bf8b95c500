//! The loop: receive, hand over, flush, tick; spin or sleep when there is nothing.

mod connecting;
mod reading;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::time::Time;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};
use trace::Event;

use crate::budget::Audience;
use crate::clock;
use crate::connection::{CloseReason, Input, Protocol};
use crate::handler::Handler;
use crate::handshakes::Door;
use crate::heat::Heat;
use crate::io::{Counters, Io, Limits};
use crate::ports::{self, DOZE, Inlet, MAX_PORTS, Port, PortListeners};
use crate::spin::{Idle, Spin};

const WAKER: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 64;
const FIRST_PORT: usize = FIRST_LISTENER - MAX_PORTS;
const BACKLOG: i32 = 1024;
/// At most one line in this time about connections that are refused.
const COMPLAINT: Duration = Duration::from_secs(10);
const EVENTS: usize = 256;
/// While spinning on hot connections, epoll is asked for news of all the others every so many rounds ...
const ROUNDS_PER_POLL: u32 = 16;
/// ... or after this time, if rounds are long.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
const SWEEP: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Output that makes no progress for this long ends the connection.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

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
    door: Door,
    /// There may be more to accept than epoll will tell of.
    retry_at: Option<Time>,
}

/// Between rounds nobody is asked: a program that sends then, a client, answers nothing.
const NOTHING_LENT: &transport::Lender<'static> = &|_, _| None;

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
    /// The next round begins with a sleep.
    sleeps: bool,
}

/// The result of the first half of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    worked: bool,
    /// The round may end with a sleep.
    rests: bool,
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
            sleeps: false,
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
        door: Door,
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
            door,
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
        while !self.is_stopped() {
            if is_done(handler) {
                return Ok(true);
            }
            self.turn(handler)?;
        }
        self.flush_lent(handler);
        Ok(false)
    }

    /// One round: receives what there is and hands it over, or spins, or sleeps until something comes or the next tick.
    pub fn turn(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        let round = self.receive(handler)?;
        self.finish(round, handler);
        if self.sleeps {
            let round = self.receive(handler)?;
            self.finish(round, handler);
        }
        Ok(())
    }

    /// The first half of a round, for those who have something to do in its middle, where another thread may take the reactor over: sleeps, if the
    /// round before ended so, and hands over what has come.
    ///
    /// # Errors
    /// epoll fails, which it does not while this program is sound.
    pub fn receive(&mut self, handler: &mut impl Handler) -> io::Result<Round> {
        if std::mem::take(&mut self.sleeps) {
            let now = clock::now();
            let worked = self.sleep(now, handler)?.unwrap_or(false);
            return Ok(Round {
                worked,
                rests: false,
            });
        }
        let mut worked = self.read_known(handler);
        self.rounds = self.rounds.wrapping_add(1);
        if self.heat.is_empty() && !ports::is_hot(&self.inlets)
            || self.rounds.is_multiple_of(ROUNDS_PER_POLL)
            || self.last_round.since(self.last_poll) > POLL_INTERVAL
        {
            self.last_poll = self.last_round;
            worked |= self.poll_events(Some(Duration::ZERO), handler)?;
        }
        Ok(Round {
            worked,
            rests: true,
        })
    }

    /// The second half: what was sent leaves, and what is due is done.
    pub fn finish(&mut self, round: Round, handler: &mut impl Handler) {
        let Round { worked, rests } = round;
        let now = clock::now();
        self.finish_round(now, worked, handler);
        if worked {
            self.spin.worked(now);
            return;
        }
        if !rests || self.next_tick <= now || self.io.is_pumping() {
            // The handler has more to do. Giving the core away after each piece of it would leave most of the core to others.
            return;
        }
        match self.spin.idle(now, self.io.spin) {
            Idle::Spin => std::thread::yield_now(),
            Idle::Block => self.sleeps = true,
        }
    }

    /// Whether [`Remote::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.remote.stop.load(Ordering::Acquire)
    }

    /// Offers what waits to the kernel once more: at the end.
    pub fn flush_last(&mut self, handler: &mut impl Handler) {
        self.flush_lent(handler);
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
        self.io.flush_dirty(NOTHING_LENT);
    }

    /// Something that will be answered was sent from outside a round: spin for the answer.
    pub fn expect_answer(&mut self) {
        self.io.flush_dirty(NOTHING_LENT);
        let now = clock::now();
        self.heat_awaited(now);
        ports::expect(now, &mut self.inlets, &mut self.io);
        self.spin.worked(now);
    }

    /// Has [`Handler::tick`] called in the next round, whatever it asked for.
    pub fn tick_soon(&mut self) {
        self.next_tick = Time::ZERO;
    }

    /// Until something comes; `None`: there is something to do already.
    fn sleep(&mut self, now: Time, handler: &mut impl Handler) -> io::Result<Option<bool>> {
        self.heat.clear();
        let wake_at = self.next_deadline();
        if !self.unread.is_empty() || !self.io.resumed.is_empty() || wake_at <= now {
            return Ok(None);
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
        Ok(Some(worked))
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
        let deadline = deadline.min(self.io.next_expiry);
        deadline.min(retry.unwrap_or(Time::NEVER))
    }

    /// After the frames of a round: flush, deadlines, tick, ends of connections.
    fn finish_round(&mut self, now: Time, worked: bool, handler: &mut impl Handler) {
        self.last_round = now;
        self.io.counters.spin_ns = self.spin.spun.as_nanos() as u64;
        self.flush_lent(handler);
        self.heat_awaited(now);
        if !self.inlets.is_empty() && ports::tend(now, &mut self.inlets, &mut self.io, handler) {
            self.next_tick = Time::ZERO;
        }
        if std::mem::take(&mut self.woken) {
            self.io.take_answers();
            self.take_secured(now, handler);
            self.next_tick = Time::ZERO;
            handler.woken(now, &mut self.io);
        }
        if worked || now >= self.next_tick {
            self.next_tick = handler.tick(now, &mut self.io);
        }
        self.run_deadlines(now, handler);
        self.flush_lent(handler);
        self.heat_awaited(now);
        if self.rounds.is_multiple_of(ROUNDS_PER_POLL) {
            self.heat.cool(now, self.io.spin);
            ports::cool(now, self.io.spin, &mut self.inlets);
        }
        self.end_doomed(now, handler);
    }

    /// Gives everything that waits to the kernel and to ports, and what was lent and is sent back to the handler.
    fn flush_lent(&mut self, handler: &mut impl Handler) {
        self.io
            .flush_dirty(&|token, length| handler.lent(token, length));
        for token in self.io.returned.drain(..) {
            handler.returned(token);
        }
    }

    fn run_deadlines(&mut self, now: Time, handler: &mut impl Handler) {
        if self.io.watched && self.next_sweep == Time::NEVER {
            self.next_sweep = now + SWEEP;
        }
        if now >= self.io.next_expiry {
            self.io.expire(now);
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
        while let Some((slot, connection, reason)) = self
            .io
            .take_doomed(&|token, length| handler.lent(token, length))
        {
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
        self.flush_lent(handler);
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
