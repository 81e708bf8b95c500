//! What a coordinator puts out while its state is being noted: what may leave at once, and which commit the rest waits for.
//!
//! What is put out waits until the changes of its round are committed, and all changes before: what it shows may come of them. A round that changed
//! nothing, while nothing else waits, waits for nothing. Two kinds never wait:
//!
//! - Pings of members: these must not take a coordinator for dead that only cannot write. A ping carries the position that is known to be noted, and
//!   a cluster time below a bound that is noted. The bound is raised when half of it is used up, and nothing waits for that; while it cannot be
//!   raised, cluster time stands still below it, so that no lease ends for it.
//! - Replies that show nothing of the state, such as those to a client's PING.
//!
//! *What is bounded.* Beyond [`Limits::refuse_bytes`] or [`Limits::refuse_count`] of what waits, requests of clients are answered at once with RETRY
//! and a text that says why. Beyond four times as much (members may say things without end too) the owner must give up: see [`Outbox::is_overfull`].

mod effect;
mod held;
mod sink;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use base::ids::ReplyTo;
use base::time::Time;

use crate::Coordinator;
use crate::effects::retry_response;
use crate::root::shows_no_state;
pub use effect::Effect;
use held::Held;
pub use sink::Sink;

/// A commit that is under way for longer counts as stuck: the status is shown without waiting for it, and says so.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(2);

/// So much more may wait than what makes requests be refused.
const OVERFULL_FACTOR: usize = 4;

/// How much may wait before requests are refused.
#[derive(Clone, Debug)]
pub struct Limits {
    pub refuse_bytes: usize,
    pub refuse_count: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            refuse_bytes: 16 << 20,
            refuse_count: 50_000,
        }
    }
}

/// Changes on their way to the state.
#[derive(Debug)]
struct Commit {
    number: u64,
    since: Time,
    /// Outputs wait for it.
    is_awaited: bool,
    /// Of cluster time, as they say.
    time_bound_ns: u64,
}

/// See the module. `A` and `S` are those of [`Effect`].
#[derive(Debug)]
pub struct Outbox<A, S> {
    held: Held<A, S>,
    limits: Limits,
    /// What can leave.
    ready: VecDeque<Effect<A, S>>,
    /// Member connections that the coordinator has closed; the driver has yet to do so.
    closing: BTreeSet<u64>,
    /// Commits that are not noted yet.
    commits: VecDeque<Commit>,
    /// The last commit that effects wait for, and the last that is noted.
    awaited: u64,
    committed: u64,
    /// Nothing is noted any more, so that nothing waits.
    is_over: bool,
}

impl<A, S> Outbox<A, S> {
    pub fn new(limits: Limits) -> Outbox<A, S> {
        Outbox {
            held: Held::default(),
            limits,
            ready: VecDeque::new(),
            closing: BTreeSet::new(),
            commits: VecDeque::new(),
            awaited: 0,
            committed: 0,
            is_over: false,
        }
    }

    // ---- events ----

