//! Clients that have asked for a migration and wait for its end.

use core::time::Duration;

use wire::ids::ReplyTo;
use wire::time::Time;

use crate::continuations::table::Continuations;

/// Clients that wait; more are told to come again.
const MAX_WAITING: usize = 16;
/// Who has waited for so long asks again, and finds out how it stands.
const LONGEST: Duration = Duration::from_secs(600);

/// Clients that wait for the end of a migration.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Under the numbers that the coordinator was asked with.
    waiting: Continuations<(u64, ReplyTo)>,
    last_sequence: u64,
}

impl Wanted {
    pub fn is_full(&self) -> bool {
        self.waiting.iter().count() >= MAX_WAITING
    }

    /// A client waits; the number is for the question to the coordinator.
    pub fn wait(&mut self, now: Time, to: ReplyTo) -> u64 {
        self.last_sequence += 1;
        self.waiting.push(now + LONGEST, (self.last_sequence, to));
        self.last_sequence
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
