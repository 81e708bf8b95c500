//! The reactor with encrypted connections, against clients that know no more of it than the protocol.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::time::Time;
use rcbox_net::{
    Address, Audience, CloseReason, Door, Handler, Io, Limits, Options, Protocol, Reactor, Remote,
    Secure,
};
use tempfile::TempDir;
use test_certificates::{Authority, Span, USUAL, write};
use tls::{Admits, Channel, ChannelError, Guard};
use transport::rpc;

/// Far above what is typical.
const DEADLINE: Duration = Duration::from_secs(20);
const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
const COORDINATOR: &str = "rcbox://default/box/coordinator";
const MEMBER: &str = "rcbox://default/box/member/box-master-0";
const OPERATOR: &str = "rcbox://default/box/operator";

fn guard(folder: &Path) -> Arc<Guard> {
    Arc::new(Guard::open(folder).unwrap())
}

/// Answers every message with itself, and `who` with who has sent it. Says what it opens, and to whom, and what ends.
struct Echo {
    events: Sender<String>,
    dials: Option<(Address, Secure)>,
}

impl Handler for Echo {
    fn opened(&mut self, _now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        let peer = io.peer(connection).unwrap();
        let _ = self.events.send(format!("opened {}", peer));
        if listener.is_none() {
            io.send(connection, 1, &[b"who"]);
        }
    }
    fn frame(&mut self, _now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if payload == b"who" {
            let who = io.peer(connection).unwrap().to_string();
            io.send(connection, nonce, &[who.as_bytes()]);
        } else if payload.starts_with(b"rcbox:") {
            let _ = self
                .events
                .send(format!("answered {}", String::from_utf8_lossy(payload)));
        } else {
            io.send(connection, nonce, &[payload]);
        }
    }
    fn closed(&mut self, _now: Time, _connection: u64, reason: CloseReason, _io: &mut Io) {
        let _ = self.events.send(format!("closed: {reason}"));
    }
    fn woken(&mut self, _now: Time, io: &mut Io) {
        if let Some((address, secure)) = self.dials.take() {
            io.connect_securely(&address, Protocol::Rpc, secure);
        }
    }
    fn tick(&mut self, _now: Time, _io: &mut Io) -> Time {
        Time::NEVER
    }
}

struct Running {
    address: SocketAddrV4,
    remote: Remote,
    events: Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(door: Door, dials: Option<(Address, Secure)>) -> Running {
        let running = Running::start_with(Limits::default(), door, dials);
        running.remote.wake();
        running
    }

    /// It dials when it is woken.
    fn start_with(limits: Limits, door: Door, dials: Option<(Address, Secure)>) -> Running {
        let options = Options {
            limits,
            ..Options::default()
        };
        let mut reactor = Reactor::new(options).unwrap();
        let (_, address) = reactor
            .listen(ANY_PORT, Protocol::Rpc, Audience::Peers, door)
            .unwrap();
        let remote = reactor.remote();
        let (sender, events) = channel();
        let mut echo = Echo {
            events: sender,
            dials,
        };
        let thread = std::thread::spawn(move || reactor.run(&mut echo).unwrap());
        Running {
            address,
            remote,
            events,
            thread: Some(thread),
        }
    }