    /// Has the coordinator do something.
    pub fn act<T>(
        &mut self,
        coordinator: &mut Coordinator,
        act: impl FnOnce(&mut Coordinator, &mut Sink<'_, A, S>) -> T,
    ) -> T {
        act(coordinator, &mut self.sink(false))
    }

    /// Has the coordinator answer a client's request. If more waits than fits, `why` is told instead.
    pub fn request(
        &mut self,
        coordinator: &mut Coordinator,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        why: impl FnOnce() -> String,
    ) {
        let passes = shows_no_state(payload);
        if !passes && self.is_full(1) {
            let text = format!(
                "more waits for the coordinator's state than fits: {}",
                why()
            );
            return self.put(Effect::Reply(to, retry_response(&text)));
        }
        coordinator.request(now, to, payload, &mut self.sink(passes));
    }

    /// A client's connection is gone.
    pub fn forget(&mut self, connection: u64) {
        self.held.forget(connection);
    }

    /// A member's connection is gone, or the driver ends it. Whether the coordinator is to be told: it has not closed the connection itself.
    pub fn member_closed(&mut self, connection: u64) -> bool {
        self.held.forget(connection);
        !self.closing.remove(&connection)
    }

    /// The connection ends with the next effect for it: nothing that comes on it counts any more.
    pub fn is_closing(&self, connection: u64) -> bool {
        self.closing.contains(&connection)
    }

    /// Something of the driver's own that may show what the coordinator knows: comes out as [`Effect::Deferred`] once all that it may show is noted.
    pub fn defer(&mut self, answer: A) {
        self.sink(false).put(Effect::Deferred(answer));
    }

    /// Leaves at once.
    pub fn put(&mut self, effect: Effect<A, S>) {
        if let Effect::CloseMember(connection) = &effect {
            self.closing.insert(*connection);
        }
        self.ready.push_back(effect);
    }

    // ---- commits ----

    /// Changes of the coordinator that were just taken ([`Coordinator::take_changes_ahead`]) are on their way; numbers grow.
    pub fn begin_commit(
        &mut self,
        now: Time,
        number: u64,
        must_wait: bool,
        coordinator: &Coordinator,
    ) {
        let commit = Commit {
            number,
            since: now,
            // The first one notes that time is told at all.
            is_awaited: must_wait || self.committed == 0,
            time_bound_ns: coordinator.time_bound_ns(),
        };
        if commit.is_awaited {
            self.awaited = number;
        }
        self.commits.push_back(commit);
    }

    /// The round has ended, and its changes are on their way. Lets out what waits for nothing.
    pub fn end_round(&mut self, coordinator: &Coordinator) {
        self.held.end_round(self.awaited);
        self.release(coordinator);
    }

    /// This commit and all before are noted, and the coordinator's position is that of the newest.
    pub fn committed(&mut self, now: Time, number: u64, coordinator: &mut Coordinator) {
        assert!(number >= self.committed, "commits are noted in order");
        let count = self
            .commits
            .partition_point(|commit| commit.number <= number);
        if let Some(newest) = self.commits.drain(..count).next_back() {
            coordinator.time_is_noted(now, newest.time_bound_ns);
        }
        self.committed = number;
        self.release(coordinator);
    }

    /// Lets out what waits no more, with what is noted by now.
    fn release(&mut self, coordinator: &Coordinator) {
        let released = self.held.release(self.committed);
        self.ready.extend(released.map(|mut effect| {
            if let Effect::SendMember(_, message) = &mut effect {
                coordinator.sign(message);
            }
            effect
        }));
    }

    /// Nothing that waits will ever leave, and nothing waits any more.
    pub fn end(&mut self) {
        self.is_over = true;
        self.held.clear();
        self.commits.clear();
        // Those whose end was held, too.
        let closing = self.closing.iter().copied();
        self.ready.extend(closing.map(Effect::CloseMember));
    }

    // ---- what comes out, and what can be seen ----

    /// What comes next; `None`: nothing until the next event.
    pub fn take_effect(&mut self) -> Option<Effect<A, S>> {
        let effect = self.ready.pop_front()?;
        if let Effect::CloseMember(connection) = &effect {
            self.closing.remove(connection);
        }
        Some(effect)
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// More waits than a process should hold.
    pub fn is_overfull(&self) -> bool {
        self.is_full(OVERFULL_FACTOR)
    }

    /// For how long the oldest commit is under way that effects wait for, if that is long.
    pub fn stuck_for(&self, now: Time) -> Option<Duration> {
        let oldest = self.commits.iter().find(|commit| commit.is_awaited)?;
        Some(now.since(oldest.since)).filter(|waited| *waited >= STUCK_AFTER)
    }

    /// Whether something of earlier rounds waits.
    pub fn waits(&self) -> bool {
        self.held.waits()
    }

    /// How many effects wait.
    pub fn held_count(&self) -> usize {
        self.held.count()
    }

    /// How long they are.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    // ---- inside ----

    fn is_full(&self, factor: usize) -> bool {
        self.held.bytes() > factor * self.limits.refuse_bytes
            || self.held.count() > factor * self.limits.refuse_count
    }

    fn sink(&mut self, passes_replies: bool) -> Sink<'_, A, S> {
        Sink {
            held: &mut self.held,
            ready: &mut self.ready,
            closing: &mut self.closing,
            is_over: self.is_over,
            // Before the first commit, no cluster time that a ping could tell is noted.
            passes_pings: self.committed > 0,
            passes_replies,
        }
    }
}
