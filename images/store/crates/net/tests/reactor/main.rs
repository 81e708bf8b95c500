//! The reactor against real sockets on loopback. Every wait is for a condition, with a deadline far above what is typical.

mod connecting;
mod exchange;
mod memory;
mod places;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::time::Time;
use rcbox_net::{
    Address, Audience, CloseReason, Counters, Door, Handler, Io, Limits, Options, Protocol,
    Reactor, Remote,
};
use socket2::{Domain, Socket, Type};
use transport::rpc;

const DEADLINE: Duration = Duration::from_secs(20);
const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// A message that is answered shortly.
const LONG_BYTES: usize = 6 << 20;

/// Answers every message with itself; `b"big"` with 1 MiB, one of [`LONG_BYTES`] shortly, `b"blocks"` with how often the reactor slept, `b"who"` with the address from which
/// it came. Connections that it opened get "hello".
struct Echo {
    events: Sender<String>,
    connect: Option<(Address, Protocol)>,
    /// When a connect failed: what to try again, and when.
    again: Option<(Time, Address)>,
}

impl Handler for Echo {
    fn opened(&mut self, _now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        let _ = self.events.send(format!("opened {}", listener.is_some()));
        if listener.is_none() {
            assert!(io.send(connection, 9, &[b"hel", b"lo"]));
        }
    }
    fn frame(&mut self, _now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        match payload {
            b"big" => io.send(connection, nonce, &[&[7; 1 << 20]]),
            b"blocks" => io.send(connection, nonce, &[&io.counters().blocks.to_le_bytes()]),
            long if long.len() == LONG_BYTES => io.send(connection, nonce, &[b"taken"]),
            b"who" => {
                let peer = io.peer(connection).expect("the connection is open");
                io.send(connection, nonce, &[peer.to_string().as_bytes()])
            }
            b"hello" => self.events.send("hello".to_owned()).is_ok(),
            b"bye" => {
                io.send(connection, nonce, &[b"good", b"bye"]);
                io.close(connection);
                true
            }
            _ => io.send(connection, nonce, &[payload]),
        };
    }
    fn closed(&mut self, now: Time, _connection: u64, reason: CloseReason, _io: &mut Io) {
        if let Some((at, _)) = &mut self.again {
            *at = now + Duration::from_millis(5);
        }
        let _ = self.events.send(format!("closed: {reason}"));
    }
    fn woken(&mut self, _now: Time, io: &mut Io) {
        if let Some((address, protocol)) = self.connect.take() {
            io.connect(&address, protocol);
            self.again = Some((Time::NEVER, address));
        }
    }
    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        let Some((at, address)) = &mut self.again else {
            return Time::NEVER;
        };
        if now >= *at {
            *at = Time::NEVER;
            io.connect(address, Protocol::Rpc);
        }
        *at
    }
}

struct Running {
    address: SocketAddrV4,
    remote: Remote,
    events: Receiver<String>,
    thread: JoinHandle<Counters>,
}

impl Running {
    fn start(
        options: Options,
        protocol: Protocol,
        connect: Option<(Address, Protocol)>,
    ) -> Running {
        let mut reactor = Reactor::new(options).unwrap();
        let (_, address) = reactor
            .listen(ANY_PORT, protocol, Audience::Clients, Door::Plain)
            .unwrap();
        let remote = reactor.remote();
        let (sender, events) = channel();
        let thread = std::thread::spawn(move || {
            reactor
                .run(&mut Echo {
                    events: sender,
                    connect,
                    again: None,
                })
                .unwrap();
            reactor.counters()
        });
        Running {
            address,
            remote,
            events,
            thread,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// From 127.0.0.`last`.
    fn connect_from(&self, last: u8) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0);
        socket.bind(&own.into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn expect(&self, event: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let got = self
                .events
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no event {event:?}"));
            if got.contains(event) {
                return;
            }
        }
    }

    fn stop(self) -> Counters {
        self.remote.stop();
        self.thread.join().unwrap()
    }
}

fn send(stream: &mut TcpStream, nonce: u64, payload: &[u8]) {
    let message = [&rpc::header(nonce, payload.len() as u32)[..], payload].concat();
    stream.write_all(&message).unwrap();
}

fn receive(stream: &mut TcpStream) -> (u64, Vec<u8>) {
    let mut header = [0; rpc::TRANSPORT_HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let mut payload = vec![0; u32::from_le_bytes(header[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut payload).unwrap();
    (u64::from_le_bytes(header[..8].try_into().unwrap()), payload)
}

fn frame(nonce: u64, payload: &[u8]) -> Vec<u8> {
    [&rpc::header(nonce, payload.len() as u32)[..], payload].concat()
}

fn limited(limits: Limits) -> Running {
    let options = Options {
        limits,
        ..Options::default()
    };
    Running::start(options, Protocol::Rpc, None)
}
