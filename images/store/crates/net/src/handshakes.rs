//! Connections that become encrypted: a thread of its own makes their handshakes, since a signature takes as long as a hundred requests.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use tls::{Admits, Channel, ChannelError, Guard, is_hello};

/// How connections are let in.
#[derive(Clone, Debug, Default)]
pub enum Door {
    /// As they are.
    #[default]
    Plain,
    /// Encrypted, or as they are: while a store changes from the one to the other.
    Mixed(Secure),
    /// Encrypted only.
    Required(Secure),
}

/// Whose credentials count, and who may be at the other end.
#[derive(Clone, Debug)]
pub struct Secure {
    pub guard: Arc<Guard>,
    pub admits: Admits,
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub enum HandshakeError {
    Channel(ChannelError),
    Broken(io::Error),
    /// The other side has closed the connection before it was done: it may not speak TLS at all.
    Ended,
    TimedOut,
    /// So many are under way.
    TooMany,
}

impl HandshakeError {
    /// Whether the other side may be one that speaks no TLS.
    pub fn may_be_plain(&self) -> bool {
        match self {
            HandshakeError::Ended | HandshakeError::Channel(ChannelError::NotTls) => true,
            // It has closed the connection without reading all of it.
            HandshakeError::Broken(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Channel(error) => error.fmt(f),
            HandshakeError::Broken(error) => error.fmt(f),
            HandshakeError::Ended => f.write_str(
                "the other side has closed the connection; it may not speak TLS, or not want this side",
            ),
            HandshakeError::TimedOut => write!(f, "not done within {TIMEOUT:?}"),
            HandshakeError::TooMany => f.write_str(
                "as many handshakes are under way as may be, or a quarter of them with that address",
            ),
        }
    }
}

/// A handshake that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// So many bytes are looked at to tell TLS from other protocols.
const PEEKED_BYTES: usize = 16;
const SCRATCH_BYTES: usize = 128 << 10;
/// Behind the threads of shards, which have the processor first.
const NICE: i32 = 10;

const WAKER: Token = Token(usize::MAX);

/// A connection that is to be encrypted.
pub(crate) struct Job {
    pub connection: u64,
    pub address: SocketAddrV4,
    pub socket: TcpStream,
    pub secure: Secure,
    /// This process has opened it.
    pub is_own: bool,
    /// It may turn out not to be TLS.
    pub may_be_plain: bool,
}

/// A connection that is ready; without a channel if it is not encrypted.
pub(crate) struct Ready {
    pub address: SocketAddrV4,
    pub socket: TcpStream,
    pub channel: Option<Channel>,
}

pub(crate) type Done = (u64, Result<Ready, HandshakeError>);

struct Thread {
    jobs: SyncSender<Job>,
    waker: Arc<Waker>,
}

/// Of one reactor; its thread is started with the first.
pub(crate) struct Handshakes {
    /// The reactor's.
    waker: Arc<Waker>,
    thread: Option<Thread>,
    done: Arc<Mutex<Vec<Done>>>,
    /// Of each that is under way, from where it comes; nothing of those that this process has opened.
    under_way: BTreeMap<u64, Option<Ipv4Addr>>,
    /// At most so many are under way, in the queue or begun.
    most: usize,
}

impl Handshakes {
    pub fn new(waker: Arc<Waker>, most: usize) -> Handshakes {
        Handshakes {
            most,
            waker,
            thread: None,
            done: Arc::default(),
            under_way: BTreeMap::new(),
        }
    }

    /// Begins one; it is among [`Handshakes::done`] after a wake-up.
    pub fn begin(&mut self, job: Job) -> Result<(), HandshakeError> {
        let (connection, from) = (job.connection, (!job.is_own).then(|| *job.address.ip()));
        if !self.has_room(from) {
            return Err(HandshakeError::TooMany);
        }
        self.hand_over(job)?;
        self.under_way.insert(connection, from);
        Ok(())
    }

    /// Strangers do not take the place of connections that this process opens, nor those of one address that of others.
    fn has_room(&self, from: Option<Ipv4Addr>) -> bool {
        let count = |is_meant: &dyn Fn(&Option<Ipv4Addr>) -> bool| {
            self.under_way
                .values()
                .filter(|from| is_meant(from))
                .count()
        };
        match from {
            None => count(&|from| from.is_none()) < self.most,
            Some(_) => {
                count(&|from| from.is_some()) < self.most
                    && count(&|other| *other == from) < self.most.div_ceil(4)
            }
        }
    }

    fn hand_over(&mut self, job: Job) -> Result<(), HandshakeError> {
        let thread = match &self.thread {
            Some(thread) => thread,
            None => {
                let thread = start(Arc::clone(&self.waker), Arc::clone(&self.done), self.most);
                self.thread.insert(thread.map_err(HandshakeError::Broken)?)
            }
        };
        thread.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => HandshakeError::TooMany,
            TrySendError::Disconnected(_) => {
                HandshakeError::Broken(io::Error::other("the thread of handshakes has ended"))
            }
        })?;
        thread.waker.wake().map_err(HandshakeError::Broken)
    }

    pub fn done(&mut self) -> Vec<Done> {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        for (connection, _) in &done {
            self.under_way.remove(connection);
        }
        done
    }
}

impl Drop for Handshakes {
    /// The thread sees that nobody is left to send it jobs.
    fn drop(&mut self) {
        if let Some(Thread { jobs, waker }) = self.thread.take() {
            drop(jobs);
            let _ = waker.wake();
        }
    }
}

