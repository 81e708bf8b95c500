//! Connections of members, from the moment they are open.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use net::CloseReason;
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

    /// Something came on it.
    pub fn heard(&mut self, connection: u64) {
        self.strangers.remove(&connection);
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
