//! One connection of the load: requests that go out together, and the answers that have to come.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::plan::{Case, KEY_BYTES, Random};
use crate::protocols::{Protocol, Session};

/// Before requests that were refused are sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

pub struct Connection {
    pub stream: TcpStream,
    session: Session,
    random: Random,
    request: Vec<u8>,
    keys: Vec<[u8; KEY_BYTES]>,
    buffer: Box<[u8]>,
    filled: usize,
    unanswered: usize,
    /// Some were answered: come again.
    is_refused: bool,
    sent_at: Instant,
}

impl Connection {
    pub fn open(protocol: &dyn Protocol, seed: u64) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(protocol.address())?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            session: protocol.session()?,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            request: Vec::new(),
            keys: Vec::new(),
            buffer: vec![0; 1 << 18].into(),
            filled: 0,
            unanswered: 0,
            is_refused: false,
            sent_at: Instant::now(),
        })
    }

    /// Sends as many requests as belong together.
    pub fn send(
        &mut self,
        protocol: &dyn Protocol,
        case: &Case,
        value: &[u8],
    ) -> Result<(), Failure> {
        self.request.clear();
        for _ in 0..case.depth {
            self.keys.clear();
            for _ in 0..case.batch {
                let key = self.random.key();
                self.keys.push(key);
            }
            let (session, keys) = (&mut self.session, &self.keys);
            protocol.request(session, case.operation, keys, value, &mut self.request);
        }
        self.unanswered = case.depth;
        self.filled = 0;
        self.sent_at = Instant::now();
        self.write_request()
    }

    /// Sends one request for given keys.
    pub fn send_one(
        &mut self,
        protocol: &dyn Protocol,
        case: &Case,
        key: [u8; KEY_BYTES],
        value: &[u8],
    ) -> Result<(), Failure> {
        self.request.clear();
        let session = &mut self.session;
        protocol.request(session, case.operation, &[key], value, &mut self.request);
        self.unanswered = 1;
        self.filled = 0;
        self.sent_at = Instant::now();
        self.write_request()
    }

    fn write_request(&mut self) -> Result<(), Failure> {
        let mut left = &self.request[..];
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what there is. True when the last answer has come.
    pub fn receive(&mut self, protocol: &dyn Protocol, case: &Case) -> Result<bool, Failure> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err("the peer closed the connection".into()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        while self.unanswered > 0 {
            let bytes = &self.buffer[at..self.filled];
            let refused = protocol.refusal(bytes);
            self.is_refused |= refused.is_some();
            let length = match refused {
                Some(length) => Some(length),
                None => protocol.answer(case.operation, case.batch, case.value_bytes, bytes)?,
            };
            match length {
                Some(length) => {
                    at += length;
                    self.unanswered -= 1;
                }
                None => break,
            }
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.unanswered > 0 {
            return Ok(false);
        }
        if std::mem::take(&mut self.is_refused) {
            // All of them once more: what is done already is not done again. The time goes on.
            std::thread::sleep(RETRY_PAUSE);
            self.unanswered = case.depth;
            self.write_request()?;
            return Ok(false);
        }
        self.session.all_answered();
        Ok(true)
    }

    pub fn nanos_since_sent(&self) -> u64 {
        self.sent_at.elapsed().as_nanos() as u64
    }
}
