//! One leadership of a store whose state is in objects of an API server: the coordinator, the [`Keeper`] of its state, and what waits between them.
//!
//! A state machine without I/O. A driver that was elected makes a [`Leader`], hands in what happens, calls [`Leader::tick`] after each batch of events and no
//! later than it says, and carries out what [`Leader::take_output`] gives, in that order:
//!
//! ```text
//! let mut leader = Leader::new(settings);
//! leader.start(now);
//! loop {
//!     while let Some(output) = leader.take_output() { carry_out(output) }
//!     wait for an event or the time that tick gave: leader.answered, request, member_message, ... ; leader.tick(now)
//! }
//! ```
//!
//! Until [`Output::Leads`] no client or member is to be let in, afterwards all are. [`Output::Ended`] is the last output.
//!
//! *What waits.* What the coordinator puts out waits until the changes of its round are committed, and for all changes before: what it shows may come of them.
//! A round that changed nothing, while nothing else waits, waits for nothing. Pings never wait: members must not take a coordinator for dead that only cannot write;
//! they carry the position of the last root that is known to be written, and a cluster time below a bound that is noted. The bound is raised when half of it is
//! used up, and nothing waits for that; while it cannot be raised, cluster time stands still below it, so that no lease ends for it.
//!
//! *What is bounded.* Beyond [`Limits::refuse_bytes`] or [`Limits::refuse_count`] of what waits, requests of clients are answered at once with RETRY and a text
//! that says why. Beyond four times as much (members may say things without end too) the leadership is given up: this process is to start anew.

mod held;
mod orders;
mod output;
mod sink;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use wire::ids::ReplyTo;
use wire::member::coordinator::Kind;
use wire::member::{Hello, Refused, RefusedReason, ToCoordinator, ToShard, shard};
use wire::time::Time;

use crate::output::retry_response;
use crate::state::Pair;
use crate::state::objects::{self, Answer, Ending, Keeper, RequestId};
use crate::status::{ClusterStatus, StateWait};
use crate::{Config, Coordinator};
use held::Held;
pub use output::Output;
use sink::Sink;

/// Cluster time is noted so far ahead where the API server may be away.
pub const TIME_AHEAD: Duration = Duration::from_secs(600);

/// A commit that is under way for longer counts as stuck: the status is shown without waiting for it, and says so.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// So much more may wait than what makes requests be refused.
const GIVE_UP_FACTOR: usize = 4;

const NOT_YET: &str = "this coordinator has not begun to lead: try again in a moment";

/// What a leader is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub keeper: objects::Settings,
    /// What of it is noted with the state (cluster id, tag) counts for a new store only. `time_ahead` should be [`TIME_AHEAD`].
    pub config: Config,
    pub limits: Limits,
}

/// How much may wait before requests are refused; four times as much ends the leadership.
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

/// One leadership.
#[derive(Debug)]
pub struct Leader<A> {
    keeper: Keeper,
    config: Config,
    /// From the moment on when the state is loaded.
    coordinator: Option<Coordinator>,
    held: Held<A>,
    limits: Limits,
    /// What can leave.
    ready: VecDeque<Output<A>>,
    /// Member connections that the coordinator has closed; the driver has yet to do so.
    closing: BTreeSet<u64>,
    /// Commits that are not noted yet.
    commits: VecDeque<Commit>,
    /// The last commit that outputs wait for, and the last that is noted.
    awaited: u64,
    committed: u64,
    rebuild: Rebuild,
    is_over: bool,
}

/// How far it is with a store that is made again from volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rebuild {
    /// There is none, or all is committed.
    No,
    /// Volumes are heard.
    Hears { has_root: bool },
    /// The root is being written.
    Seeds,
    /// The next commit is of all that the store knows.
    Fills,
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

