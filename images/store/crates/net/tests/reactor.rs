//! The reactor against real sockets on loopback. Every wait is for a condition, with a deadline far above what is typical.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rcbox_net::{
    Address, Audience, CloseReason, Counters, Handler, Io, Limits, Options, Protocol, Reactor,
    Remote,
};
use socket2::{Domain, Socket, Type};
use transport::rpc;
use wire::time::Time;

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
            .listen(ANY_PORT, protocol, Audience::Clients)
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

#[test]
fn answers_carry_the_nonce_and_a_stream_of_requests_is_answered_in_full() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    for nonce in 0..500 {
        send(&mut stream, nonce, format!("message {nonce}").as_bytes());
    }
    for nonce in 0..500 {
        assert_eq!(
            receive(&mut stream),
            (nonce, format!("message {nonce}").into_bytes())
        );
    }
    let large: Vec<u8> = (0..5_000_000).map(|at| (at % 253) as u8).collect();
    send(&mut stream, 77, &large);
    let (nonce, payload) = receive(&mut stream);
    assert_eq!(nonce, 77);
    assert!(payload == large);
    send(&mut stream, 78, b"");
    assert_eq!(receive(&mut stream), (78, vec![]));
    let counters = running.stop();
    assert_eq!(
        (counters.frames_in, counters.frames_out, counters.accepted),
        (502, 502, 1)
    );
}

#[test]
fn a_connection_knows_who_is_at_its_other_end() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    for last in [1, 9] {
        let mut stream = running.connect_from(last);
        send(&mut stream, 1, b"who");
        let own = stream.local_addr().unwrap().to_string();
        assert_eq!(receive(&mut stream), (1, own.into_bytes()));
    }
    running.stop();
}

#[test]
fn a_close_lets_what_was_sent_before_through() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    send(&mut stream, 1, b"bye");
    assert_eq!(receive(&mut stream), (1, b"goodbye".to_vec()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    running.stop();
}

#[test]
fn a_peer_that_does_not_read_is_no_longer_read_and_loses_nothing() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    let mut other = running.connect();
    for nonce in 0..64 {
        send(&mut stream, nonce, b"big");
    }
    // The reactor holds a few of the 64 MiB and goes on with others.
    send(&mut other, 1, b"alive");
    assert_eq!(receive(&mut other), (1, b"alive".to_vec()));
    for nonce in 0..64 {
        let (got, payload) = receive(&mut stream);
        assert_eq!((got, payload.len()), (nonce, 1 << 20));
    }
    send(&mut stream, 64, b"again");
    assert_eq!(receive(&mut stream), (64, b"again".to_vec()));
    running.stop();
}

#[test]
fn a_connection_past_its_bound_of_output_is_closed() {
    let limits = Limits {
        throttle_bytes: 32 << 20,
        output_bytes: 8 << 20,
        ..Limits::default()
    };
    let running = Running::start(
        Options {
            limits,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    let mut stream = running.connect();
    for nonce in 0..64 {
        send(&mut stream, nonce, b"big");
    }
    running.expect("closed: the peer does not read");
    assert_eq!(running.stop().closed_by_bound, 1);
}

/// Of one address one long message arrives at a time where there is no room for two; others wait with the little that has come of theirs, and
/// arrive when it has.
#[test]
fn long_messages_of_one_address_arrive_one_after_the_other() {
    let running = limited(Limits {
        buffer_bytes: 12 << 20,
        ..Limits::default()
    });
    let mut streams: Vec<TcpStream> = (0..4).map(|_| running.connect()).collect();
    let message = vec![3; LONG_BYTES];
    let mut first = streams.remove(0);
    first
        .write_all(&rpc::header(1, message.len() as u32))
        .unwrap();
    first.write_all(&message[1..]).unwrap();
    // All have begun before the first one ends; the rest of each does not fit into sockets.
    for stream in &mut streams {
        let header = rpc::header(2, message.len() as u32);
        stream.write_all(&header).unwrap();
        stream.write_all(&message[..1]).unwrap();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                let rest = &message[1..];
                scope.spawn(move || {
                    stream.write_all(rest).unwrap();
                    assert_eq!(receive(stream).1, b"taken");
                })
            })
            .collect();
        // They wait for what nobody else has to wait for.
        let mut small = running.connect();
        for nonce in 0..100 {
            send(&mut small, nonce, b"small");
            assert_eq!(receive(&mut small), (nonce, b"small".to_vec()));
        }
        assert!(others.iter().all(|other| !other.is_finished()));
        first.write_all(&message[..1]).unwrap();
        assert_eq!(receive(&mut first).1, b"taken");
        for other in others {
            other.join().unwrap();
        }
    });
    let counters = running.stop();
    assert!(counters.messages_delayed >= 3, "{counters:?}");
    assert_eq!(counters.closed_by_bound, 0);
    assert!(counters.buffer_bytes <= 12 << 20);
}

