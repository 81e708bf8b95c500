//! Where to connect to, and finding out what a name means without stopping the loop.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;

/// Questions that may wait for an answer; more than that fail at once.
const MAX_QUESTIONS: usize = 256;

/// Host (IPv4 address or DNS name) and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl Address {
    pub fn new(host: impl Into<String>, port: u16) -> Address {
        Address {
            host: host.into(),
            port,
        }
    }

    /// The socket address, if the host is written as one.
    pub fn literal(&self) -> Option<SocketAddrV4> {
        Some(SocketAddrV4::new(
            self.host.parse::<Ipv4Addr>().ok()?,
            self.port,
        ))
    }

    /// The first IPv4 address that the host has. May block on DNS.
    pub fn resolve(&self) -> io::Result<SocketAddrV4> {
        if let Some(address) = self.literal() {
            return Ok(address);
        }
        let found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found
            .filter_map(|address| match address {
                SocketAddr::V4(address) => Some(address),
                SocketAddr::V6(_) => None,
            })
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no IPv4 address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

type Resolved = (u64, io::Result<SocketAddrV4>);

/// A thread that asks DNS, started at the first name.
pub(crate) struct Resolver {
    waker: Arc<Waker>,
    questions: Option<SyncSender<(u64, Address)>>,
    answers: Arc<Mutex<Vec<Resolved>>>,
}

impl Resolver {
    pub(crate) fn new(waker: Arc<Waker>) -> Resolver {
        Resolver {
            waker,
            questions: None,
            answers: Arc::default(),
        }
    }

    /// Asks; the answer is among [`Resolver::answers`] after a wake-up.
    pub(crate) fn ask(&mut self, connection: u64, address: Address) -> io::Result<()> {
        let questions = match &self.questions {
            Some(questions) => questions,
            None => {
                let (sender, receiver) = sync_channel(MAX_QUESTIONS);
                let (answers, waker) = (Arc::clone(&self.answers), Arc::clone(&self.waker));
                std::thread::Builder::new()
                    .name("resolver".to_owned())
                    .spawn(move || answer_all(&receiver, &answers, &waker))?;
                self.questions.insert(sender)
            }
        };
        questions
            .try_send((connection, address))
            .map_err(|error| match error {
                TrySendError::Full(_) => io::Error::other("too many names wait to be looked up"),
                TrySendError::Disconnected(_) => {
                    io::Error::other("the thread that looks up names has ended")
                }
            })
    }

    pub(crate) fn answers(&self) -> Vec<Resolved> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer_all(questions: &Receiver<(u64, Address)>, answers: &Mutex<Vec<Resolved>>, waker: &Waker) {
    while let Ok((connection, address)) = questions.recv() {
        let answer = address.resolve();
        answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((connection, answer));
        if waker.wake().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_need_no_lookup() {
        assert_eq!(
            Address::new("127.0.0.1", 7).literal(),
            Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7))
        );
        assert_eq!(Address::new("localhost", 7).literal(), None);
        assert_eq!(
            Address::new("localhost", 7).resolve().unwrap(),
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7)
        );
    }
}
