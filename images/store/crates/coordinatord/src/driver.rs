//! Between sockets, the state machine of the only coordinator of a store, and the thread that writes its state.
//!
//! All that one round has changed is noted with one write, and so is all that changes while a write is under way. The thread with the sockets never
//! waits for the disk: what shows nothing that is not noted leaves meanwhile, and the rest when the disk has it.

use std::sync::mpsc::Receiver;

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::Coordinator;
use coordinator::orders::{
    AcceptLossError, Acceptance, ControlOrder, Drain, DrainError, Finalize, FinalizeError,
    GiveUpMigrationError, MigrateError, MigrationOrder, Removal, RemoveMemberError, SettingsError,
    SettingsOrder, SplitOrder, SplitTableError, Surrender, SurrenderError, TableSplit,
};
use coordinator::outbox::Limits;
use coordinator::sole::{Sole, SoleEffect};
use coordinator::state::file::{FileKeeper, NoFile, Written};
use coordinator::status::{ClusterStatus, Draining, Event, Loss, Migration, TablePage};
use daemon::logging::{report, set_log_level};
use daemon::runtime::end_process;
use net::{CloseReason, Counters, Handler, Io};
use prost::Message;
use tokio::sync::oneshot;
use transport::session::{Closed, What};
use wire::member::Settings;

use super::connections::{MemberConnections, Told};
use super::controls::{self, Controls};
use super::onlookers::Onlookers;
use super::state_file::{StateFile, StateFileError, Stats};

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
    File {
        stats: Stats,
        file_bytes: u64,
    },
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
    SplitTable {
        order: SplitOrder,
        answer: oneshot::Sender<Result<TableSplit, SplitTableError>>,
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
        answer: controls::ControlReply,
    },
}

/// Why nothing can be noted any more.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    #[error("there is no file to write the coordinator's state to")]
    NoFile,
    /// As the state machine says it.
    #[error("{0}")]
    State(String),
}

impl From<NoFile> for DriverError {
    fn from(NoFile: NoFile) -> DriverError {
        DriverError::NoFile
    }
}

/// Where the coordinator's state is noted; `None`: nowhere.
pub type State = Option<(StateFile, FileKeeper)>;

/// To another thread, once all that it tells of is noted.
type Deferred = Box<dyn FnOnce() + Send>;

pub struct Driver {
    sole: Sole<Deferred>,
    /// `None`: the state is noted nowhere.
    file: Option<StateFile>,
    /// Once there is one.
    client_listener: Option<usize>,
    members: MemberConnections,
    inbox: Receiver<Question>,
    onlookers: Onlookers,
    controls: Controls,
}

impl Driver {
    pub fn new(coordinator: Coordinator, state: State, inbox: Receiver<Question>) -> Driver {
        let (file, keeper) = state.unzip();
        Driver {
            sole: Sole::new(coordinator, keeper, Limits::default()),
            file,
            client_listener: None,
            members: MemberConnections::default(),
            inbox,
            onlookers: Onlookers::default(),
            controls: Controls::default(),
        }
    }

    /// Notes that this process leads, and waits for that: before, no server may hear of it, so that nobody is let in.
    ///
    /// # Errors
    /// It cannot be noted.
    pub fn begin(&mut self, io: &mut Io) -> Result<(), DriverError> {
        loop {
            self.advance(net::now())?;
            self.carry_out(io)?;
            let Some(file) = &mut self.file else {
                return Ok(());
            };
            match file.wait()? {
                Some(written) => self.written(net::now(), written)?,
                None => return Ok(()),
            }
        }
    }

    /// Those who connect to this listener are clients.
    pub fn serve(&mut self, client_listener: usize) {
        self.client_listener = Some(client_listener);
    }

