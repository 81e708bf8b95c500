//! Connections of members, from the moment they are open.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use net::CloseReason;
use wire::member::ToCoordinator;
use wire::time::Time;

/// A member connection that has not said who it is by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct MemberConnections {
    all: BTreeSet<u64>,
    /// Those of which nothing was heard yet, with the time by which it must be.
    strangers: BTreeMap<u64, Time>,
}

impl MemberConnections {
    pub fn opened(&mut self, now: Time, connection: u64) {
        self.all.insert(connection);
        self.strangers.insert(connection, now + HELLO_TIMEOUT);
    }

    pub fn contains(&self, connection: u64) -> bool {
        self.all.contains(&connection)
    }

    /// Decodes what came on it: of one of which nothing was heard yet, a Hello alone.
    ///
    /// # Errors
    /// Why the connection must be closed.
    pub fn decode(&mut self, connection: u64, payload: &[u8]) -> Result<ToCoordinator, String> {
        match self.strangers.remove(&connection) {
            Some(_) => ToCoordinator::decode_hello(payload).map_err(|error| error.to_string()),
            None => ToCoordinator::decode_bounded(payload).map_err(|error| error.to_string()),
        }
    }

    /// It is gone, or about to be closed.
    pub fn remove(&mut self, connection: u64) {
        self.strangers.remove(&connection);
        self.all.remove(&connection);
    }

    /// One that is to be closed, because it has not said who it is in time.
    pub fn take_overdue(&mut self, now: Time) -> Option<u64> {
        let mut strangers = self.strangers.iter();
        let (connection, _) = strangers.find(|(_, by)| now >= **by)?;
        let connection = *connection;
        tracing::warn!("closed a member connection that did not say who it is");
        self.remove(connection);
        Some(connection)
    }

    /// When the next one is overdue.
    pub fn next_deadline(&self) -> Time {
        let deadlines = self.strangers.values();
        deadlines.min().copied().unwrap_or(Time::NEVER)
    }
}

/// For the log: a member that ended in order is nothing to look at.
pub fn log_end(reason: CloseReason) {
    match reason {
        CloseReason::EndOfStream => tracing::debug!("a member connection ended"),
        reason => tracing::warn!("a member connection ended: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::member::{Hello, LogInventory, Pong, ReplicaFound, shard};

    use super::*;

    #[test]
    fn a_stranger_says_who_it_is_before_anything_else_is_decoded() {
        let encoded = |kind| ToCoordinator { kind: Some(kind) }.encode_to_vec();
        let hello = encoded(shard::Kind::Hello(Hello::default()));
        let pong = encoded(shard::Kind::Pong(Pong::default()));
        let inventory = encoded(shard::Kind::LogInventory(LogInventory {
            log: 1,
            replicas: vec![ReplicaFound::default(); 1000],
        }));
        let mut members = MemberConnections::default();
        for connection in 1..=4 {
            members.opened(Time::ZERO, connection);
        }
        for (connection, first) in [(1, &pong), (2, &inventory), (3, &Vec::new())] {
            let refused = members.decode(connection, first).unwrap_err();
            assert!(refused.contains("not a Hello"), "{refused}");
        }
        assert!(members.decode(4, &hello).is_ok());
        assert!(members.decode(4, &inventory).is_ok());
        let empty = [0x4a, 0x80, 0x80, 0x80, 8].iter().copied();
        let empty: Vec<u8> = empty.chain([0x12, 0].repeat(8 << 20)).collect();
        let refused = members.decode(4, &empty).unwrap_err();
        assert!(refused.contains("lists"), "{refused}");
    }
}
