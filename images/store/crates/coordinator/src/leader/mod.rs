//! One leadership of a store whose state is in objects of an API server: the coordinator, the [`Keeper`] of its state, and what waits between them.
//!
//! A state machine without I/O. A driver that was elected makes a [`Leader`], hands in what happens, calls [`Leader::tick`] after each batch of
//! events and no later than it says, and carries out what [`Leader::take_effect`] gives, in that order:
//!
//! ```text
//! let mut leader = Leader::new(settings);
//! leader.start(now);
//! loop {
//!     while let Some(effect) = leader.take_effect() { carry_out(effect) }
//!     wait for an event or the time that tick gave: leader.answered, request, member_message, ... ; leader.tick(now)
//! }
//! ```
//!
//! Until [`News::Leads`] no client or member is to be let in, afterwards all are. [`News::Ended`] is the last effect.
//!
//! What the coordinator puts out waits as the [`crate::outbox`] says. If more waits than a process should hold, the leadership is given up: this
//! process is to start anew.

mod effect;
mod orders;

use core::time::Duration;

use base::ids::ReplyTo;
use base::time::Time;
use wire::member::coordinator::Kind;
use wire::member::{Hello, Refused, RefusedReason, ToCoordinator, ToShard, shard};

pub use crate::outbox::Limits;
use crate::outbox::{Outbox, STUCK_AFTER, Sink};
use crate::root::ending_of;
use crate::state::Pair;
use crate::state::objects::{self, Ending, Keeper, ObjectResponse, RequestId};
use crate::status::{ClusterStatus, StateWait};
use crate::{Config, Coordinator};
pub use effect::{LeaderEffect, News};

/// Cluster time is noted so far ahead where the API server may be away.
pub const TIME_AHEAD: Duration = Duration::from_secs(600);

const NOT_YET: &str = "this coordinator has not begun to lead: try again in a moment";

/// What a leader is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub keeper: objects::Settings,
    /// What of it is noted with the state (cluster id, tag) counts for a new store only. `time_ahead` should be [`TIME_AHEAD`].
    pub config: Config,
    pub limits: Limits,
}

/// One leadership.
#[derive(Debug)]
pub struct Leader<A> {
    keeper: Keeper,
    config: Config,
    /// From the moment on when the state is loaded.
    coordinator: Option<Coordinator>,
    outbox: Outbox<A, News>,
    rebuild: Rebuild,
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

impl<A> Leader<A> {
    pub fn new(settings: Settings) -> Leader<A> {
        Leader {
            keeper: Keeper::new(settings.keeper),
            config: settings.config,
            coordinator: None,
            outbox: Outbox::new(settings.limits),
            rebuild: Rebuild::No,
        }
    }

    // ---- events ----

    /// This process was elected. Once.
    pub fn start(&mut self, now: Time) {
        self.keeper.start(now);
        self.hear_keeper(now);
    }

    /// The response to a request. Exactly once for each; [`ObjectResponse::Failed`] if nothing came in time.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: ObjectResponse) {
        self.keeper.answered(now, id, answer);
        self.hear_keeper(now);
    }