/// Whoever waits and is gone is noticed: the kernel has told of its end while nothing was read from it, and does not tell again.
#[test]
fn connections_that_end_while_they_wait_hold_nobody_up() {
    let running = limited(Limits {
        buffer_bytes: 12 << 20,
        ..Limits::default()
    });
    let mut begun: Vec<TcpStream> = (0..100).map(|_| running.connect()).collect();
    for stream in &mut begun {
        stream
            .write_all(&rpc::header(1, LONG_BYTES as u32))
            .unwrap();
        stream.write_all(&[0; 3000]).unwrap();
    }
    // All of them have been looked at.
    let mut last = running.connect();
    send(&mut last, 1, b"small");
    assert_eq!(receive(&mut last).1, b"small");
    drop(begun);
    send(&mut last, 2, &vec![3; LONG_BYTES]);
    assert_eq!(receive(&mut last).1, b"taken");
    let counters = running.stop();
    assert_eq!(counters.closed_by_bound, 0, "{counters:?}");
}

/// Connections from many addresses that hold too much together: whoever has the most loses a connection, and another one is served.
#[test]
fn the_address_with_the_most_pays() {
    let running = limited(Limits {
        buffer_bytes: 16 << 20,
        ..Limits::default()
    });
    // 8 MiB each, of which the last byte never comes.
    let greedy: Vec<TcpStream> = (0..6)
        .map(|number| {
            let mut stream = running.connect_from(10 + number);
            stream.write_all(&rpc::header(1, 8 << 20)).unwrap();
            // It may be closed meanwhile.
            let _ = stream.write_all(&vec![0; (8 << 20) - 1]);
            stream
        })
        .collect();
    running.expect("closed: the buffers of all connections");
    let mut modest = running.connect_from(99);
    for nonce in 0..8 {
        send(&mut modest, nonce, &vec![1; 1 << 20]);
        assert_eq!(receive(&mut modest).1.len(), 1 << 20);
    }
    drop(greedy);
    let counters = running.stop();
    assert!(counters.buffer_bytes <= 16 << 20, "{counters:?}");
}

/// An address with more than its part of all connections makes room for others.
#[test]
fn one_address_does_not_keep_others_out() {
    let running = limited(Limits {
        connections: 8,
        ..Limits::default()
    });
    let mut crowd: Vec<TcpStream> = (0..8).map(|_| running.connect()).collect();
    for stream in &mut crowd {
        send(stream, 1, b"x");
        receive(stream);
    }
    let mut other = running.connect_from(99);
    send(&mut other, 2, b"x");
    assert_eq!(receive(&mut other).0, 2);
    running.expect("closed: it was silent for longest");
    running.stop();
}

