//! The coordinator's side of all sessions.
//!
//! A session has the number of its first connection, whatever connections follow: that is how the coordinator knows it.

use core::fmt;
use core::num::NonZeroU64;
use std::collections::BTreeMap;

use prost::Message;
use wire::member::{Hello, Numbers, ToCoordinator, ToShard, coordinator, shard};

use super::numbered::Numbered;

/// Gives random numbers: whoever can guess a session's can take it over. Without one, a session ends with its connection.
pub type Tokens = Box<dyn FnMut() -> Option<NonZeroU64> + Send>;

/// What the coordinator says, as far as sessions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Messages have numbers from this one on.
    Welcome,
    /// It has none: one that is lost is not worth sending again.
    Ping,
    Other,
}

impl What {
    pub fn of(message: &ToShard) -> What {
        match &message.kind {
            Some(coordinator::Kind::Welcome(_)) => What::Welcome,
            Some(coordinator::Kind::Ping(_)) => What::Ping,
            _ => What::Other,
        }
    }
}

/// What a message on a connection means.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// It is for the coordinator, as of this session.
    Message(u64),
    /// The session goes on, on this connection: `messages` are to be sent on it, and `former` to be closed.
    Resumed {
        session: u64,
        messages: Vec<Vec<u8>>,
        former: Option<u64>,
    },
    /// It belongs to a session that is over.
    Nothing,
    /// It makes no sense: this connection and its session are over.
    Wrong,
}

/// What the end of a connection means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The session waits for another one.
    Interrupted(u64),
    Over(u64),
    /// It had none.
    Nothing,
}

/// All sessions of a coordinator.
pub struct Sessions {
    all: BTreeMap<u64, Session>,
    /// Which session a connection belongs to.
    by_connection: BTreeMap<u64, u64>,
    by_token: BTreeMap<u64, u64>,
    tokens: Tokens,
}

#[derive(Debug, Default)]
struct Session {
    /// 0 before the Welcome, and of builds that number nothing.
    token: u64,
    /// Who said Hello on it.
    shard: Option<Who>,
    connection: Option<u64>,
    numbered: Numbered,
}

/// A shard of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Who {
    member: String,
    instance: String,
    process: u64,
    shard_index: u32,
}

impl Who {
    fn of(hello: &Hello) -> Who {
        Who {
            member: hello.member.clone(),
            instance: hello.instance.clone(),
            process: hello.process,
            shard_index: hello.shard_index,
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("all", &self.all)
            .finish_non_exhaustive()
    }
}

fn numbered(numbers: Numbers) -> ToShard {
    ToShard {
        numbers: Some(numbers),
        ..ToShard::default()
    }
}

impl Sessions {
    pub fn new(tokens: Tokens) -> Sessions {
        Sessions {
            all: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            by_token: BTreeMap::new(),
            tokens,
        }
    }

    /// A message came on a connection.
    pub fn incoming(&mut self, connection: u64, message: &ToCoordinator) -> Incoming {
        let numbers = message.numbers.unwrap_or_default();
        let Some(&session) = self.by_connection.get(&connection) else {
            return self.first(connection, message, &numbers);
        };
        let Some(found) = self.all.get_mut(&session) else {
            return Incoming::Nothing;
        };
        // It may have been sent before the Welcome had come.
        if found.token == 0 || numbers.session == 0 && !found.numbered.has_heard() {
            return Incoming::Message(session);
        }
        match numbers.session == found.token && found.numbered.take(&numbers) {
            true => Incoming::Message(session),
            false => Incoming::Wrong,
        }
    }

    /// The coordinator says something on a session, encoded: what is to be sent, and where. `None`: it waits for the session's next connection, or
    /// the session is over.
    pub fn outgoing(
        &mut self,
        session: u64,
        what: What,
        mut encoded: Vec<u8>,
    ) -> Option<(u64, Vec<u8>)> {
        let found = self.all.get_mut(&session)?;
        if what == What::Welcome && found.shard.is_some() && found.token == 0 {
            found.token = (self.tokens)().map_or(0, NonZeroU64::get);
        }
        if found.token == 0 {
            return Some((found.connection?, encoded));
        }
        self.by_token.insert(found.token, session);
        let numbers = match what {
            What::Ping => found.numbered.unnumbered(found.token),
            What::Welcome | What::Other => found.numbered.next(found.token),
        };
        // One encoded message behind another is one with the fields of both.
        encoded.extend(numbered(numbers).encode_to_vec());
        if what != What::Ping {
            found.numbered.keep(encoded.clone());
        }
        Some((found.connection?, encoded))
    }

    /// A connection is gone.
    pub fn closed(&mut self, connection: u64) -> Closed {
        let Some(session) = self.by_connection.remove(&connection) else {
            return Closed::Nothing;
        };
        match self.all.get_mut(&session) {
            Some(found) if found.token != 0 => {
                found.connection = None;
                Closed::Interrupted(session)
            }
            _ => {
                self.end(session);
                Closed::Over(session)
            }
        }
    }

    /// The session is over: the connection that it has, to be closed.
    pub fn end(&mut self, session: u64) -> Option<u64> {
        let found = self.all.remove(&session)?;
        self.by_token.remove(&found.token);
        let connection = found.connection?;
        self.by_connection.remove(&connection);
        Some(connection)
    }

    /// The first message of a connection.
    fn first(&mut self, connection: u64, message: &ToCoordinator, numbers: &Numbers) -> Incoming {
        // A session keeps the number of its first connection, which it may have left.
        if self.all.contains_key(&connection) {
            return Incoming::Nothing;
        }
        let hello = match &message.kind {
            Some(shard::Kind::Hello(hello)) => Some(Who::of(hello)),
            _ => None,
        };
        if let Some(who) = &hello
            && let Some(resumed) = self.resume(connection, who, numbers)
        {
            return resumed;
        }
        let session = Session {
            // A build that knows numbers sends some, if only zeros.
            shard: hello.filter(|_| message.numbers.is_some()),
            connection: Some(connection),
            ..Session::default()
        };
        self.all.insert(connection, session);
        self.by_connection.insert(connection, connection);
        Incoming::Message(connection)
    }

    fn resume(&mut self, connection: u64, who: &Who, numbers: &Numbers) -> Option<Incoming> {
        let session = *self.by_token.get(&numbers.session)?;
        let found = self.all.get_mut(&session)?;
        if found.shard.as_ref() != Some(who) {
            return None;
        }
        let again = found.numbered.resume(numbers.heard)?;
        let goes_on = numbered(found.numbered.unnumbered(found.token));
        let former = found.connection.replace(connection);
        if let Some(former) = former {
            self.by_connection.remove(&former);
        }
        self.by_connection.insert(connection, session);
        let mut messages = vec![goes_on.encode_to_vec()];
        messages.extend(again);
        Some(Incoming::Resumed {
            session,
            messages,
            former,
        })
    }
}
