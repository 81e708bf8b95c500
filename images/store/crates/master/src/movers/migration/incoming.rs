//! A tablet that is on its way here: how much of it has come, and what to ask for next.

use core::time::Duration;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{self, TabletRange};
use wire::peer::{MigrateRead, Migrating, Phase};

use crate::data::replay::Replay;
use crate::effects::{Channel, ShardEffects};
use crate::movers::settling::Settling;

/// Bytes that are asked for at once.
const PIECE_BYTES: u32 = 256 << 10;
/// So little, and that twice in a row, is read while the tablet is frozen.
const FREEZE_BYTES: u64 = 64 << 10;
const FREEZE_ROUNDS: u32 = 2;
/// A connection that brings no answer for so long is made anew.
const SLOW: Duration = Duration::from_secs(3);
/// Between attempts to reach the source, or to find that it has heard of the migration.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// A replay that found no memory is tried again after this.
pub(super) const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// A tablet that is on its way here.
pub(super) struct Incoming {
    pub id: u64,
    pub tablet: TabletRange,
    pub(super) source: ServerId,
    pub(super) locator: String,
    pub(super) bytes_per_second: u64,
    pub(super) stage: Stage,
    pub(super) link: SourceState,
    pub(super) last_nonce: u64,
    /// Until when the answer to the last question is waited for.
    pub(super) asked_until: Option<Time>,
    /// The piece that is to be asked for, or was.
    pub(super) piece: u64,
    pub(super) freezes: bool,
    pub(super) rounds_with_little_left: u32,
    /// Nothing is asked before this.
    pub(super) not_before: Time,
    /// An answer that found no memory.
    pub(super) kept: Option<Vec<u8>>,
    pub(super) began: Time,
    /// When something was taken in last; or when its rate lets it ask again, if that is later.
    pub(super) took_in_at: Time,
    pub(super) bytes: u64,
}

pub(super) enum Stage {
    /// There is no memory yet, or something of the tablet is still here from before.
    Waiting,
    Reading(Replay),
    /// Everything was read.
    Settling(Replay, Settling),
    /// The coordinator knows that it is all here.
    Complete(Replay),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceState {
    Down,
    Connecting,
    Up,
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

    pub fn disconnect(&mut self, out: &mut impl ShardEffects) {
        if self.link != SourceState::Down {
            out.disconnect_backup(Channel::Migration, self.source);
        }
        self.lose_link();
    }

    pub(super) fn lose_link(&mut self) {
        self.link = SourceState::Down;
        self.asked_until = None;
    }

    /// What an answer says about those that follow.
    pub(super) fn plan(&mut self, now: Time, answer: &Migrating<'_>) {
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
    pub(super) fn ask(&mut self, now: Time, out: &mut impl ShardEffects) -> Time {
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
            SourceState::Connecting => {}
            SourceState::Down => {
                self.link = SourceState::Connecting;
                self.not_before = now + PAUSE;
                out.connect_backup(Channel::Migration, self.source, &self.locator);
            }
            SourceState::Up => {
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