/// Connections that once had a large message and now have none must not keep the memory from those that have one.
#[test]
fn idle_connections_give_their_buffers_back_when_memory_is_short() {
    let limits = Limits {
        buffer_bytes: 4 << 20,
        ..Limits::default()
    };
    let running = Running::start(
        Options {
            limits,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    let mut idle = Vec::new();
    for nonce in 0..12 {
        let mut stream = running.connect();
        send(&mut stream, nonce, &[0; 1 << 20]);
        assert_eq!(receive(&mut stream).0, nonce);
        idle.push(stream);
    }
    assert_eq!(running.stop().closed_by_bound, 0);
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

/// Output that was read by its peer is not held against the next, though nothing comes in meanwhile.
#[test]
fn drained_output_does_not_count() {
    let running = limited(Limits {
        buffer_bytes: 3 << 20,
        ..Limits::default()
    });
    let mut streams: Vec<TcpStream> = (0..8).map(|_| running.connect()).collect();
    for round in 0..3 {
        for stream in &mut streams {
            // Two at once, so that the second one has to wait in the buffer.
            stream.write_all(&frame(round, b"big")).unwrap();
            stream.write_all(&frame(round, b"big")).unwrap();
            assert_eq!(receive(stream).1.len(), 1 << 20);
            assert_eq!(receive(stream).1.len(), 1 << 20);
        }
    }
    assert_eq!(running.stop().closed_by_bound, 0);
}

/// Whoever holds little goes on while others fill the memory.
#[test]
fn the_largest_holder_pays() {
    let running = limited(Limits {
        buffer_bytes: 2 << 20,
        ..Limits::default()
    });
    let mut small = running.connect();
    let mut hog = running.connect();
    hog.write_all(&rpc::header(1, 8 << 20)).unwrap();
    for nonce in 0.. {
        let gone = hog.write_all(&[0; 64 << 10]).is_err();
        send(&mut small, nonce, &[1; 10_000]);
        assert_eq!(receive(&mut small).0, nonce);
        if gone {
            break;
        }
    }
    running.expect("closed: the buffers of all connections");
    assert_eq!(running.stop().closed_by_bound, 1);
}

#[test]
fn a_message_that_is_never_finished_ends_its_connection() {
    let running = limited(Limits {
        message_timeout: Duration::from_millis(300),
        ..Limits::default()
    });
    let mut slow = running.connect();
    let mut steady = running.connect();
    let message = frame(1, b"trickled");
    slow.write_all(&message[..15]).unwrap();
    let start = Instant::now();
    // Complete messages have all their time, one after the other.
    for nonce in 0.. {
        send(&mut steady, nonce, b"x");
        assert_eq!(receive(&mut steady).0, nonce);
        let event = running.events.try_recv();
        if event.is_ok_and(|event| event.contains("did not get complete")) {
            break;
        }
        assert!(start.elapsed() < DEADLINE);
    }
    assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(running.stop().closed_by_bound, 1);
}

/// Silent connections cannot keep others out for ever.
#[test]
fn the_one_that_was_silent_for_longest_makes_room() {
    let running = limited(Limits {
        connections: 2,
        idle_timeout: Duration::from_millis(50),
        ..Limits::default()
    });
    let (mut first, mut second) = (running.connect(), running.connect());
    for stream in [&mut first, &mut second] {
        send(stream, 1, b"x");
        receive(stream);
    }
    let start = Instant::now();
    let mut third = loop {
        // That one is heard of all the time.
        send(&mut first, 2, b"x");
        receive(&mut first);
        let mut third = running.connect();
        let is_served = third.write_all(&frame(3, b"x")).is_ok()
            && third.peek(&mut [0]).is_ok_and(|bytes| bytes == 1);
        if is_served {
            break third;
        }
        assert!(start.elapsed() < DEADLINE);
    };
    assert_eq!(receive(&mut third).0, 3);
    running.expect("closed: it was silent for longest");
    assert!(matches!(second.read(&mut [0]), Ok(0) | Err(_)));
    send(&mut first, 4, b"x");
    assert_eq!(receive(&mut first).0, 4);
    running.stop();
}

#[test]
fn more_connections_than_allowed_are_refused_and_places_become_free_again() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let running = Running::start(
        Options {
            limits,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    let mut first = running.connect();
    let mut second = running.connect();
    for stream in [&mut first, &mut second] {
        send(stream, 1, b"x");
        receive(stream);
    }
    let mut third = running.connect();
    assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
    drop(first);
    running.expect("closed: the peer closed");
    let mut fourth = running.connect();
    send(&mut fourth, 1, b"x");
    assert_eq!(receive(&mut fourth), (1, b"x".to_vec()));
    assert_eq!(running.stop().refused, 1);
}

#[test]
fn more_busy_connections_than_are_read_directly_are_all_served() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut streams: Vec<TcpStream> = (0..40).map(|_| running.connect()).collect();
    for round in 0..50 {
        for stream in &mut streams {
            send(stream, round, b"x");
        }
        for stream in &mut streams {
            assert_eq!(receive(stream).0, round);
        }
    }
    running.stop();
}

#[test]
fn connects_by_address_and_by_name_over_both_framings() {
    for protocol in [Protocol::Rpc, Protocol::Member] {
        let server = Running::start(Options::default(), protocol, None);
        for host in ["127.0.0.1", "localhost"] {
            let to = Address::new(host, server.address.port());
            let client = Running::start(Options::default(), Protocol::Rpc, Some((to, protocol)));
            client.remote.wake();
            client.expect("opened false");
            server.expect("hello");
            client.stop();
        }
        server.stop();
    }
}

#[test]
fn a_connect_that_fails_is_told() {
    let free = std::net::TcpListener::bind(ANY_PORT)
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for to in [
        Address::new("127.0.0.1", free),
        Address::new("no-such-host.invalid", 1),
    ] {
        let client = Running::start(Options::default(), Protocol::Rpc, Some((to, Protocol::Rpc)));
        client.remote.wake();
        client.expect("closed: cannot connect");
        client.stop();
    }
}

#[test]
fn garbage_on_a_member_listener_ends_that_connection_only() {
    let running = Running::start(Options::default(), Protocol::Member, None);
    let mut stream = running.connect();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    running.expect("closed: the peer does not speak the member protocol");
    let mut good = running.connect();
    good.write_all(&transport::member::preface()).unwrap();
    good.write_all(&[&transport::member::header(5)[..], b"hello"].concat())
        .unwrap();
    running.expect("hello");
    running.stop();
}

#[test]
fn an_idle_reactor_sleeps() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    let deadline = Instant::now() + DEADLINE;
    let mut nonce = 0;
    // How often it slept grows between requests that are far enough apart; in an endless spin it would stay 0.
    loop {
        nonce += 1;
        send(&mut stream, nonce, b"blocks");
        let (_, blocks) = receive(&mut stream);
        if u64::from_le_bytes(blocks.try_into().unwrap()) >= 3 {
            break;
        }
        assert!(Instant::now() < deadline, "it does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.stop();
}

#[test]
fn what_a_handler_plans_when_a_connection_ends_is_not_slept_through() {
    let reserved = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let to = Address::new("127.0.0.1", reserved.local_addr().unwrap().port());
    drop(reserved);
    let client = Running::start(Options::default(), Protocol::Rpc, Some((to, Protocol::Rpc)));
    client.remote.wake();
    for _ in 0..20 {
        client.expect("closed: cannot connect");
    }
    client.stop();
}

/// The last bytes and the end of a stream may come with one event, which epoll does not repeat.
#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let running = Running::start(
        Options {
            spin: Duration::ZERO,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    for _ in 0..20 {
        let mut stream = running.connect();
        stream.write_all(b"half").unwrap();
        drop(stream);
        running.expect("closed: the peer closed the connection");
    }
    running.stop();
}
