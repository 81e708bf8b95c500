//! Connections of members, from the moment they are open, and the sessions that go over them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use base::time::Time;
use daemon::random::random_u64;
use net::{CloseReason, Io, Peer};
use tls::Role;
use transport::session::{Closed, Incoming, Sessions, What};
use wire::cost::CostError;
use wire::member::{NoHello, ToCoordinator, shard};

/// A member connection that has not said who it is by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

pub struct MemberConnections {
    all: BTreeMap<u64, Option<Peer>>,
    /// Those of which nothing was heard yet, with the time by which it must be.
    strangers: BTreeMap<u64, Time>,
    sessions: Sessions,
}

/// What makes no sense on a connection.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    #[error("a message that cannot be read: {0}")]
    NoHello(#[from] NoHello),
    #[error("a message that cannot be read: {0}")]
    Unreadable(#[from] CostError),
    #[error("a message that is out of turn")]
    OutOfTurn,
    #[error("its certificate is not that of the member {0:?} for which it speaks")]
    OtherMember(String),
}

/// What came on a connection, for the coordinator.
pub enum Told {
    /// A message of this session.
    Message(u64, Box<ToCoordinator>),
    /// The session goes on, on another connection.
    Resumed(u64),
    Nothing,
    /// Nothing that comes on the connection counts any more, and it is to be closed.
    Wrong(Wrong),
}

impl Default for MemberConnections {
    fn default() -> MemberConnections {
        let tokens = || random_u64().ok().and_then(NonZeroU64::new);
        MemberConnections {
            all: BTreeMap::new(),
            strangers: BTreeMap::new(),
            sessions: Sessions::new(Box::new(tokens)),
        }
    }
}

impl MemberConnections {
    pub fn opened(&mut self, now: Time, connection: u64, peer: Option<Peer>) {
        self.all.insert(connection, peer);
        self.strangers.insert(connection, now + HELLO_TIMEOUT);
    }

    pub fn contains(&self, connection: u64) -> bool {
        self.all.contains_key(&connection)
    }

    /// Something came on a connection. What a session that goes on was not told before is sent once more.
    pub fn hear(&mut self, connection: u64, payload: &[u8], io: &mut Io) -> Told {
        let message = match self.decode(connection, payload) {
            Ok(message) => message,
            Err(wrong) => return Told::Wrong(wrong),
        };
        if let Some(shard::Kind::Hello(hello)) = &message.kind
            && !self.may_speak_for(connection, &hello.member)
        {
            return Told::Wrong(Wrong::OtherMember(hello.member.clone()));
        }
        match self.sessions.incoming(connection, &message) {
            Incoming::Message(session) => Told::Message(session, Box::new(message)),
            Incoming::Resumed {
                session,
                messages,
                former,
            } => {
                for message in messages {
                    io.send(connection, 0, &[&message]);
                }
                if let Some(former) = former {
                    self.remove(former);
                    io.close(former);
                }
                Told::Resumed(session)
            }
            Incoming::Nothing => Told::Nothing,
            Incoming::Wrong => Told::Wrong(Wrong::OutOfTurn),
        }
    }

    /// The coordinator says something on a session.
    pub fn say(&mut self, session: u64, what: What, encoded: Vec<u8>, io: &mut Io) {
        if let Some((connection, encoded)) = self.sessions.outgoing(session, what, encoded) {
            io.send(connection, 0, &[&encoded]);
        }
    }

    /// A connection has ended.
    pub fn ended(&mut self, connection: u64, reason: &CloseReason) -> Closed {
        let from = self.from(connection);
        match reason {
            // A member that ends in order is nothing to look at.
            CloseReason::EndOfStream => tracing::debug!("the member connection {from} ended"),
            reason => tracing::warn!("the member connection {from} ended: {reason}"),
        }
        self.closed(connection)
    }

    /// A connection has ended, or is about to be closed.
    pub fn closed(&mut self, connection: u64) -> Closed {
        self.remove(connection);
        self.sessions.closed(connection)
    }

    /// A session is over, and with it the connection that it has.
    pub fn end(&mut self, session: u64, io: &mut Io) {
        if let Some(connection) = self.sessions.end(session) {
            self.remove(connection);
            io.close(connection);
        }
    }

    /// Whether a connection is that of the member of this name: where it is encrypted, its certificate says so.
    fn may_speak_for(&self, connection: u64, member: &str) -> bool {
        let peer = self.all.get(&connection).and_then(Option::as_ref);
        match peer.and_then(|peer| peer.identity.as_ref()) {
            Some(identity) => identity.role == Role::Member(member.to_owned()),
            None => true,
        }
    }

    /// For people: where a connection came from.
    pub fn from(&self, connection: u64) -> String {
        let peer = self.all.get(&connection).and_then(Option::as_ref);
        peer.map_or_else(
            || "from an unknown address".to_owned(),
            |peer| format!("from {peer}"),
        )
    }

    /// Of one of which nothing was heard yet, a Hello alone.
    fn decode(&mut self, connection: u64, payload: &[u8]) -> Result<ToCoordinator, Wrong> {
        match self.strangers.remove(&connection) {
            Some(_) => Ok(ToCoordinator::decode_hello(payload)?),
            None => Ok(ToCoordinator::decode_bounded(payload)?),
        }
    }

    /// It is gone, or about to be closed.
    fn remove(&mut self, connection: u64) {
        self.strangers.remove(&connection);
        self.all.remove(&connection);
    }

    /// One that is to be closed, because it has not said who it is in time.
    pub fn take_overdue(&mut self, now: Time) -> Option<u64> {
        let mut strangers = self.strangers.iter();
        let (connection, _) = strangers.find(|(_, by)| now >= **by)?;
        let connection = *connection;
        tracing::warn!(
            "closed the member connection {}: it did not say who it is",
            self.from(connection)
        );
        self.remove(connection);
        Some(connection)
    }

    /// When the next one is overdue.
    pub fn next_deadline(&self) -> Time {
        let deadlines = self.strangers.values();
        deadlines.min().copied().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::member::{Hello, LogInventory, Pong, ReplicaFound};

    use super::*;

    #[test]
    fn a_stranger_says_who_it_is_before_anything_else_is_decoded() {
        let encoded = |kind| ToCoordinator::from(kind).encode_to_vec();
        let hello = encoded(shard::Kind::Hello(Hello::default()));
        let pong = encoded(shard::Kind::Pong(Pong::default()));
        let inventory = encoded(shard::Kind::LogInventory(LogInventory {
            log: 1,
            replicas: vec![ReplicaFound::default(); 1000],
        }));
        let mut members = MemberConnections::default();
        for connection in 1..=4 {
            members.opened(Time::ZERO, connection, None);
        }
        for (connection, first) in [(1, &pong), (2, &inventory), (3, &Vec::new())] {
            let refused = members.decode(connection, first).unwrap_err();
            assert!(matches!(refused, Wrong::NoHello(_)), "{refused}");
        }
        assert!(members.decode(4, &hello).is_ok());
        assert!(members.decode(4, &inventory).is_ok());
        let empty = [0x4a, 0x80, 0x80, 0x80, 8].iter().copied();
        let empty: Vec<u8> = empty.chain([0x12, 0].repeat(8 << 20)).collect();
        let refused = members.decode(4, &empty).unwrap_err();
        assert!(matches!(refused, Wrong::Unreadable(_)), "{refused}");
    }

    #[test]
    fn a_certificate_speaks_for_its_own_member_alone() {
        let mut members = MemberConnections::default();
        let address = "127.0.0.1:1".parse().unwrap();
        let of = |identity: Option<&str>| Peer {
            address,
            identity: identity.map(|uri| std::sync::Arc::new(uri.parse().unwrap())),
        };
        let uri = "rcbox://default/box/member/box-master-1";
        members.opened(Time::ZERO, 1, Some(of(Some(uri))));
        members.opened(Time::ZERO, 2, Some(of(None)));
        assert!(members.may_speak_for(1, "box-master-1"));
        assert!(!members.may_speak_for(1, "box-master-2"));
        assert!(members.may_speak_for(2, "box-master-2"));
    }
}