    /// Ends in good order: what is being written is on the disk then. Nothing that waits for more has left.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self) -> Result<(), StateFileError> {
        self.file.map_or(Ok(()), StateFile::finish)
    }

    /// Closes a connection on which something came that makes no sense, and ends its session.
    fn close_member(&mut self, now: Time, connection: u64, io: &mut Io) {
        let closed = self.members.closed(connection);
        io.close(connection);
        if let Closed::Interrupted(session) | Closed::Over(session) = closed {
            self.members.end(session, io);
            self.sole.member_closed(now, session);
        }
    }

    fn member_frame(&mut self, now: Time, connection: u64, payload: &[u8], io: &mut Io) {
        match self.members.hear(connection, payload, io) {
            Told::Message(session, message) => self.sole.member_message(now, session, *message),
            Told::Resumed(session) => self.sole.member_resumed(now, session),
            Told::Nothing => {}
            Told::Wrong(why) => {
                let from = self.members.from(connection);
                tracing::warn!("closed the member connection {from}: {why}");
                self.close_member(now, connection, io);
            }
        }
    }

    fn shown(&self, now: Time, counters: Counters) -> Shown {
        let keeping = match &self.file {
            None => Keeping::Nowhere,
            Some(file) => Keeping::File {
                stats: file.stats(),
                file_bytes: self.sole.file_bytes(),
            },
        };
        Shown {
            status: self.sole.status(now),
            counters,
            keeping,
        }
    }

    fn answer(&mut self, now: Time, question: Question, counters: Counters) {
        // Whoever asked may have given up: then nobody reads the answer.
        let answer: Deferred = match question {
            Question::Status(answer) => {
                let shown = self.shown(now, counters);
                Box::new(self.onlookers.add(answer, shown))
            }
            Question::Tables {
                after_table_id,
                page_size,
                answer,
            } => {
                let page = self.sole.coordinator().tables(after_table_id, page_size);
                Box::new(move || drop(answer.send(page)))
            }
            Question::Events(answer) => {
                let events = self.sole.coordinator().events(now);
                Box::new(move || drop(answer.send(events)))
            }
            Question::RemoveMember { removal, answer } => {
                let removed = self
                    .sole
                    .act(|coordinator, out| coordinator.remove_member(now, &removal, out));
                Box::new(move || drop(answer.send(removed)))
            }
            Question::DrainMember { drain, answer } => {
                let begun = self
                    .sole
                    .act(|coordinator, out| coordinator.drain_member(now, &drain, out));
                Box::new(move || drop(answer.send(begun)))
            }
            Question::UndrainMember { drain, answer } => {
                let ended = self
                    .sole
                    .act(|coordinator, out| coordinator.undrain_member(&drain, out));
                Box::new(move || drop(answer.send(ended)))
            }
            Question::AcceptLoss { acceptance, answer } => {
                let accepted = self
                    .sole
                    .act(|coordinator, out| coordinator.accept_loss(now, &acceptance, out));
                Box::new(move || drop(answer.send(accepted)))
            }
            Question::FinalizeUpgrade { finalize, answer } => {
                let finalized = self
                    .sole
                    .act(|coordinator, out| coordinator.finalize_upgrade(&finalize, out));
                Box::new(move || drop(answer.send(finalized)))
            }
            Question::SetSettings { order, answer } => {
                let set = self
                    .sole
                    .act(|coordinator, out| coordinator.set_settings(&order, out));
                Box::new(move || drop(answer.send(set)))
            }
            Question::MigrateTablet { order, answer } => {
                let begun = self
                    .sole
                    .act(|coordinator, out| coordinator.migrate_tablet(now, &order, out));
                Box::new(move || drop(answer.send(begun)))
            }
            Question::SplitTable { order, answer } => {
                let split = self
                    .sole
                    .act(|coordinator, out| coordinator.split_table(now, &order, out));
                Box::new(move || drop(answer.send(split)))
            }
            Question::GiveUpMigration {
                migration_id,
                expected_cluster_id,
                answer,
            } => {
                let given_up = self.sole.act(|coordinator, out| {
                    coordinator.give_up_migration(now, migration_id, expected_cluster_id, out)
                });
                Box::new(move || drop(answer.send(given_up)))
            }
            Question::Control { order, answer } => {
                let to = self.controls.next();
                // Shards answer later, and what they say changes nothing that is noted.
                let asked = self
                    .sole
                    .act(|coordinator, out| coordinator.control_shards(now, &order, to, out));
                return self.controls.begun(to, asked, answer);
            }
            Question::GiveUpVolumes { surrender, answer } => {
                let given_up = self
                    .sole
                    .act(|coordinator, _| coordinator.give_up_volumes(&surrender));
                Box::new(move || drop(answer.send(given_up)))
            }
        };
        self.sole.defer(answer);
    }

    /// Hears what came of writes, and does what is due. When to come again.
    fn advance(&mut self, now: Time) -> Result<Time, DriverError> {
        if let Some(file) = &mut self.file
            && let Some(written) = file.completed()?
        {
            self.written(now, written)?;
        }
        self.sole.tick(now).map_err(DriverError::State)
    }

    fn written(&mut self, now: Time, written: Written) -> Result<(), NoFile> {
        self.sole.written(now, written)
    }

    /// Does what the state machine says.
    fn carry_out(&mut self, io: &mut Io) -> Result<(), DriverError> {
        while let Some(effect) = self.sole.take_effect() {
            match effect {
                SoleEffect::Reply(to, payload) => {
                    if !self.controls.replied(to, &payload) {
                        io.send(to.connection, to.nonce, &[&payload]);
                    }
                }
                SoleEffect::SendMember(session, message) => {
                    let (what, encoded) = (What::of(&message), message.encode_to_vec());
                    self.members.say(session, what, encoded, io);
                }
                SoleEffect::CloseMember(session) => self.members.end(session, io),
                SoleEffect::Deferred(answer) => answer(),
                SoleEffect::Report(event) => report(event.level(), &event),
                SoleEffect::EndProcess => end_process(),
                SoleEffect::State(write) => self.file.as_mut().ok_or(NoFile)?.submit(write)?,
            }
        }
        Ok(())
    }

    /// What cannot be noted for long is shown all the same, with the reason.
    fn show_what_waits(&mut self, now: Time, counters: Counters) {
        let is_stuck = self.sole.wait(now).is_some();
        let mut onlookers = std::mem::take(&mut self.onlookers);
        onlookers.show(is_stuck, || Some(self.shown(now, counters)));
        self.onlookers = onlookers;
    }
}

