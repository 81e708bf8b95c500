//! The target: it reads the tablet from its source, replays it, and makes it durable in its own log before it says that it has it.

use core::time::Duration;

use log::NoRoom;
use wire::ids::{ServerId, TableId};
use wire::member::{self, TabletRange, shard};
use wire::peer::{MigrateRead, Migrating, Phase, Status};
use wire::time::Time;

use super::{failed, send};
use crate::output::{Channel, Output};
use crate::recovery::Failed;
use crate::replay::{Replay, ReplayError};
use crate::settling::Settling;
use crate::shard::Shard;

/// Bytes that are asked for at once.
const PIECE_BYTES: u32 = 256 << 10;
/// Of the snapshot, in a second, where the order does not say.
const BYTES_PER_SECOND: u64 = 200_000_000;
/// So little, and that twice in a row, is read while the tablet is frozen.
const FREEZE_BYTES: u64 = 64 << 10;
const FREEZE_ROUNDS: u32 = 2;
/// A migration that takes nothing in for so long, or does not become durable once all was read, is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that brings no answer for so long is made anew.
const SLOW: Duration = Duration::from_secs(3);
/// Between attempts to reach the source, or to find that it has heard of the migration.
const PAUSE: Duration = Duration::from_millis(10);
/// What found no memory is tried again after this.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// A tablet that is on its way here.
pub(super) struct Incoming {
    pub id: u64,
    pub tablet: TabletRange,
    source: ServerId,
    locator: String,
    bytes_per_second: u64,
    stage: Stage,
    link: Link,
    last_nonce: u64,
    /// Until when the answer to the last question is waited for.
    asked_until: Option<Time>,
    /// The piece that is to be asked for, or was.
    piece: u64,
    freezes: bool,
    rounds_with_little_left: u32,
    /// Nothing is asked before this.
    not_before: Time,
    /// An answer that found no memory.
    kept: Option<Vec<u8>>,
    began: Time,
    /// When something was taken in last; or when its rate lets it ask again, if that is later.
    took_in_at: Time,
    bytes: u64,
}

enum Stage {
    /// There is no memory yet, or something of the tablet is still here from before.
    Waiting,
    Reading(Replay),
    /// Everything was read.
    Settling(Replay, Settling),
    /// The coordinator knows that it is all here.
    Complete(Replay),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    Connecting,
    Up,
}

/// What becomes of an answer.
enum Taken {
    Yes,
    /// Memory has to be found first.
    NotYet,
    Failed(Failed),
}

impl Incoming {
    pub fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete(_))
    }

    pub fn settling(&mut self) -> Option<&mut Settling> {
        match &mut self.stage {
            Stage::Settling(_, settling) => Some(settling),
            _ => None,
        }
    }

    pub fn progress(&self) -> member::MigrationProgress {
        let objects = match &self.stage {
            Stage::Waiting => 0,
            Stage::Reading(replay) | Stage::Settling(replay, _) | Stage::Complete(replay) => {
                replay.stats().objects
            }
        };
        member::MigrationProgress {
            migration_id: self.id,
            bytes: self.bytes,
            objects,
            is_frozen: self.freezes,
        }
    }

    pub fn disconnect(&mut self, out: &mut impl Output) {
        if self.link != Link::Down {
            out.disconnect_backup(Channel::Migration, self.source);
        }
        self.lose_link();
    }

    fn lose_link(&mut self) {
        self.link = Link::Down;
        self.asked_until = None;
    }

    /// What an answer says about those that follow.
    fn plan(&mut self, now: Time, answer: &Migrating<'_>) {
        self.piece += 1;
        self.took_in_at = now;
        self.bytes += answer.data.len() as u64;
        match answer.phase {
            Phase::Snapshot => {
                let ns = answer.data.len() as u64 * 1_000_000_000 / self.bytes_per_second;
                self.not_before = self.not_before.max(now) + Duration::from_nanos(ns);
                self.took_in_at = self.not_before;
            }
            Phase::Changes if answer.left_bytes < FREEZE_BYTES => {
                self.rounds_with_little_left += 1;
                self.freezes |= self.rounds_with_little_left >= FREEZE_ROUNDS;
            }
            Phase::Changes | Phase::End => self.rounds_with_little_left = 0,
        }
    }

    /// Asks for the next piece, if that is due. When to come again.
    fn ask(&mut self, now: Time, out: &mut impl Output) -> Time {
        if self.kept.is_some() {
            return now + MEMORY_PAUSE;
        }
        if let Some(until) = self.asked_until {
            if now < until {
                return until;
            }
            self.disconnect(out);
        }
        if now < self.not_before {
            return self.not_before;
        }
        match self.link {
            Link::Connecting => {}
            Link::Down => {
                self.link = Link::Connecting;
                self.not_before = now + PAUSE;
                out.connect_backup(Channel::Migration, self.source, &self.locator);
            }
            Link::Up => {
                self.last_nonce += 1;
                self.asked_until = Some(now + SLOW);
                let read = MigrateRead {
                    migration_id: self.id,
                    piece: self.piece,
                    bytes: PIECE_BYTES,
                    freezes: self.freezes,
                };
                let (channel, nonce) = (Channel::Migration, self.last_nonce);
                out.send_backup(channel, self.source, nonce, &[&read.to_bytes()]);
            }
        }
        now + SLOW
    }
}

