//! The shard's side of a session.

use prost::Message;
use wire::member::{Numbers, ToCoordinator, ToShard, coordinator};

use super::numbered::Numbered;

/// What a message of the coordinator means for the session.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is to be obeyed.
    Message,
    /// It is to be obeyed; but before, the former session is to be given up: the coordinator does not know it.
    Anew,
    /// The session goes on: these messages are to be sent once more, and then all others.
    Resumed(Vec<Vec<u8>>),
    /// It makes no sense: the connection and the session are over.
    Wrong,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is none, or none that could go on.
    #[default]
    None,
    /// Messages go out on the present connection.
    Connected,
    /// Messages wait for a connection, and for what the coordinator says there.
    Interrupted,
}

/// The session of one shard with its coordinator.
#[derive(Debug, Default)]
pub struct ShardSession {
    token: u64,
    state: State,
    numbered: Numbered,
}

impl ShardSession {
    /// To be sent with the Hello on a new connection.
    pub fn hello(&self) -> Numbers {
        match self.state {
            State::None => Numbers::default(),
            State::Connected | State::Interrupted => self.numbered.unnumbered(self.token),
        }
    }

    /// Whether there is a session that waits for a connection.
    pub fn is_interrupted(&self) -> bool {
        self.state == State::Interrupted
    }

    /// A message for the coordinator, encoded; `None` if it has to wait for the next connection.
    pub fn send(&mut self, mut message: ToCoordinator) -> Option<Vec<u8>> {
        if self.state == State::None {
            return Some(message.encode_to_vec());
        }
        message.numbers = Some(self.numbered.next(self.token));
        let encoded = message.encode_to_vec();
        self.numbered.keep(encoded.clone());
        (self.state == State::Connected).then_some(encoded)
    }

    /// A message came from the coordinator, on the present connection.
    pub fn heard(&mut self, message: &ToShard) -> Heard {
        let numbers = message.numbers.unwrap_or_default();
        if let Some(coordinator::Kind::Welcome(_)) = &message.kind {
            return self.welcome(&numbers);
        }
        match self.state {
            State::None => Heard::Message,
            State::Connected => {
                match numbers.session == self.token && self.numbered.take(&numbers) {
                    true => Heard::Message,
                    false => Heard::Wrong,
                }
            }
            State::Interrupted => self.answer_to_hello(message, &numbers),
        }
    }

    /// A connection is gone, or could not be made. False if the session is over with it.
    pub fn disconnected(&mut self) -> bool {
        if self.state == State::None {
            return false;
        }
        self.state = State::Interrupted;
        true
    }

    /// The session is over: nothing was heard for too long, or what was heard ended it.
    pub fn end(&mut self) {
        *self = ShardSession::default();
    }

    fn welcome(&mut self, numbers: &Numbers) -> Heard {
        let was_interrupted = self.is_interrupted();
        self.end();
        if numbers.session != 0 {
            self.token = numbers.session;
            self.state = State::Connected;
            if !self.numbered.take(numbers) || numbers.number == 0 {
                self.end();
                return Heard::Wrong;
            }
        }
        match was_interrupted {
            true => Heard::Anew,
            false => Heard::Message,
        }
    }

    fn answer_to_hello(&mut self, message: &ToShard, numbers: &Numbers) -> Heard {
        let goes_on = message.kind.is_none() && numbers.session == self.token;
        let again = match goes_on {
            true => self.numbered.resume(numbers.heard),
            false => None,
        };
        match again {
            Some(again) => {
                self.state = State::Connected;
                Heard::Resumed(again)
            }
            None if goes_on => {
                self.end();
                Heard::Wrong
            }
            None => {
                self.end();
                Heard::Anew
            }
        }
    }
}