    /// See [`Coordinator::request`].
    pub fn request(&mut self, now: Time, to: ReplyTo, payload: &[u8]) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let keeper = &self.keeper;
        self.outbox
            .request(coordinator, now, to, payload, || troubles_of(keeper, now));
    }

    /// A client's connection is gone. See [`Coordinator::connection_closed`].
    pub fn connection_closed(&mut self, connection: u64) {
        self.outbox.forget(connection);
        self.act(|coordinator, _| coordinator.connection_closed(connection));
    }

    /// See [`Coordinator::member_message`]. If a Hello tells of another leader, the root is looked at before anybody is let in.
    pub fn member_message(&mut self, now: Time, connection: u64, message: ToCoordinator) {
        if self.outbox.is_closing(connection) {
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
        if !self.outbox.is_closing(connection) {
            self.act(|coordinator, out| coordinator.member_interrupted(now, connection, out));
        }
    }

    /// See [`Coordinator::member_resumed`].
    pub fn member_resumed(&mut self, now: Time, connection: u64) {
        self.act(|coordinator, _| coordinator.member_resumed(now, connection));
    }

    /// A member's session is over, or the driver ends it. See [`Coordinator::member_closed`].
    pub fn member_closed(&mut self, now: Time, connection: u64) {
        if self.outbox.member_closed(connection) {
            self.act(|coordinator, out| coordinator.member_closed(now, connection, out));
        }
    }

    /// See [`Outbox::defer`].
    pub fn defer(&mut self, answer: A) {
        self.outbox.defer(answer);
    }

    /// Does what is due, and lets what has changed be noted. After every batch of events, and no later than at the time that it answers.
    pub fn tick(&mut self, now: Time) -> Time {
        if self.outbox.is_over() {
            return Time::NEVER;
        }
        let next = self.act(|coordinator, out| coordinator.tick(now, out));
        self.end_round(now);
        self.keeper.tick(now);
        self.hear_keeper(now);
        if self.outbox.is_overfull() {
            let why = troubles_of(&self.keeper, now);
            let text = format!(
                "more waits for the state to be noted than this process can hold: it is to start anew, as a standby ({why})"
            );
            self.end(Ending::Deposed, text);
        }
        next.unwrap_or(Time::NEVER).min(self.keeper.next_wake())
    }

    /// What comes next; `None`: nothing until the next event or tick.
    pub fn take_effect(&mut self) -> Option<LeaderEffect<A>> {
        self.outbox.take_effect()
    }

    // ---- what can be seen ----

    /// The state machine, once it leads, and after that has ended. What is read of it may not be noted yet: see [`Leader::defer`].
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    /// To be shown with [`Leader::defer`]; while [`ClusterStatus::state_wait`] is set, at once: then what it shows may not be noted, and nothing is
    /// to be done that relies on it.
    pub fn status(&self, now: Time) -> Option<ClusterStatus> {
        let status = self.coordinator.as_ref()?.cluster_status(now);
        Some(ClusterStatus {
            state_wait: self.wait(now),
            ..status
        })
    }

    /// What waits, if it has waited for long: since when, and why.
    pub fn wait(&self, now: Time) -> Option<StateWait> {
        let waited = match self.coordinator {
            Some(_) => self.outbox.stuck_for(now)?,
            None => {
                let since = self.keeper.troubles().first()?.since;
                Some(now.since(since)).filter(|waited| *waited >= STUCK_AFTER)?
            }
        };
        Some(StateWait {
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            why: troubles_of(&self.keeper, now),
            held: self.outbox.held_count() as u64,
        })
    }

    // ---- inside ----

    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, &mut Sink<'_, A, News>) -> T,
    ) -> Option<T> {
        Some(self.outbox.act(self.coordinator.as_mut()?, act))
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
        let message = LeaderEffect::SendMember(connection, ToShard::from(kind));
        self.outbox.put(message);
        self.outbox.put(LeaderEffect::CloseMember(connection));
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
            let number = self.keeper.commit(now, changes);
            self.outbox
                .begin_commit(now, number, must_wait, coordinator);
        }
        self.outbox.end_round(coordinator);
    }

    fn hear_keeper(&mut self, now: Time) {
        while let Some(effect) = self.keeper.take_effect() {
            match effect {
                objects::KeeperEffect::Request(id, request) => {
                    let request = News::Request(id, request);
                    self.outbox.put(LeaderEffect::State(request));
                }
                objects::KeeperEffect::Loaded { cluster_id, pairs } => {
                    self.loaded(now, cluster_id, pairs);
                }
                objects::KeeperEffect::Empty => self.begin_rebuild(now, false),
                objects::KeeperEffect::Committed(number) => self.committed(now, number),
                objects::KeeperEffect::Ended(ending, text) => self.end(ending, text),
            }
        }
    }

    /// Nothing is known of the store but what its volumes hold.
    fn begin_rebuild(&mut self, now: Time, has_root: bool) {
        let coordinator =
            Coordinator::rebuilding(self.config.clone(), self.keeper.nonce(), false, now);
        self.rebuild = Rebuild::Hears { has_root };
        self.coordinator = Some(coordinator);
        self.outbox.put(LeaderEffect::State(News::Leads {
            cluster_id: self.config.cluster_id,
            is_new: false,
        }));
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
            Err(error) => return self.end(ending_of(&error), error.to_string()),
        };
        if let Some(position) = self.keeper.position() {
            coordinator.lead_at(position);
        }
        if !is_new {
            coordinator.leave_ids_out(self.keeper.nonce());
        }
        self.coordinator = Some(coordinator);
        let leads = News::Leads { cluster_id, is_new };
        self.outbox.put(LeaderEffect::State(leads));
    }

    fn committed(&mut self, now: Time, number: u64) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if let Some(position) = self.keeper.position() {
            coordinator.lead_at(position);
        }
        self.outbox.committed(now, number, coordinator);
    }

    fn end(&mut self, ending: Ending, text: String) {
        if self.outbox.is_over() {
            return;
        }
        self.outbox.end();
        self.act(|coordinator, out| coordinator.refuse_to_lead(text.clone(), out));
        self.outbox
            .put(LeaderEffect::State(News::Ended(ending, text)));
    }
}

/// What keeps the state from being written, for people.
fn troubles_of(keeper: &Keeper, now: Time) -> String {
    let troubles = keeper.troubles();
    let why: Vec<String> = troubles.iter().map(|trouble| trouble.told(now)).collect();
    why.join("; ")
}
