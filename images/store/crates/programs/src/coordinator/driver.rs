//! Between sockets and the coordinator's state machine.
//!
//! What the coordinator puts out waits until the end of the round, when all that the round has changed is noted with one commit:
//! nothing leaves that was not noted, and many requests share one write to the disk. The thread waits for the disk meanwhile. That is
//! simple and does no harm: changes are rare (a table, a server, a lease in half an hour), a round without changes waits for nothing,
//! and servers and clients go on without the coordinator.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::mpsc::Receiver;

use coordinator::orders::{
    AcceptLossError, Acceptance, ControlOrder, Drain, DrainError, Finalize, FinalizeError,
    GiveUpMigrationError, MigrateError, MigrationOrder, Removal, RemoveMemberError, SettingsError,
    SettingsOrder, Surrender, SurrenderError,
};
use coordinator::state::journal::Writer;
use coordinator::status::{ClusterStatus, Draining, Event, Loss, Migration, TablePage};
use coordinator::{Coordinator, Output};
use net::{CloseReason, Counters, Handler, Io};
use prost::Message;
use tokio::sync::oneshot;
use transport::session::{Closed, What};
use wire::ids::ReplyTo;
use wire::member::{Settings, ToShard};
use wire::time::Time;

use super::connections::{MemberConnections, Told, log_end};
use super::controls::{self, Controls};
use super::state_file::{Directory, StateFile, Stats};
use crate::logging::{log_message, set_log_level};
use crate::runtime::end_process;

/// More output than this does not wait for the end of the round.
const MAX_HELD_BYTES: usize = 1 << 20;

/// What a coordinator shows of itself.
pub struct Shown {
    pub status: ClusterStatus,
    /// Its reactor's.
    pub counters: Counters,
    pub keeping: Keeping,
}

/// How the state is kept.
pub enum Keeping {
    Nowhere,
    File(Stats),
    /// In objects of an API server, by the leader of this name.
    Objects(String),
}

/// What other threads ask.
pub enum Question {
    Status(oneshot::Sender<Shown>),
    Tables {
        after_table_id: u64,
        page_size: u32,
        answer: oneshot::Sender<TablePage>,
    },
    /// With cluster time.
    Events(oneshot::Sender<(u64, Vec<Event>)>),
    RemoveMember {
        removal: Removal,
        answer: oneshot::Sender<Result<(), RemoveMemberError>>,
    },
    DrainMember {
        drain: Drain,
        answer: oneshot::Sender<Result<Draining, DrainError>>,
    },
    UndrainMember {
        drain: Drain,
        answer: oneshot::Sender<Result<(), DrainError>>,
    },
    AcceptLoss {
        acceptance: Acceptance,
        answer: oneshot::Sender<Result<Loss, AcceptLossError>>,
    },
    FinalizeUpgrade {
        finalize: Finalize,
        /// The format in force.
        answer: oneshot::Sender<Result<u32, FinalizeError>>,
    },
    SetSettings {
        order: SettingsOrder,
        /// Those in force.
        answer: oneshot::Sender<Result<Settings, SettingsError>>,
    },
    MigrateTablet {
        order: MigrationOrder,
        answer: oneshot::Sender<Result<Migration, MigrateError>>,
    },
    GiveUpMigration {
        migration_id: u64,
        expected_cluster_id: u64,
        answer: oneshot::Sender<Result<(), GiveUpMigrationError>>,
    },
    GiveUpVolumes {
        surrender: Surrender,
        answer: oneshot::Sender<Result<(), SurrenderError>>,
    },
    Control {
        order: ControlOrder,
        answer: controls::Answer,
    },
}

/// Where the coordinator's state is noted.
pub enum State {
    Nowhere,
    File(StateFile),
    /// Here, once there is any: the store is being made again from volumes.
    Awaited(Directory),
}

pub struct Driver {
    coordinator: Coordinator,
    state: State,
    client_listener: usize,
    members: MemberConnections,
    inbox: Receiver<Question>,
    held: Held,
}

/// What waits until all that it may depend on is noted, in order.
#[derive(Default)]
struct Held {
    actions: Vec<Action>,
    /// Messages, one after the other.
    bytes: Vec<u8>,
    /// Member connections that will be closed: nothing that comes on them counts.
    closing: BTreeSet<u64>,
    controls: Controls,
}

enum Action {
    /// These of the held bytes.
    Reply(ReplyTo, Range<usize>),
    Say {
        session: u64,
        what: What,
        message: Range<usize>,
        /// It is to say what was noted when it leaves.
        wants_position: bool,
    },
    EndSession(u64),
    /// To another thread.
    Answer(Box<dyn FnOnce() + Send>),
}

