//! Clients that have asked for a migration and wait for its end.

use core::time::Duration;

use base::ids::ReplyTo;
use base::time::Time;

use crate::continuations::table::Continuations;

/// Clients that wait; more are told to come again.
const MAX_WAITING: usize = 16;
/// Who has waited for so long asks again, and finds out how it stands.
const LONGEST: Duration = Duration::from_secs(600);

/// Clients that wait for the end of a migration.
pub(crate) struct AwaitedMigrations {
    /// Under the numbers that the coordinator was asked with.
    waiting: Continuations<(u64, ReplyTo)>,
    last_sequence: u64,
}

impl Default for AwaitedMigrations {
    fn default() -> Self {
        AwaitedMigrations {
            waiting: Continuations::at_most(MAX_WAITING),
            last_sequence: 0,
        }
    }
}

impl AwaitedMigrations {
    /// A client waits; the number is for the question to the coordinator. `None`: too many wait.
    pub fn wait(&mut self, now: Time, to: ReplyTo) -> Option<u64> {
        let sequence = self.last_sequence + 1;
        self.waiting.push(now + LONGEST, (sequence, to))?;
        self.last_sequence = sequence;
        Some(sequence)
    }

    /// The coordinator has answered: who waited for that.
    pub fn ended(&mut self, sequence: u64) -> Option<ReplyTo> {
        let at = self.waiting.position(|&(waits, _)| waits == sequence)?;
        Some(self.waiting.end(at).1)
    }

    pub fn end_all(&mut self) -> impl Iterator<Item = ReplyTo> + use<> {
        self.waiting.end_all().map(|(_, to)| to)
    }

    pub fn take_expired(&mut self, now: Time) -> Option<ReplyTo> {
        self.waiting.take_expired(now).map(|(_, to)| to)
    }

    pub fn next_deadline(&self) -> Time {
        self.waiting.next_deadline()
    }
}
