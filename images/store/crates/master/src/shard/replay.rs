//! Replaying without a coordinator, for tests and benchmarks.

use wire::member::TabletRange;

use crate::data::replay::{Replay, ReplayError};
use crate::shard::Shard;

impl Shard {
    /// Begins to bring these tablets back. They overlap none that the shard owns or replays, and nothing is left here of an earlier time.
    pub fn begin_replay(&mut self, tablets: Vec<TabletRange>) -> Result<Replay, ReplayError> {
        Ok(self.store.begin_replay(tablets)?)
    }

    /// Replays a segment, or the part of one that was kept for these tablets. Doing it twice does no harm.
    pub fn replay(&mut self, replay: &mut Replay, segment: &[u8]) -> Result<(), ReplayError> {
        self.store.replay(replay, segment)
    }

    /// All segments were replayed: the shard serves the tablets from now on.
    pub fn end_replay(&mut self, mut replay: Replay) {
        self.store.complete_replay(&mut replay);
        let tablets = replay.tablets.clone();
        self.store.commit_replay(&replay, &tablets);
    }
}
