//! The target: it reads the tablet from its source, replays it, and makes it durable in its own log before it says that it has it.

use core::time::Duration;

use base::ids::{ServerId, TableId};
use base::time::Time;
use log::{Log, NoRoom};
use wire::member::{self, TabletRange, shard};
use wire::peer::{Migrating, Phase, Status};

use super::incoming::{Incoming, MEMORY_PAUSE, PAUSE, SourceState, Stage};
use super::{failed, send};
use crate::data::Store;
use crate::data::replay::ReplayError;
use crate::effects::ShardEffects;
use crate::movers::migration::Migrations;
use crate::movers::orders::may_bring_back;
use crate::movers::settling::Settling;
use crate::reports::{MigrationError, MigrationEvent, NoRoomHere};

/// Of the snapshot, in a second, where the order does not say.
const BYTES_PER_SECOND: u64 = 200_000_000;
/// A migration that takes nothing in for so long, or does not become durable once all was read, is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of an answer.
enum Taken {
    Yes,
    /// Memory has to be found first.
    NotYet,
    Failed(MigrationError),
}

impl Migrations {
    pub fn migrate_in(
        &mut self,
        store: &mut Store,
        now: Time,
        order: member::Migrate,
        is_taken: impl Fn(&TabletRange) -> bool,
        out: &mut impl ShardEffects,
    ) {
        let (id, tablet) = (order.migration_id, order.tablet);
        let incoming = self.incoming.as_ref();
        if self.committed == id || incoming.is_some_and(|incoming| incoming.id == id) {
            return;
        }
        if incoming.is_some() {
            return failed(id, MigrationError::TakesInAnother, out);
        }
        if let Err(conflict) = may_bring_back(store, &[tablet], is_taken) {
            return failed(id, conflict.into(), out);
        }
        store.raise_version_floor(order.version_floor);
        let source = ServerId(order.source);
        let event = MigrationEvent::TakingIn {
            migration: id,
            table_id: TableId(tablet.table_id),
            source,
        };
        out.report(event.into());
        self.incoming = Some(Incoming {
            id,
            tablet,
            source,
            locator: order.locator,
            bytes_per_second: match order.bytes_per_second {
                0 => BYTES_PER_SECOND,
                most => most,
            },
            stage: Stage::Waiting,
            link: SourceState::Down,
            last_nonce: 0,
            asked_until: None,
            piece: 0,
            freezes: false,
            rounds_with_little_left: 0,
            not_before: now,
            kept: None,
            began: now,
            took_in_at: now,
            bytes: 0,
        });
    }

    /// Nothing of the tablet stays here.
    pub(super) fn drop_incoming(&mut self, store: &mut Store, out: &mut impl ShardEffects) {
        let Some(mut incoming) = self.incoming.take() else {
            return;
        };
        incoming.disconnect(out);
        match incoming.stage {
            Stage::Waiting => {}
            Stage::Reading(replay) | Stage::Settling(replay, _) | Stage::Complete(replay) => {
                store.give_up_replay(replay);
            }
        }
    }

    fn fail_incoming(
        &mut self,
        store: &mut Store,
        error: MigrationError,
        out: &mut impl ShardEffects,
    ) {
        if let Some(incoming) = &self.incoming {
            failed(incoming.id, error, out);
            self.drop_incoming(store, out);
        }
    }

    /// Owns the tablet, which is complete.
    pub(super) fn commit_incoming(&mut self, store: &mut Store, out: &mut impl ShardEffects) {
        let Some(incoming) = self.incoming.take() else {
            return;
        };
        let Stage::Complete(replay) = incoming.stage else {
            unreachable!("only what is complete is committed");
        };
        store.commit_replay(&replay, &[incoming.tablet]);
        // Nobody will ever read the other log for what this one holds.
        store.log.release_source();
        self.committed = incoming.id;
        let migration = incoming.id;
        out.report(MigrationEvent::Served { migration }.into());
    }

    pub fn connected(&mut self, now: Time, source: ServerId) {
        if let Some(incoming) = self.incoming.as_mut()
            && incoming.source == source
            && incoming.link == SourceState::Connecting
        {
            incoming.link = SourceState::Up;
            incoming.not_before = now;
        }
    }

    pub fn disconnected(&mut self, now: Time, source: ServerId) {
        if let Some(incoming) = self.incoming.as_mut()
            && incoming.source == source
        {
            incoming.lose_link();
            incoming.not_before = incoming.not_before.max(now + PAUSE);
        }
    }

    pub fn answer(
        &mut self,
        store: &mut Store,
        now: Time,
        source: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        let Some(incoming) = self.incoming.as_mut() else {
            return;
        };
        let is_meant = incoming.source == source
            && incoming.last_nonce == nonce
            && incoming.asked_until.take().is_some();
        if is_meant {
            self.take_in(store, now, payload, out);
        }
    }

    fn take_in(
        &mut self,
        store: &mut Store,
        now: Time,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        match self.try_to_take_in(store, now, payload) {
            Taken::Yes => {}
            Taken::NotYet => {
                if let Some(incoming) = self.incoming.as_mut() {
                    incoming.kept = Some(payload.to_vec());
                }
            }
            Taken::Failed(error) => return self.fail_incoming(store, error, out),
        }
        self.tend_incoming(store, now, out);
    }

