//! Messages that wait for a checkpoint, and the output that keeps them back.

use std::collections::{BTreeMap, VecDeque};

use base::ids::ReplyTo;
use base::time::Time;
use wire::member::{ToShard, coordinator};

use crate::effects::CoordinatorEffects;
use crate::reports::CoordinatorEvent;

#[derive(Debug)]
pub(super) struct Waiting {
    pub connection: u64,
    pub message: ToShard,
    /// What it waits for, once the round has ended in which it was said, and since when; `None`: for what is before it alone.
    pub needs: Option<(u64, Time)>,
    pub must_be_kept: bool,
}

/// Messages in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub waiting: VecDeque<Waiting>,
    /// Of how many each connection.
    pub connections: BTreeMap<u64, usize>,
}

/// Servers acknowledge, free or forget things after these that a store which is made from an older checkpoint would need, or not know of.
fn must_be_kept(message: &ToShard) -> bool {
    use coordinator::Kind;
    matches!(
        message.kind,
        Some(
            Kind::TakeTablet(_)
                | Kind::DropTablet(_)
                | Kind::OpenFloorRaised(_)
                | Kind::CommitRecovery(_)
                | Kind::SourcesReleased(_)
                | Kind::ForgetLogs(_)
                | Kind::CommitMigration(_)
        )
    )
}

/// These are about the session, or are what is waited for.
fn overtakes(message: &ToShard) -> bool {
    use coordinator::Kind;
    matches!(
        message.kind,
        Some(Kind::Ping(_) | Kind::Welcome(_) | Kind::Refused(_) | Kind::KeepCheckpoint(_))
    )
}

impl Queue {
    pub fn push(&mut self, connection: u64, message: ToShard) {
        *self.connections.entry(connection).or_default() += 1;
        self.waiting.push_back(Waiting {
            connection,
            must_be_kept: must_be_kept(&message),
            message,
            needs: None,
        });
    }

    /// Whether every message that waits is counted.
    pub fn is_counted(&self) -> bool {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for one in &self.waiting {
            *counts.entry(one.connection).or_default() += 1;
        }
        counts == self.connections
    }

    /// The connection has ended.
    pub fn forget(&mut self, connection: u64) {
        if self.connections.remove(&connection).is_some() {
            self.waiting
                .retain(|waiting| waiting.connection != connection);
        }
    }
}

/// Lets out what need not wait.
pub(crate) struct Gate<'a, O> {
    pub(super) out: &'a mut O,
    pub(super) queue: Queue,
    /// Whether anything waits at all.
    pub(super) is_on: bool,
}

impl<O: CoordinatorEffects> CoordinatorEffects for Gate<'_, O> {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        self.out.reply(to, payload);
    }

    fn send_member(&mut self, connection: u64, message: ToShard) {
        let waits = self.queue.connections.contains_key(&connection)
            || self.is_on && must_be_kept(&message);
        match waits && !overtakes(&message) {
            true => self.queue.push(connection, message),
            false => self.out.send_member(connection, message),
        }
    }

    fn close_member(&mut self, connection: u64) {
        self.queue.forget(connection);
        self.out.close_member(connection);
    }

    fn report(&mut self, event: CoordinatorEvent) {
        self.out.report(event);
    }

    fn end_process(&mut self) {
        self.out.end_process();
    }
}