impl<A> Leader<A> {
    pub fn new(settings: Settings) -> Leader<A> {
        Leader {
            keeper: Keeper::new(settings.keeper),
            config: settings.config,
            coordinator: None,
            held: Held::default(),
            limits: settings.limits,
            ready: VecDeque::new(),
            closing: BTreeSet::new(),
            commits: VecDeque::new(),
            awaited: 0,
            committed: 0,
            rebuild: Rebuild::No,
            is_over: false,
        }
    }

    // ---- events ----

    /// This process was elected. Once.
    pub fn start(&mut self, now: Time) {
        self.keeper.start(now);
        self.hear_keeper(now);
    }

    /// What came of a request. Exactly once for each; [`Answer::Failed`] if nothing came in time.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: Answer) {
        self.keeper.answered(now, id, answer);
        self.hear_keeper(now);
    }

    /// See [`Coordinator::request`].
    pub fn request(&mut self, now: Time, to: ReplyTo, payload: &[u8]) {
        if self.is_full(1) {
            let why = self.wait(now).map_or_else(String::new, |wait| wait.why);
            let text = format!("more waits for the coordinator's state than fits: {why}");
            self.ready
                .push_back(Output::Reply(to, retry_response(&text)));
            return;
        }
        self.act(|coordinator, out| coordinator.request(now, to, payload, out));
    }

    /// A client's connection is gone. See [`Coordinator::connection_closed`].
    pub fn connection_closed(&mut self, connection: u64) {
        self.held.forget(connection);
        self.act(|coordinator, _| coordinator.connection_closed(connection));
    }

    /// See [`Coordinator::member_message`]. If a Hello tells of another leader, the root is looked at before anybody is let in.
    pub fn member_message(&mut self, now: Time, connection: u64, message: ToCoordinator) {
        if self.closing.contains(&connection) {
            return;
        }
        if let Some(shard::Kind::Hello(hello)) = &message.kind {
            self.heard_of(now, hello);
            if self.keeper.is_in_doubt() {
                return self.put_off(connection);
            }
        }
        self.act(|coordinator, out| coordinator.member_message(now, connection, message, out));
    }

    /// See [`Coordinator::member_interrupted`].
    pub fn member_interrupted(&mut self, now: Time, connection: u64) {
        if !self.closing.contains(&connection) {
            self.act(|coordinator, out| coordinator.member_interrupted(now, connection, out));
        }
    }

    /// See [`Coordinator::member_resumed`].
    pub fn member_resumed(&mut self, now: Time, connection: u64) {
        self.act(|coordinator, _| coordinator.member_resumed(now, connection));
    }

    /// A member's session is over, or the driver ends it. See [`Coordinator::member_closed`].
    pub fn member_closed(&mut self, now: Time, connection: u64) {
        self.held.forget(connection);
        if !self.closing.remove(&connection) {
            self.act(|coordinator, out| coordinator.member_closed(now, connection, out));
        }
    }

    /// Something of the driver's own that may show what the coordinator knows: comes out as [`Output::Deferred`] once all that it may show is noted.
    pub fn defer(&mut self, answer: A) {
        match self.is_over {
            true => self.ready.push_back(Output::Deferred(answer)),
            false => self.held.push(Output::Deferred(answer)),
        }
    }

    /// Does what is due, and lets what has changed be noted. After every batch of events, and no later than at the time that it answers.
    pub fn tick(&mut self, now: Time) -> Time {
        if self.is_over {
            return Time::NEVER;
        }
        let next = self.act(|coordinator, out| coordinator.tick(now, out));
        self.end_round(now);
        self.keeper.tick(now);
        self.hear_keeper(now);
        if self.is_full(GIVE_UP_FACTOR) {
            let why = self.wait(now).map_or_else(String::new, |wait| wait.why);
            let text = format!(
                "more waits for the state to be noted than this process can hold: it is to start anew, as a standby ({why})"
            );
            self.end(Ending::Deposed, text);
        }
        next.unwrap_or(Time::NEVER).min(self.keeper.next_wake())
    }

    /// What comes next; `None`: nothing until the next event or tick.
    pub fn take_output(&mut self) -> Option<Output<A>> {
        let output = self.ready.pop_front()?;
        if let Output::CloseMember(connection) = &output {
            self.closing.remove(connection);
        }
        Some(output)
    }

    // ---- what can be seen ----

    /// The state machine, once it leads, and after that has ended. What is read of it may not be noted yet: see [`Leader::defer`].
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    /// To be shown with [`Leader::defer`]; while [`ClusterStatus::state_wait`] is set, at once: then what it shows may not be noted, and nothing is to be
    /// done that relies on it.
    pub fn status(&self, now: Time) -> Option<ClusterStatus> {
        let status = self.coordinator.as_ref()?.cluster_status(now);
        Some(ClusterStatus {
            state_wait: self.wait(now),
            ..status
        })
    }

    /// What waits, if it has waited for long: since when, and why.
    pub fn wait(&self, now: Time) -> Option<StateWait> {
        let since = match self.coordinator {
            Some(_) => self.commits.iter().find(|commit| commit.is_awaited)?.since,
            None => self.keeper.troubles().first()?.since,
        };
        let waited = now.since(since);
        if waited < STUCK_AFTER {
            return None;
        }
        let troubles = self.keeper.troubles();
        let why: Vec<String> = troubles.iter().map(|trouble| trouble.told(now)).collect();
        Some(StateWait {
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            why: why.join("; "),
            held: self.held.count() as u64,
        })
    }

    // ---- inside ----

    fn is_full(&self, factor: usize) -> bool {
        self.held.bytes() > factor * self.limits.refuse_bytes
            || self.held.count() > factor * self.limits.refuse_count
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Coordinator, &mut Sink<'_, A>) -> T) -> Option<T> {
        let mut out = Sink {
            held: &mut self.held,
            ready: &mut self.ready,
            closing: &mut self.closing,
            is_over: self.is_over,
            // Before, no cluster time that a ping could tell is noted.
            passes_pings: self.committed > 0,
        };
        Some(act(self.coordinator.as_mut()?, &mut out))
    }

    fn heard_of(&mut self, now: Time, hello: &Hello) {
        let own = self.coordinator.as_ref();
        let own = own.map(|coordinator| coordinator.cluster_id());
        if let Some(heard) = hello.position
            && own == Some(hello.cluster_id)
            && !self
                .coordinator
                .as_ref()
                .is_some_and(|it| it.is_of_former_life(&heard))
        {
            self.keeper.heard_of(now, heard);
            self.hear_keeper(now);
        }
    }

    /// Nobody is let in before it is known whether this process still leads.
    fn put_off(&mut self, connection: u64) {
        let refused = Refused {
            reason: RefusedReason::LeaderInDoubt.into(),
            text: "the server knows of another leader than this coordinator, which looks whether it still leads: try again".to_owned(),
        };
        let kind = Kind::Refused(refused);
        let message = Output::SendMember(connection, ToShard::from(kind));
        self.closing.insert(connection);
        self.ready.push_back(message);
        self.ready.push_back(Output::CloseMember(connection));
    }

    /// Gives what has changed to the keeper; what was put out waits for it.
    fn end_round(&mut self, now: Time) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if let Rebuild::Hears { has_root } = self.rebuild
            && !coordinator.is_rebuilding()
        {
            self.rebuild = match has_root {
                true => Rebuild::Fills,
                false => Rebuild::Seeds,
            };
            match (self.keeper.position(), coordinator.position()) {
                (Some(position), _) if has_root => coordinator.lead_again_at(position),
                (_, Some(position)) => {
                    let cluster_id = coordinator.cluster_id();
                    let past = coordinator.past().to_vec();
                    self.keeper.seed(now, cluster_id, position, past);
                }
                (_, None) => {}
            }
        }
        if self.rebuild == Rebuild::Seeds {
            // What was put out meanwhile waits for the commit of everything.
            return;
        }
        let (mut changes, must_wait) = coordinator.take_changes_ahead(now);
        if self.rebuild == Rebuild::Fills {
            self.rebuild = Rebuild::No;
            changes.deletes.push(objects::SEED_MARK.to_vec());
        }
        if !changes.is_empty() {
            let commit = Commit {
                number: self.keeper.commit(now, changes),
                since: now,
                // The first one notes that time is told at all.
                is_awaited: must_wait || self.committed == 0,
                time_bound_ns: coordinator.time_bound_ns(),
            };
            if commit.is_awaited {
                self.awaited = commit.number;
            }
            self.commits.push_back(commit);
        }
        self.held.end_round(self.awaited);
        self.release();
    }

    /// Lets out what waits no more, with what is noted by now.
    fn release(&mut self) {
        let released = self.held.release(self.committed);
        let coordinator = self.coordinator.as_ref();
        self.ready.extend(released.map(|mut output| {
            if let (Output::SendMember(_, message), Some(coordinator)) = (&mut output, coordinator)
            {
                coordinator.sign(message);
            }
            output
        }));
    }

    fn hear_keeper(&mut self, now: Time) {
        while let Some(output) = self.keeper.take_output() {
            match output {
                objects::Output::Request(id, request) => {
                    self.ready.push_back(Output::Request(id, request));
                }
                objects::Output::Loaded { cluster_id, pairs } => {
                    self.loaded(now, cluster_id, pairs);
                }
                objects::Output::Empty => self.begin_rebuild(now, false),
                objects::Output::Committed(number) => self.committed(now, number),
                objects::Output::Ended(ending, text) => self.end(ending, text),
            }
        }
    }

    /// Nothing is known of the store but what its volumes hold.
    fn begin_rebuild(&mut self, now: Time, has_root: bool) {
        let coordinator =
            Coordinator::rebuilding(self.config.clone(), self.keeper.nonce(), false, now);
        self.rebuild = Rebuild::Hears { has_root };
        self.coordinator = Some(coordinator);
        self.ready.push_back(Output::Leads {
            cluster_id: self.config.cluster_id,
            is_new: false,
        });
    }

    fn loaded(&mut self, now: Time, cluster_id: u64, pairs: Vec<Pair>) {
        let config = Config {
            cluster_id,
            ..self.config.clone()
        };
        if self.rebuild == Rebuild::Seeds {
            self.rebuild = Rebuild::Fills;
            if let (Some(coordinator), Some(position)) =
                (&mut self.coordinator, self.keeper.position())
            {
                coordinator.lead_again_at(position);
            }
            return;
        }
        if pairs.iter().any(|pair| pair.key == objects::SEED_MARK) {
            return self.begin_rebuild(now, true);
        }
        let is_new = pairs.is_empty();
        let coordinator = match is_new {
            true => Ok(Coordinator::new(config, now)),
            false => Coordinator::restore(config, pairs, now),
        };
        let mut coordinator = match coordinator {
            Ok(coordinator) => coordinator,
            Err(error) => return self.end(error.ending(), error.to_string()),
        };
        if let Some(position) = self.keeper.position() {
            coordinator.lead_at(position);
        }
        if !is_new {
            coordinator.leave_ids_out(self.keeper.nonce());
        }
        self.coordinator = Some(coordinator);
        self.ready.push_back(Output::Leads { cluster_id, is_new });
    }

    fn committed(&mut self, now: Time, number: u64) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let count = self
            .commits
            .partition_point(|commit| commit.number <= number);
        if let Some(newest) = self.commits.drain(..count).next_back() {
            coordinator.time_is_noted(now, newest.time_bound_ns);
        }
        if let Some(position) = self.keeper.position() {
            coordinator.lead_at(position);
        }
        self.committed = number;
        self.release();
    }

    fn end(&mut self, ending: Ending, text: String) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.held.clear();
        self.commits.clear();
        // Those whose end was held, too.
        let closing = self.closing.iter().copied();
        self.ready.extend(closing.map(Output::CloseMember));
        self.act(|coordinator, out| coordinator.refuse_to_lead(text.clone(), out));
        self.ready.push_back(Output::Ended(ending, text));
    }
}