    fn plain(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn secure(&self, guard: &Guard, admits: Admits) -> Result<Client, ChannelError> {
        Client::over(self.plain(), guard.connect(admits)?)
    }

    fn event(&self, beginning: &str) -> String {
        let event = self.events.recv_timeout(DEADLINE).unwrap();
        assert!(event.starts_with(beginning), "'{event}', not '{beginning}'");
        event
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.remote.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// A client that waits.
struct Client {
    socket: TcpStream,
    channel: Channel,
    plain: Vec<u8>,
}

impl Client {
    fn over(socket: TcpStream, channel: Channel) -> Result<Client, ChannelError> {
        let mut client = Client {
            socket,
            channel,
            plain: Vec::new(),
        };
        while !client.channel.is_established() {
            client.flush();
            if client.read()? == 0 {
                return Err(ChannelError::NotTls);
            }
        }
        client.flush();
        Ok(client)
    }

    fn flush(&mut self) {
        let sealed = self.channel.sealed().len();
        // If the connection is gone, the next read says so.
        let _ = self.socket.write_all(self.channel.sealed());
        self.channel.sent(sealed);
    }

    /// How many bytes have come of the socket; 0 at its end.
    fn read(&mut self) -> Result<usize, ChannelError> {
        let mut scratch = vec![0; 200 << 10];
        let mut space = vec![0; 64 << 10];
        let begun = self.channel.begin(&mut scratch);
        let received = self.socket.read(&mut scratch[begun..begun + (32 << 10)]);
        let received = match received {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            received => received.expect("something comes, or the end"),
        };
        let opened = self
            .channel
            .open(&mut scratch[..begun + received], &mut space)?;
        self.plain.extend_from_slice(&space[..opened.bytes]);
        while self.channel.has_plain() {
            let taken = self.channel.take_plain(&mut space);
            self.plain.extend_from_slice(&space[..taken]);
        }
        Ok(if opened.is_end { 0 } else { received })
    }

    fn send(&mut self, nonce: u64, payload: &[u8]) {
        let header = rpc::header(nonce, payload.len() as u32);
        let message = [&header, payload].concat();
        let mut gone = 0;
        while gone < message.len() {
            let sealed = self
                .channel
                .seal(&[IoSlice::new(&message[gone..])], 1 << 20);
            gone += sealed.unwrap();
            self.flush();
        }
    }

    /// An answer; nothing at the end of the connection.
    fn receive(&mut self) -> Result<Option<(u64, Vec<u8>)>, ChannelError> {
        loop {
            if let Some((header, rest)) = self.plain.split_at_checked(12) {
                let (nonce, length) = header.split_at(8);
                let nonce = u64::from_le_bytes(nonce.try_into().unwrap());
                let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
                if rest.len() >= length {
                    let payload = rest[..length].to_vec();
                    self.plain.drain(..12 + length);
                    return Ok(Some((nonce, payload)));
                }
            }
            if self.read()? == 0 {
                return Ok(None);
            }
        }
    }

    fn ask(&mut self, nonce: u64, payload: &[u8]) -> Vec<u8> {
        self.send(nonce, payload);
        let (answered, payload) = self.receive().unwrap().unwrap();
        assert_eq!(answered, nonce);
        payload
    }
}

fn ask_plainly(stream: &mut TcpStream, payload: &[u8]) -> Vec<u8> {
    let header = rpc::header(7, payload.len() as u32);
    stream.write_all(&[&header, payload].concat()).unwrap();
    let mut answer = vec![0; 12 + payload.len()];
    stream.read_exact(&mut answer).unwrap();
    answer.split_off(12)
}

/// A coordinator's door for members, and a member's credentials.
struct Scene {
    authority: Authority,
    secure: Secure,
    member: Arc<Guard>,
    _folders: [TempDir; 2],
}

fn scene() -> Scene {
    let authority = Authority::new("one");
    let folders = [authority.folder(COORDINATOR), authority.folder(MEMBER)];
    let secure = Secure {
        guard: guard(folders[0].path()),
        admits: Admits::Members,
    };
    Scene {
        authority,
        secure,
        member: guard(folders[1].path()),
        _folders: folders,
    }
}

#[test]
fn messages_of_all_sizes_go_there_and_back() {
    let scene = scene();
    let running = Running::start(Door::Required(scene.secure), None);
    let mut client = running.secure(&scene.member, Admits::Coordinator).unwrap();
    assert!(client.ask(1, b"who").starts_with(MEMBER.as_bytes()));
    running.event("opened rcbox://default/box/member/box-master-0 at 127.0.0.1:");
    for nonce in 0..300 {
        client.send(nonce, format!("message {nonce}").as_bytes());
    }
    for nonce in 0..300 {
        let expected = format!("message {nonce}").into_bytes();
        assert_eq!(client.receive().unwrap(), Some((nonce, expected)));
    }
    let large: Vec<u8> = (0..5_000_000).map(|at| (at % 253) as u8).collect();
    assert!(client.ask(9, &large) == large);
    for bytes in [0, 1, 16_372, 16_384, 16_385, 65_536, 100_000] {
        assert!(client.ask(bytes as u64, &large[..bytes]) == large[..bytes]);
    }
}

#[test]
fn a_door_that_requires_encryption_lets_nobody_in_without() {
    let scene = scene();
    let running = Running::start(Door::Required(scene.secure.clone()), None);
    let mut plain = running.plain();
    let header = rpc::header(7, 5);
    plain.write_all(&[&header[..], b"hello"].concat()).unwrap();
    // An alert, and the end.
    let mut said = Vec::new();
    plain.read_to_end(&mut said).unwrap();
    assert!(said.len() < 20, "{said:?}");
    let foreign = Authority::new("foreign");
    let both = format!("{}{}", scene.authority.pem(), foreign.pem());
    for issued in [
        scene.authority.issue(&[OPERATOR], USUAL),
        scene
            .authority
            .issue(&["rcbox://default/other/member/box-master-0"], USUAL),
        foreign.issue(&[MEMBER], USUAL),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &both, &issued);
        let stranger = guard(folder.path());
        // The one who is refused learns of it with the first answer.
        let refused = match running.secure(&stranger, Admits::Coordinator) {
            Ok(mut client) => client.receive().unwrap_err(),
            Err(error) => error,
        };
        let text = refused.to_string();
        assert!(
            text.contains("refuses this process's certificate")
                || text.contains("does not count here"),
            "{text}"
        );
    }
    // None of them was open at any time, and the door still is.
    let mut client = running.secure(&scene.member, Admits::Coordinator).unwrap();
    assert_eq!(client.ask(1, b"still"), b"still");
    running.event("opened rcbox://default/box/member/box-master-0");
}

#[test]
fn a_mixed_door_takes_both() {
    let scene = scene();
    let running = Running::start(Door::Mixed(scene.secure.clone()), None);
    let mut silent = running.plain();
    let mut plain = running.plain();
    assert_eq!(ask_plainly(&mut plain, b"as it is"), b"as it is");
    running.event("opened 127.0.0.1:");
    let mut client = running.secure(&scene.member, Admits::Coordinator).unwrap();
    assert_eq!(client.ask(1, b"encrypted"), b"encrypted");
    running.event("opened rcbox://default/box/member/box-master-0");
    // The first byte alone says nothing yet.
    let message = [&rpc::header(22, 3)[..], b"abc"].concat();
    silent.write_all(&message[..1]).unwrap();
    silent.write_all(&message[1..]).unwrap();
    let mut answer = vec![0; message.len()];
    silent.read_exact(&mut answer).unwrap();
    assert_eq!(answer, message);
}

#[test]
fn each_side_is_told_whom_it_has_reached() {
    let scene = scene();
    let server = Running::start(Door::Required(scene.secure), None);
    let dial = |admits| {
        let address = Address::new("127.0.0.1", server.address.port());
        let guard = Arc::clone(&scene.member);
        Running::start(Door::Plain, Some((address, Secure { guard, admits })))
    };
    let client = dial(Admits::Coordinator);
    client.event("opened rcbox://default/box/coordinator at 127.0.0.1:");
    client.event("answered rcbox://default/box/member/box-master-0 at 127.0.0.1:");
    // It is the coordinator, and no member.
    let error = dial(Admits::Members).event("closed: no handshake: ");
    assert!(error.contains("rcbox://default/box/coordinator"), "{error}");
    // Nobody who speaks TLS is there.
    let plain = Running::start(Door::Plain, None);
    let address = Address::new("127.0.0.1", plain.address.port());
    let secure = Secure {
        guard: Arc::clone(&scene.member),
        admits: Admits::Coordinator,
    };
    let client = Running::start(Door::Plain, Some((address, secure)));
    // It takes the beginning for a message that has yet to come whole.
    client.event("closed: no handshake: ");
    drop(plain);
}

#[test]
fn a_connection_ends_with_its_certificate() {
    let scene = scene();
    let running = Running::start(Door::Required(scene.secure), None);
    let folder = tempfile::tempdir().unwrap();
    let span = Span {
        from: time::Duration::hours(-1),
        until: time::Duration::seconds(4),
    };
    let issued = scene.authority.issue(&[MEMBER], span);
    write(folder.path(), &scene.authority.pem(), &issued);
    let member = guard(folder.path());
    let mut client = running.secure(&member, Admits::Coordinator).unwrap();
    assert_eq!(client.ask(1, b"here"), b"here");
    running.event("opened");
    running.event("closed: the certificate of one side has ended");
    assert_eq!(client.receive().unwrap(), None);
}

#[test]
fn many_handshakes_at_a_time_are_all_made() {
    let scene = scene();
    let running = Running::start(Door::Required(scene.secure), None);
    let mut other = running.secure(&scene.member, Admits::Coordinator).unwrap();
    // Some never begin, and some end in the middle.
    let idle: Vec<TcpStream> = (0..100).map(|_| running.plain()).collect();
    for half in 0..100 {
        let channel = scene.member.connect(Admits::Coordinator).unwrap();
        let hello = channel.sealed();
        running
            .plain()
            .write_all(&hello[..hello.len().min(half * 3)])
            .unwrap();
    }
    let address = running.address;
    let clients: Vec<JoinHandle<()>> = (0..4u64)
        .map(|number| {
            let member = Arc::clone(&scene.member);
            std::thread::spawn(move || {
                for round in 0..25u64 {
                    let stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(DEADLINE)).unwrap();
                    let channel = member.connect(Admits::Coordinator).unwrap();
                    let mut client = Client::over(stream, channel).unwrap();
                    let text = format!("{number} {round}").into_bytes();
                    assert_eq!(client.ask(round, &text), text);
                }
            })
        })
        .collect();
    for nonce in 0..100 {
        assert_eq!(other.ask(nonce, b"meanwhile"), b"meanwhile");
    }
    for client in clients {
        client.join().unwrap();
    }
    drop(idle);
}

#[test]
fn strangers_take_only_places_of_their_own() {
    let scene = scene();
    let other = Running::start(Door::Required(scene.secure.clone()), None);
    let dials = Secure {
        guard: Arc::clone(&scene.member),
        admits: Admits::Coordinator,
    };
    let limits = Limits {
        handshakes: 8,
        ..Limits::default()
    };
    let address = Address::new("127.0.0.1", other.address.port());
    let door = Door::Required(scene.secure.clone());
    let running = Running::start_with(limits, door, Some((address, dials)));
    // One address has a quarter of them.
    let silent = [running.plain(), running.plain()];
    let mut third = running.plain();
    let end = third.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    // Connections that this side opens have places of their own.
    running.remote.wake();
    running.event("opened rcbox://default/box/coordinator");
    running.event("answered rcbox://default/box/member/box-master-0");
    // Places come back with the end of those who had them.
    drop(silent);
    let until = Instant::now() + DEADLINE;
    while let Err(error) = running.secure(&scene.member, Admits::Coordinator) {
        assert!(Instant::now() < until, "{error}");
    }
    running.event("opened rcbox://default/box/member/box-master-0");
}