impl Driver {
    pub fn new(
        coordinator: Coordinator,
        state: State,
        client_listener: usize,
        inbox: Receiver<Question>,
    ) -> Driver {
        Driver {
            coordinator,
            state,
            client_listener,
            members: MemberConnections::default(),
            inbox,
            held: Held::default(),
        }
    }

    /// The state machine, and what holds its output.
    fn split(&mut self) -> (&mut Coordinator, Actions<'_>) {
        let Driver {
            coordinator, held, ..
        } = self;
        (coordinator, Actions { held })
    }

    fn member_frame(&mut self, now: Time, connection: u64, payload: &[u8], io: &mut Io) {
        match self.members.hear(connection, payload, io) {
            Told::Message(session, _) if self.held.closing.contains(&session) => {}
            Told::Message(session, message) => {
                let (coordinator, mut out) = self.split();
                coordinator.member_message(now, session, message, &mut out);
            }
            Told::Resumed(session) => self.coordinator.member_resumed(now, session),
            Told::Nothing => {}
            Told::Wrong(why) => {
                tracing::warn!("closed a member connection: {why}");
                self.close_member(now, connection, io);
            }
        }
    }

    /// Closes a connection on which something came that makes no sense, and ends its session.
    fn close_member(&mut self, now: Time, connection: u64, io: &mut Io) {
        let closed = self.members.closed(connection);
        io.close(connection);
        if let Closed::Interrupted(session) | Closed::Over(session) = closed {
            self.members.end(session, io);
            let (coordinator, mut out) = self.split();
            coordinator.member_closed(now, session, &mut out);
        }
    }

    fn answer(&mut self, now: Time, question: Question, counters: Counters) {
        let keeping = match &self.state {
            State::File(state) => Keeping::File(state.stats()),
            State::Nowhere | State::Awaited(_) => Keeping::Nowhere,
        };
        let (coordinator, mut out) = self.split();
        // Whoever asked may have given up: then nobody reads the answer.
        let answer: Box<dyn FnOnce() + Send> = match question {
            Question::Status(answer) => {
                let shown = Shown {
                    status: coordinator.cluster_status(now),
                    counters,
                    keeping,
                };
                Box::new(move || drop(answer.send(shown)))
            }
            Question::Tables {
                after_table_id,
                page_size,
                answer,
            } => {
                let page = coordinator.tables(after_table_id, page_size);
                Box::new(move || drop(answer.send(page)))
            }
            Question::Events(answer) => {
                let events = coordinator.events(now);
                Box::new(move || drop(answer.send(events)))
            }
            Question::RemoveMember { removal, answer } => {
                let removed = coordinator.remove_member(now, &removal, &mut out);
                Box::new(move || drop(answer.send(removed)))
            }
            Question::DrainMember { drain, answer } => {
                let begun = coordinator.drain_member(now, &drain, &mut out);
                Box::new(move || drop(answer.send(begun)))
            }
            Question::UndrainMember { drain, answer } => {
                let ended = coordinator.undrain_member(&drain, &mut out);
                Box::new(move || drop(answer.send(ended)))
            }
            Question::AcceptLoss { acceptance, answer } => {
                let accepted = coordinator.accept_loss(now, &acceptance, &mut out);
                Box::new(move || drop(answer.send(accepted)))
            }
            Question::FinalizeUpgrade { finalize, answer } => {
                let finalized = coordinator.finalize_upgrade(&finalize, &mut out);
                Box::new(move || drop(answer.send(finalized)))
            }
            Question::SetSettings { order, answer } => {
                let set = coordinator.set_settings(&order, &mut out);
                Box::new(move || drop(answer.send(set)))
            }
            Question::MigrateTablet { order, answer } => {
                let begun = coordinator.migrate_tablet(now, &order, &mut out);
                Box::new(move || drop(answer.send(begun)))
            }
            Question::GiveUpMigration {
                migration_id,
                expected_cluster_id,
                answer,
            } => {
                let given_up =
                    coordinator.give_up_migration(now, migration_id, expected_cluster_id, &mut out);
                Box::new(move || drop(answer.send(given_up)))
            }
            Question::Control { order, answer } => {
                let to = out.held.controls.next();
                // Shards answer later, and what they say changes nothing that is noted.
                let asked = coordinator.control_shards(now, &order, to, &mut out);
                return out.held.controls.begun(to, asked, answer);
            }
            Question::GiveUpVolumes { surrender, answer } => {
                let given_up = coordinator.give_up_volumes(&surrender);
                Box::new(move || drop(answer.send(given_up)))
            }
        };
        self.held.actions.push(Action::Answer(answer));
    }