    fn try_to_take_in(&mut self, store: &mut Store, now: Time, payload: &[u8]) -> Taken {
        let Some(incoming) = self.incoming.as_mut() else {
            return Taken::Yes;
        };
        let Stage::Reading(replay) = &mut incoming.stage else {
            return Taken::Yes;
        };
        let answer = match Migrating::decode(payload) {
            Ok(answer) => answer,
            Err(error) => return Taken::Failed(MigrationError::Malformed(error)),
        };
        match answer.status {
            Status::Ok => {}
            // Who is told first nobody knows.
            Status::Missing if incoming.piece == 0 => {
                incoming.not_before = now + PAUSE;
                return Taken::Yes;
            }
            Status::Missing => return Taken::Failed(MigrationError::SourceGaveUp),
            status @ (Status::Fenced | Status::Full | Status::Retired | Status::Mismatch) => {
                return Taken::Failed(MigrationError::SourceRefuses(status));
            }
        }
        match store.replay(replay, answer.data) {
            Ok(()) => {}
            Err(ReplayError::NoRoom(NoRoom::Cleaning)) => return Taken::NotYet,
            Err(ReplayError::NoRoom(NoRoom::Full)) => {
                return Taken::Failed(MigrationError::NoRoom(NoRoomHere::Log));
            }
            Err(ReplayError::TableFull) => {
                return Taken::Failed(MigrationError::NoRoom(NoRoomHere::Tables));
            }
            Err(ReplayError::Damaged { error, .. }) => {
                return Taken::Failed(MigrationError::DamagedEntry(error));
            }
        }
        // Changes come in the order in which they were made.
        replay.forget_dead();
        if answer.phase == Phase::End {
            replay.note_versions(answer.next_version);
        }
        incoming.plan(now, &answer);
        if answer.phase == Phase::End {
            self.settle_incoming(store);
        }
        Taken::Yes
    }

    fn settle_incoming(&mut self, store: &mut Store) {
        if let Some(incoming) = self.incoming.as_mut() {
            match std::mem::replace(&mut incoming.stage, Stage::Waiting) {
                Stage::Reading(mut replay) => {
                    store.complete_replay(&mut replay);
                    let settling = Settling::new(&replay);
                    incoming.stage = Stage::Settling(replay, settling);
                }
                other => incoming.stage = other,
            }
        }
    }

    /// Says so where everything that a migration has brought is durable in this shard's own log.
    pub fn look_for_durable(&mut self, log: &Log, now: Time, out: &mut impl ShardEffects) {
        let Some(incoming) = self.incoming.as_mut() else {
            return;
        };
        match std::mem::replace(&mut incoming.stage, Stage::Waiting) {
            Stage::Settling(replay, settling) if settling.is_durable(log) => {
                let took = now.since(incoming.began);
                let migrated = member::Migrated {
                    migration_id: incoming.id,
                    from_segment: replay.from_segment(),
                    failure: String::new(),
                    is_full: false,
                    bytes: incoming.bytes,
                    objects: replay.stats().objects,
                    duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                };
                let event = MigrationEvent::TakenIn {
                    migration: migrated.migration_id,
                    bytes: migrated.bytes,
                    objects: migrated.objects,
                    took_ms: took.as_millis(),
                };
                out.report(event.into());
                send(shard::Kind::Migrated(migrated), out);
                incoming.stage = Stage::Complete(replay);
            }
            other => incoming.stage = other,
        }
    }

    /// Does what is due; when to come again though nothing happens.
    pub(super) fn tend_incoming(
        &mut self,
        store: &mut Store,
        now: Time,
        out: &mut impl ShardEffects,
    ) -> Time {
        self.begin_incoming(store, now, out);
        let kept = self.incoming.as_mut();
        if let Some(kept) = kept.and_then(|incoming| incoming.kept.take()) {
            match self.try_to_take_in(store, now, &kept) {
                Taken::Yes => {}
                Taken::NotYet => {
                    if let Some(incoming) = self.incoming.as_mut() {
                        incoming.kept = Some(kept);
                    }
                }
                Taken::Failed(error) => self.fail_incoming(store, error, out),
            }
        }
        let Some(incoming) = self.incoming.as_mut() else {
            return Time::NEVER;
        };
        let is_late = incoming.took_in_at + PATIENCE <= now;
        match incoming.stage {
            Stage::Waiting | Stage::Reading(_) if is_late => {
                let error = if incoming.kept.is_some() {
                    MigrationError::NoRoom(NoRoomHere::LogForLong)
                } else {
                    MigrationError::SourceSilent
                };
                self.fail_incoming(store, error, out);
                Time::NEVER
            }
            // Its writes wait for that.
            Stage::Settling(..) if is_late => {
                self.fail_incoming(store, MigrationError::NotDurable, out);
                Time::NEVER
            }
            Stage::Waiting => now + MEMORY_PAUSE,
            Stage::Reading(_) => incoming.ask(now, out),
            Stage::Settling(..) => {
                incoming.disconnect(out);
                incoming.took_in_at + PATIENCE
            }
            Stage::Complete(_) => {
                incoming.disconnect(out);
                Time::NEVER
            }
        }
    }

    /// Begins to replay, unless that has begun or something is in the way.
    fn begin_incoming(&mut self, store: &mut Store, now: Time, out: &mut impl ShardEffects) {
        let Some(incoming) = self.incoming.as_mut() else {
            return;
        };
        if !matches!(incoming.stage, Stage::Waiting) || store.is_purging(&incoming.tablet) {
            return;
        }
        match store.begin_replay(vec![incoming.tablet]) {
            Ok(replay) => {
                incoming.stage = Stage::Reading(replay);
                incoming.took_in_at = now;
            }
            Err(NoRoom::Cleaning) => {}
            Err(NoRoom::Full) => {
                self.fail_incoming(store, MigrationError::NoRoom(NoRoomHere::Log), out);
            }
        }
    }
}
