//! Answers of different lengths on one stream, on real sockets. Every wait is for a condition, with a deadline far above what is typical.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::time::Time;
use rcbox_net::{
    Audience, CloseReason, Door, Handler, Io, Limits, Loan, Options, Protocol, Reactor, Remote,
};
use transport::rpc;

const DEADLINE: Duration = Duration::from_secs(20);
const LONG_BYTES: usize = 1 << 20;

/// Answers a number with a megabyte that is lent under it, and anything else with itself.
struct Lending {
    memory: Vec<u8>,
    returned: Sender<u64>,
    /// The memory is gone.
    is_gone: bool,
}

impl Handler for Lending {
    fn opened(&mut self, _: Time, _: u64, _: Option<usize>, _: &mut Io) {}
    fn frame(&mut self, _: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        match payload.try_into().map(u64::from_le_bytes) {
            Ok(token) => {
                let length = LONG_BYTES;
                assert!(io.send_lent(connection, nonce, b"head", Loan { token, length }));
            }
            Err(_) if payload == b"recall" => {
                let memory = &self.memory;
                io.recall(|token| token < 100, &|_, _| Some(memory));
                io.send(connection, nonce, &[payload]);
            }
            Err(_) => {
                self.is_gone = payload == b"gone";
                io.send(connection, nonce, &[payload]);
            }
        }
    }
    fn lent(&self, _token: u64, length: usize) -> Option<&[u8]> {
        assert_eq!(length, self.memory.len());
        (!self.is_gone).then_some(&self.memory)
    }
    fn returned(&mut self, token: u64) {
        let _ = self.returned.send(token);
    }
    fn closed(&mut self, _: Time, _: u64, _: CloseReason, _: &mut Io) {}
    fn woken(&mut self, _: Time, _: &mut Io) {}
    fn tick(&mut self, _: Time, _: &mut Io) -> Time {
        Time::NEVER
    }
}

struct Running {
    stream: TcpStream,
    remote: Remote,
    returned: Receiver<u64>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> Running {
        let limits = Limits {
            throttle_bytes: 32 << 20,
            ..Limits::default()
        };
        let mut reactor = Reactor::new(Options {
            limits,
            ..Options::default()
        })
        .unwrap();
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let (_, address) = reactor
            .listen(any, Protocol::Rpc, Audience::Clients, Door::Plain)
            .unwrap();
        let (remote, (sender, returned)) = (reactor.remote(), channel());
        let thread = std::thread::spawn(move || {
            let mut handler = Lending {
                memory: (0..LONG_BYTES).map(|at| at as u8).collect(),
                returned: sender,
                is_gone: false,
            };
            reactor.run(&mut handler).unwrap();
        });
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Running {
            stream,
            remote,
            returned,
            thread,
        }
    }

    /// Sends requests in one piece, with numbers from `first` on.
    fn send(&mut self, first: u64, requests: &[&[u8]]) {
        let mut bytes = Vec::new();
        for (nonce, request) in (first..).zip(requests) {
            bytes.extend(rpc::header(nonce, request.len() as u32));
            bytes.extend_from_slice(request);
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// The number of the next answer, and its length. Contents are checked.
    fn receive(&mut self) -> (u64, usize) {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).unwrap();
        let nonce = u64::from_le_bytes(*header.first_chunk().unwrap());
        let length = u32::from_le_bytes(*header.last_chunk().unwrap()) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        if length >= LONG_BYTES {
            let value = payload.strip_prefix(b"head").unwrap();
            let is_right = value.iter().enumerate().all(|(at, byte)| *byte == at as u8);
            assert!(is_right, "an answer is mixed up");
        }
        (nonce, length)
    }

    fn end(self) -> Vec<u64> {
        self.remote.stop();
        self.thread.join().unwrap();
        self.returned.try_iter().collect()
    }
}

const LONG: (usize, usize) = (LONG_BYTES + 4, 5);

#[test]
fn short_answers_come_before_long_ones_that_have_not_begun() {
    let mut running = Running::start();
    let tokens: Vec<[u8; 8]> = (0..3_u64).map(u64::to_le_bytes).collect();
    running.send(1, &[&tokens[0], b"short", &tokens[1], b"brief", &tokens[2]]);
    let answers: Vec<_> = (0..5).map(|_| running.receive()).collect();
    let (long, short) = LONG;
    assert_eq!(
        answers,
        [(2, short), (4, short), (1, long), (3, long), (5, long)]
    );
    assert_eq!(running.end(), [0, 1, 2]);
}

#[test]
fn what_was_lent_is_given_back_when_it_is_recalled_and_when_the_peer_is_gone() {
    let mut running = Running::start();
    let tokens: Vec<[u8; 8]> = (98..114_u64).map(u64::to_le_bytes).collect();
    let requests: Vec<&[u8]> = tokens.iter().map(|token| &token[..]).collect();
    // More than the kernel takes while nobody reads; then all of what is lent below 100 is copied.
    running.send(1, &requests);
    running.send(101, &[b"recall"]);
    let first = [98, 99].map(|_| running.returned.recv_timeout(DEADLINE).unwrap());
    assert_eq!(first, [98, 99]);
    // Whichever comes first: the short one, if nothing long had begun.
    let (long, short) = LONG;
    let mut answers = [running.receive(), running.receive()];
    answers.sort_unstable();
    assert_eq!(answers, [(1, long), (101, short + 1)]);
    running.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let mut returned: Vec<u64> = (0..14)
        .map(|_| running.returned.recv_timeout(DEADLINE).unwrap())
        .collect();
    returned.sort_unstable();
    assert_eq!(returned, (100..114).collect::<Vec<_>>());
    assert!(running.end().is_empty());
}

#[test]
fn a_stream_whose_answer_is_gone_is_closed() {
    let mut running = Running::start();
    let token = 7_u64.to_le_bytes();
    running.send(1, &[&token, b"gone"]);
    // The short one comes first; of the long one, nothing.
    assert_eq!(running.receive(), (2, 4));
    let mut rest = Vec::new();
    let _ = running.stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{} bytes", rest.len());
    assert_eq!(running.returned.recv_timeout(DEADLINE), Ok(7));
    running.end();
}
