//! The only coordinator of a store, whose state is in a file, or nowhere: the coordinator, the [`FileKeeper`] of its state, and what waits between
//! them.
//!
//! A state machine without I/O. A driver hands in what happens, calls [`Sole::tick`] after each batch of events and no later than it says, and
//! carries out what [`Sole::take_effect`] gives, in that order. What the coordinator puts out waits as the [`crate::outbox`] says, and the driver
//! never waits for the disk: it gives [`SoleEffect::State`] to whoever does, and goes on until [`Sole::written`] can be told.

use base::ids::ReplyTo;
use base::time::Time;
use wire::member::ToCoordinator;

use crate::outbox::{self, Limits, Outbox, Sink};
use crate::reports::StateEvent;
use crate::state::file::{FileKeeper, NoFile, Write, Written};
use crate::status::{ClusterStatus, StateWait};
use crate::{Coordinator, CoordinatorEffects as _};

/// What is told to the driver. `A` is its own, see [`Sole::defer`].
pub type SoleEffect<A> = outbox::Effect<A, Write>;

/// See the module.
#[derive(Debug)]
pub struct Sole<A> {
    coordinator: Coordinator,
    /// `None`: what is noted is nowhere, and that is done at once.
    keeper: Option<FileKeeper>,
    outbox: Outbox<A, Write>,
}

impl<A> Sole<A> {
    /// What the coordinator was made of, if of anything, is noted by the keeper.
    pub fn new(coordinator: Coordinator, keeper: Option<FileKeeper>, limits: Limits) -> Sole<A> {
        Sole {
            coordinator,
            keeper,
            outbox: Outbox::new(limits),
        }
    }

    // ---- events ----

    /// See [`Coordinator::request`].
    pub fn request(&mut self, now: Time, to: ReplyTo, payload: &[u8]) {
        self.outbox
            .request(&mut self.coordinator, now, to, payload, || WHY.to_owned());
    }

    /// A client's connection is gone. See [`Coordinator::connection_closed`].
    pub fn connection_closed(&mut self, connection: u64) {
        self.outbox.forget(connection);
        self.coordinator.connection_closed(connection);
    }

    /// See [`Coordinator::member_message`].
    pub fn member_message(&mut self, now: Time, connection: u64, message: ToCoordinator) {
        if !self.outbox.is_closing(connection) {
            self.act(|coordinator, out| coordinator.member_message(now, connection, message, out));
        }
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

    /// Has the coordinator do what somebody has ordered. The result is to be told with [`Sole::defer`].
    pub fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, &mut Sink<'_, A, Write>) -> T,
    ) -> T {
        self.outbox.act(&mut self.coordinator, act)
    }

    /// See [`Outbox::defer`].
    pub fn defer(&mut self, answer: A) {
        self.outbox.defer(answer);
    }

    /// Does what is due, and lets what has changed be noted. After every batch of events, and no later than at the time that it answers.
    ///
    /// # Errors
    /// The changes cannot be noted: nothing that depends on them may leave this process.
    pub fn tick(&mut self, now: Time) -> Result<Time, String> {
        let next = self.act(|coordinator, out| coordinator.tick(now, out));
        self.end_round(now)?;
        if self.outbox.is_overfull() {
            let event = StateEvent::Overfull { waits_for: WHY };
            self.act(|_, out| out.report(event.into()));
            self.outbox.put(SoleEffect::EndProcess);
        }
        Ok(next)
    }

    /// Lets what has changed be noted, in the middle of a batch of events: so that less waits.
    ///
    /// # Errors
    /// As for [`Sole::tick`].
    pub fn end_round(&mut self, now: Time) -> Result<(), String> {
        // A store that is being made again has no state before all of it is there.
        if let Some(keeper) = &mut self.keeper
            && !self.coordinator.is_rebuilding()
        {
            let (changes, must_wait) = self.coordinator.take_changes_ahead(now);
            if !changes.is_empty() {
                let number = keeper.commit(changes);
                self.outbox
                    .begin_commit(now, number, must_wait, &self.coordinator);
            }
        } else {
            drop(self.coordinator.take_changes(now));
        }
        self.outbox.end_round(&self.coordinator);
        self.write(now)
    }

    /// What came of the write that was given out last.
    ///
    /// # Errors
    /// There is no file, and none can be made.
    pub fn written(&mut self, now: Time, written: Written) -> Result<(), NoFile> {
        let Some(keeper) = &mut self.keeper else {
            return Ok(());
        };
        if let Some(number) = keeper.written(written)? {
            self.coordinator.noted(keeper.sequence());
            self.outbox.committed(now, number, &mut self.coordinator);
        }
        Ok(())
    }

    /// What comes next; `None`: nothing until the next event or tick.
    pub fn take_effect(&mut self) -> Option<SoleEffect<A>> {
        self.outbox.take_effect()
    }

    // ---- what can be seen ----

    /// What is read of it may not be noted yet: see [`Sole::defer`].
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// To be shown with [`Sole::defer`]; while [`ClusterStatus::state_wait`] is set, at once: then what it shows may not be noted, and nothing is to
    /// be done that relies on it.
    pub fn status(&self, now: Time) -> ClusterStatus {
        ClusterStatus {
            state_wait: self.wait(now),
            ..self.coordinator.cluster_status(now)
        }
    }

    /// What waits, if it has waited for long: since when, and why.
    pub fn wait(&self, now: Time) -> Option<StateWait> {
        let waited = self.outbox.stuck_for(now)?;
        Some(StateWait {
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            why: WHY.to_owned(),
            held: self.outbox.held_count() as u64,
        })
    }

    /// Much was put out since the last round, and could leave if this one ended.
    pub fn is_round_long(&self) -> bool {
        !self.outbox.waits() && self.outbox.held_bytes() > LONG_ROUND_BYTES
    }

    /// Length of the state's file; 0 if there is none.
    pub fn file_bytes(&self) -> u64 {
        self.keeper.as_ref().map_or(0, FileKeeper::file_bytes)
    }

    // ---- inside ----

    /// Gives the next write out, if none is under way.
    fn write(&mut self, now: Time) -> Result<(), String> {
        let Some(keeper) = &mut self.keeper else {
            return Ok(());
        };
        if let Some(write) =
            keeper.next_write(self.coordinator.cluster_id(), || self.coordinator.pairs())?
        {
            self.outbox.put(SoleEffect::State(write));
        }
        if let Some(number) = keeper.noted_too_early() {
            self.outbox.committed(now, number, &mut self.coordinator);
        }
        Ok(())
    }
}

/// More output than this does not wait for the end of a batch of events.
const LONG_ROUND_BYTES: usize = 1 << 20;

/// Why something waits, for people.
const WHY: &str = "the disk with the coordinator's state has not finished a write";