impl Shard {
    pub(crate) fn migrate_in(&mut self, now: Time, order: member::Migrate, out: &mut impl Output) {
        let (id, tablet) = (order.migration_id, order.tablet);
        let incoming = self.migrations.incoming.as_ref();
        if self.migrations.committed == id || incoming.is_some_and(|incoming| incoming.id == id) {
            return;
        }
        let may = if incoming.is_some() {
            Err("this server is taking in another tablet already".to_owned())
        } else {
            self.may_bring_back(&[tablet])
        };
        if let Err(why) = may {
            return failed(id, &Failed::other(why), out);
        }
        self.store.raise_version_floor(order.version_floor);
        let source = ServerId(order.source);
        let table_id = TableId(tablet.table_id);
        let text =
            format!("migration {id}: a tablet of table {table_id} is being taken in from {source}");
        out.log_message(3, &text);
        self.migrations.incoming = Some(Incoming {
            id,
            tablet,
            source,
            locator: order.locator,
            bytes_per_second: match order.bytes_per_second {
                0 => BYTES_PER_SECOND,
                most => most,
            },
            stage: Stage::Waiting,
            link: Link::Down,
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
    pub(super) fn drop_incoming(&mut self, out: &mut impl Output) {
        let Some(mut incoming) = self.migrations.incoming.take() else {
            return;
        };
        incoming.disconnect(out);
        match incoming.stage {
            Stage::Waiting => {}
            Stage::Reading(replay) | Stage::Settling(replay, _) | Stage::Complete(replay) => {
                self.store.give_up_replay(replay);
            }
        }
    }

    fn fail_incoming(&mut self, why: &Failed, out: &mut impl Output) {
        if let Some(incoming) = &self.migrations.incoming {
            failed(incoming.id, why, out);
            self.drop_incoming(out);
        }
    }

    /// Owns the tablet, which is complete.
    pub(super) fn commit_incoming(&mut self, out: &mut impl Output) {
        let Some(incoming) = self.migrations.incoming.take() else {
            return;
        };
        let Stage::Complete(replay) = incoming.stage else {
            unreachable!("only what is complete is committed");
        };
        self.store.commit_replay(&replay, &[incoming.tablet]);
        // Nobody will ever read the other log for what this one holds.
        self.store.log.release_source();
        self.migrations.committed = incoming.id;
        let text = format!("migration {}: its tablet is served here", incoming.id);
        out.log_message(3, &text);
    }

    pub(crate) fn migration_connected(&mut self, now: Time, source: ServerId) {
        if let Some(incoming) = self.migrations.incoming.as_mut()
            && incoming.source == source
            && incoming.link == Link::Connecting
        {
            incoming.link = Link::Up;
            incoming.not_before = now;
        }
    }

    pub(crate) fn migration_disconnected(&mut self, now: Time, source: ServerId) {
        if let Some(incoming) = self.migrations.incoming.as_mut()
            && incoming.source == source
        {
            incoming.lose_link();
            incoming.not_before = incoming.not_before.max(now + PAUSE);
        }
    }

    pub(crate) fn migration_answer(
        &mut self,
        now: Time,
        source: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl Output,
    ) {
        let Some(incoming) = self.migrations.incoming.as_mut() else {
            return;
        };
        let is_meant = incoming.source == source
            && incoming.last_nonce == nonce
            && incoming.asked_until.take().is_some();
        if is_meant {
            self.take_in(now, payload, out);
        }
    }

    fn take_in(&mut self, now: Time, payload: &[u8], out: &mut impl Output) {
        match self.try_to_take_in(now, payload) {
            Taken::Yes => {}
            Taken::NotYet => {
                if let Some(incoming) = self.migrations.incoming.as_mut() {
                    incoming.kept = Some(payload.to_vec());
                }
            }
            Taken::Failed(why) => return self.fail_incoming(&why, out),
        }
        self.tend_incoming(now, out);
    }

    fn try_to_take_in(&mut self, now: Time, payload: &[u8]) -> Taken {
        let Some(incoming) = self.migrations.incoming.as_mut() else {
            return Taken::Yes;
        };
        let Stage::Reading(replay) = &mut incoming.stage else {
            return Taken::Yes;
        };
        let answer = match Migrating::decode(payload) {
            Ok(answer) => answer,
            Err(error) => {
                let text = format!("the source sent an answer that cannot be read: {error}");
                return Taken::Failed(Failed::other(text));
            }
        };
        match answer.status {
            Status::Ok => {}
            // Who is told first nobody knows.
            Status::Missing if incoming.piece == 0 => {
                incoming.not_before = now + PAUSE;
                return Taken::Yes;
            }
            Status::Missing => {
                let text = "the source has given it up";
                return Taken::Failed(Failed::other(text));
            }
            status => {
                let text = format!("the source refuses to go on ({status:?})");
                return Taken::Failed(Failed::other(text));
            }
        }
        match self.store.replay(replay, answer.data) {
            Ok(()) => {}
            Err(ReplayError::NoRoom(NoRoom::Cleaning)) => return Taken::NotYet,
            Err(ReplayError::NoRoom(NoRoom::Full)) => {
                return Taken::Failed(Failed::full("the log is full"));
            }
            Err(ReplayError::TableFull) => {
                let what = "the hash table, or what is remembered of clients, is full";
                return Taken::Failed(Failed::full(what));
            }
            Err(ReplayError::Damaged { error, .. }) => {
                let text = format!("the source gives out an entry that is damaged: {error}");
                return Taken::Failed(Failed::other(text));
            }
        }
        // Changes come in the order in which they were made.
        replay.forget_dead();
        if answer.phase == Phase::End {
            replay.note_versions(answer.next_version);
        }
        incoming.plan(now, &answer);
        if answer.phase == Phase::End {
            self.settle_incoming();
        }
        Taken::Yes
    }

    fn settle_incoming(&mut self) {
        if let Some(incoming) = self.migrations.incoming.as_mut() {
            match std::mem::replace(&mut incoming.stage, Stage::Waiting) {
                Stage::Reading(mut replay) => {
                    self.store.complete_replay(&mut replay);
                    let settling = Settling::new(&replay);
                    incoming.stage = Stage::Settling(replay, settling);
                }
                other => incoming.stage = other,
            }
        }
    }

    /// Says so where everything that a migration has brought is durable in this shard's own log.
    pub(crate) fn look_for_durable_migration(&mut self, now: Time, out: &mut impl Output) {
        let Some(incoming) = self.migrations.incoming.as_mut() else {
            return;
        };
        match std::mem::replace(&mut incoming.stage, Stage::Waiting) {
            Stage::Settling(replay, settling) if settling.is_durable(&self.store.log) => {
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
                let text = format!(
                    "migration {}: {} bytes read and {} objects taken in after {} ms",
                    migrated.migration_id,
                    migrated.bytes,
                    migrated.objects,
                    took.as_millis()
                );
                out.log_message(3, &text);
                send(shard::Kind::Migrated(migrated), out);
                incoming.stage = Stage::Complete(replay);
            }
            other => incoming.stage = other,
        }
    }

    /// Does what is due; when to come again though nothing happens.
    pub(super) fn tend_incoming(&mut self, now: Time, out: &mut impl Output) -> Time {
        self.begin_incoming(now, out);
        let kept = self.migrations.incoming.as_mut();
        if let Some(kept) = kept.and_then(|incoming| incoming.kept.take()) {
            match self.try_to_take_in(now, &kept) {
                Taken::Yes => {}
                Taken::NotYet => {
                    if let Some(incoming) = self.migrations.incoming.as_mut() {
                        incoming.kept = Some(kept);
                    }
                }
                Taken::Failed(why) => self.fail_incoming(&why, out),
            }
        }
        let Some(incoming) = self.migrations.incoming.as_mut() else {
            return Time::NEVER;
        };
        let is_late = incoming.took_in_at + PATIENCE <= now;
        match incoming.stage {
            Stage::Waiting | Stage::Reading(_) if is_late => {
                let why = if incoming.kept.is_some() {
                    Failed::full("the log stays full")
                } else {
                    Failed::other("the source cannot be reached, or knows nothing of it")
                };
                self.fail_incoming(&why, out);
                Time::NEVER
            }
            // Its writes wait for that.
            Stage::Settling(..) if is_late => {
                let why = "what was read did not get its copies in time";
                self.fail_incoming(&Failed::other(why), out);
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
    fn begin_incoming(&mut self, now: Time, out: &mut impl Output) {
        let Some(incoming) = self.migrations.incoming.as_mut() else {
            return;
        };
        if !matches!(incoming.stage, Stage::Waiting) || self.store.is_purging(&incoming.tablet) {
            return;
        }
        match self.store.begin_replay(vec![incoming.tablet]) {
            Ok(replay) => {
                incoming.stage = Stage::Reading(replay);
                incoming.took_in_at = now;
            }
            Err(NoRoom::Cleaning) => {}
            Err(NoRoom::Full) => self.fail_incoming(&Failed::full("the log is full"), out),
        }
    }
}