fn start(reactor: Arc<Waker>, done: Arc<Mutex<Vec<Done>>>, most: usize) -> io::Result<Thread> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    let (jobs, queue) = sync_channel(2 * most);
    let worker = Worker {
        poll,
        queue,
        under_way: BTreeMap::new(),
        next: 0,
        scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
        reactor,
        done,
    };
    std::thread::Builder::new()
        .name("handshakes".to_owned())
        .spawn(move || worker.run())?;
    Ok(Thread { jobs, waker })
}

struct UnderWay {
    job: Job,
    channel: Channel,
    until: Instant,
}

/// Whether one goes on.
enum Progress {
    Waits,
    Plain,
    Encrypted,
}

struct Worker {
    poll: Poll,
    queue: Receiver<Job>,
    under_way: BTreeMap<usize, UnderWay>,
    next: usize,
    scratch: Box<[u8]>,
    reactor: Arc<Waker>,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Worker {
    fn run(mut self) {
        // Without the right to it, or under another scheduler, the thread does its work all the same.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        let mut events = Events::with_capacity(64);
        loop {
            let wait = self.under_way.values().map(|one| one.until).min();
            let wait = wait.map(|until| until.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return tracing::error!("handshakes end: {error}"),
            }
            for event in &events {
                if event.token() != WAKER {
                    self.go_on(event.token().0);
                }
            }
            self.end_late();
            if !self.take_jobs() {
                return;
            }
        }
    }

    /// False when nobody can send any more.
    fn take_jobs(&mut self) -> bool {
        loop {
            match self.queue.try_recv() {
                Ok(job) => self.take(job),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take(&mut self, mut job: Job) {
        let Secure { guard, admits } = &job.secure;
        let channel = match job.is_own {
            true => guard.connect(admits.clone()),
            false => guard.accept(admits.clone()),
        };
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => return self.tell(job.connection, Err(HandshakeError::Channel(error))),
        };
        let number = self.next;
        self.next += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered = registry.register(&mut job.socket, Token(number), both);
        let one = UnderWay {
            job,
            channel,
            until: Instant::now() + TIMEOUT,
        };
        self.under_way.insert(number, one);
        match registered {
            Ok(()) => self.go_on(number),
            Err(error) => self.end(number, Err(HandshakeError::Broken(error))),
        }
    }

    fn go_on(&mut self, number: usize) {
        let Some(one) = self.under_way.get_mut(&number) else {
            return;
        };
        match advance(one, &mut self.scratch) {
            Ok(Progress::Waits) => {}
            Ok(Progress::Plain) => self.end(number, Ok(false)),
            Ok(Progress::Encrypted) => self.end(number, Ok(true)),
            Err(error) => self.end(number, Err(error)),
        }
    }

    fn end_late(&mut self) {
        let now = Instant::now();
        let late = self.under_way.iter().filter(|(_, one)| one.until <= now);
        let late: Vec<usize> = late.map(|(number, _)| *number).collect();
        for number in late {
            // Of one that has said nothing yet it is not known that it does not speak plainly.
            let may_be_plain = self.under_way.get(&number).map(|one| one.job.may_be_plain);
            let late = match may_be_plain {
                Some(true) => Ok(false),
                _ => Err(HandshakeError::TimedOut),
            };
            self.end(number, late);
        }
    }

    /// The reactor has the connection again, encrypted or not, or is told why it does not.
    fn end(&mut self, number: usize, result: Result<bool, HandshakeError>) {
        let Some(UnderWay {
            mut job, channel, ..
        }) = self.under_way.remove(&number)
        else {
            return;
        };
        // It fails only if the socket was never registered.
        let _ = self.poll.registry().deregister(&mut job.socket);
        let ready = result.map(|is_encrypted| Ready {
            address: job.address,
            socket: job.socket,
            channel: is_encrypted.then_some(channel),
        });
        self.tell(job.connection, ready);
    }

    fn tell(&self, connection: u64, ready: Result<Ready, HandshakeError>) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push((connection, ready));
        drop(done);
        if let Err(error) = self.reactor.wake() {
            tracing::error!("cannot wake a thread: {error}");
        }
    }
}

/// As far as it goes without waiting.
fn advance(one: &mut UnderWay, scratch: &mut [u8]) -> Result<Progress, HandshakeError> {
    let UnderWay { job, channel, .. } = one;
    if job.may_be_plain {
        let mut beginning = [0; PEEKED_BYTES];
        let peeked = match retried(|| job.socket.peek(&mut beginning))? {
            Some(peeked) => peeked,
            None => return Ok(Progress::Waits),
        };
        match is_hello(&beginning[..peeked]) {
            // The end of a silent connection is the reactor's matter.
            None if peeked == 0 => return Ok(Progress::Plain),
            None => return Ok(Progress::Waits),
            Some(false) => return Ok(Progress::Plain),
            Some(true) => job.may_be_plain = false,
        }
    }
    loop {
        while !channel.sealed().is_empty() {
            match retried(|| job.socket.write(channel.sealed()))? {
                Some(sent) => channel.sent(sent),
                None => return Ok(Progress::Waits),
            }
        }
        if channel.is_established() {
            return Ok(Progress::Encrypted);
        }
        let begun = channel.begin(scratch);
        let received = match retried(|| job.socket.read(&mut scratch[begun..]))? {
            Some(0) => return Err(HandshakeError::Ended),
            Some(received) => received,
            None => return Ok(Progress::Waits),
        };
        if let Err(error) = channel.open(&mut scratch[..begun + received], &mut []) {
            // Why, as far as the kernel takes it: the other side is not waited for.
            let _ = job.socket.write(channel.sealed());
            return Err(HandshakeError::Channel(error));
        }
    }
}

/// Nothing if the socket is not ready.
fn retried(mut act: impl FnMut() -> io::Result<usize>) -> Result<Option<usize>, HandshakeError> {
    loop {
        match act() {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(HandshakeError::Broken(error)),
        }
    }
}