/// What is noted is not known any more: nothing may be said that depends on it.
fn give_up(error: &DriverError) -> ! {
    tracing::error!("{error}");
    end_process()
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        if listener != self.client_listener {
            self.members.opened(now, connection, io.peer(connection));
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if !self.members.contains(connection) {
            self.sole
                .request(now, ReplyTo { connection, nonce }, payload);
        } else {
            self.member_frame(now, connection, payload, io);
        }
        if self.sole.is_round_long() {
            let ended = self.sole.end_round(now);
            let ended = ended.map_err(DriverError::State);
            let ended = ended.and_then(|()| self.carry_out(io));
            ended.unwrap_or_else(|error| give_up(&error));
        }
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, _io: &mut Io) {
        if !self.members.contains(connection) {
            return self.sole.connection_closed(connection);
        }
        match self.members.ended(connection, &reason) {
            Closed::Interrupted(session) => self.sole.member_interrupted(now, session),
            Closed::Over(session) => self.sole.member_closed(now, session),
            Closed::Nothing => {}
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
        let next = self.advance(now).and_then(|next| {
            self.carry_out(io)?;
            Ok(next)
        });
        let next = next.unwrap_or_else(|error| give_up(&error));
        self.show_what_waits(now, io.counters());
        set_log_level(self.sole.coordinator().settings().log_level);
        next.min(self.members.next_deadline())
    }
}