    /// If the store was made again: notes all of it, in the place that was kept for it.
    fn begin_state(&mut self, now: Time) {
        let is_awaited = matches!(self.state, State::Awaited(_));
        if !is_awaited || self.coordinator.is_rebuilding() {
            return;
        }
        if let State::Awaited(directory) = std::mem::replace(&mut self.state, State::Nowhere) {
            drop(self.coordinator.take_changes(now));
            let cluster_id = self.coordinator.cluster_status(now).cluster_id;
            let writer = Writer::new(cluster_id);
            match StateFile::create(directory, writer, self.coordinator.pairs()) {
                Ok(state) => {
                    self.coordinator.noted(state.sequence());
                    self.state = State::File(state);
                }
                Err(text) => give_up(&text),
            }
        }
    }

    /// Notes what has changed, and lets out what was waiting for that.
    fn release(&mut self, now: Time, io: &mut Io) {
        self.begin_state(now);
        let changes = self.coordinator.take_changes(now);
        if let State::File(state) = &mut self.state
            && !changes.is_empty()
        {
            if let Err(text) = state.commit(&changes) {
                give_up(&text);
            }
            self.coordinator.noted(state.sequence());
        }
        // One encoded message behind another is one with the fields of both.
        let position = ToShard {
            kind: None,
            position: self.coordinator.position(),
            numbers: None,
        }
        .encode_to_vec();
        let held = &mut self.held;
        for action in held.actions.drain(..) {
            match action {
                Action::Reply(to, payload) => {
                    io.send(to.connection, to.nonce, &[&held.bytes[payload]]);
                }
                Action::Say {
                    session,
                    what,
                    message,
                    wants_position,
                } => {
                    let position = if wants_position { &*position } else { &[] };
                    let encoded = [&held.bytes[message], position].concat();
                    self.members.say(session, what, encoded, io);
                }
                Action::EndSession(session) => self.members.end(session, io),
                Action::Answer(answer) => answer(),
            }
        }
        held.bytes.clear();
        held.bytes.shrink_to(MAX_HELD_BYTES);
        held.closing.clear();
        if let State::File(state) = &mut self.state
            && state.wants_snapshot()
            && let Err(text) = state.snapshot(self.coordinator.pairs())
        {
            give_up(&text);
        }
    }
}

/// What is noted is not known any more: nothing may be said that depends on it.
fn give_up(text: &str) -> ! {
    tracing::error!("{text}");
    end_process()
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, _io: &mut Io) {
        if listener != Some(self.client_listener) {
            self.members.opened(now, connection);
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if self.members.contains(connection) {
            self.member_frame(now, connection, payload, io);
        } else {
            let (coordinator, mut out) = self.split();
            coordinator.request(now, ReplyTo { connection, nonce }, payload, &mut out);
        }
        if self.held.bytes.len() > MAX_HELD_BYTES {
            self.release(now, io);
        }
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, _io: &mut Io) {
        if self.members.contains(connection) {
            log_end(reason);
            let closed = self.members.closed(connection);
            let (coordinator, mut out) = self.split();
            match closed {
                Closed::Interrupted(session) => {
                    coordinator.member_interrupted(now, session, &mut out);
                }
                Closed::Over(session) => coordinator.member_closed(now, session, &mut out),
                Closed::Nothing => {}
            }
        } else {
            self.coordinator.connection_closed(connection);
        }
    }

    fn woken(&mut self, now: Time, io: &mut Io) {
        while let Ok(question) = self.inbox.try_recv() {
            self.answer(now, question, io.counters());
        }
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        while let Some(connection) = self.members.take_overdue(now) {
            self.close_member(now, connection, io);
        }
        let next_stranger = self.members.next_deadline();
        let (coordinator, mut out) = self.split();
        let next = coordinator.tick(now, &mut out).min(next_stranger);
        self.release(now, io);
        set_log_level(self.coordinator.settings().log_level);
        next
    }
}

struct Actions<'a> {
    held: &'a mut Held,
}

impl Output for Actions<'_> {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        if self.held.controls.replied(to, payload) {
            return;
        }
        let start = self.held.bytes.len();
        self.held.bytes.extend_from_slice(payload);
        let payload = start..self.held.bytes.len();
        self.held.actions.push(Action::Reply(to, payload));
    }

    fn send_member(&mut self, connection: u64, message: ToShard) {
        let start = self.held.bytes.len();
        // A vector takes any message.
        if message.encode(&mut self.held.bytes).is_ok() {
            self.held.actions.push(Action::Say {
                session: connection,
                what: What::of(&message),
                message: start..self.held.bytes.len(),
                wants_position: message.wants_position(),
            });
        }
    }

    fn close_member(&mut self, connection: u64) {
        self.held.closing.insert(connection);
        self.held.actions.push(Action::EndSession(connection));
    }

    fn log_message(&mut self, level: u32, text: &str) {
        log_message(level, text);
    }

    fn end_process(&mut self) {
        end_process();
    }
}
