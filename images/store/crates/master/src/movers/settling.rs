//! When what a replay has brought is durable in this shard's own log.
//!
//! That is so when all side segments that took something of it are closed and settled, and a head that names them and that was opened after the
//! replay's end is durable: its header carries the versions that were used elsewhere.

use log::{Log, LogPosition};

use crate::data::replay::Replay;

/// A complete replay on its way there.
pub(crate) struct Settling {
    /// Side segments that took copies and are not known to be settled; the newest first.
    sides: Vec<u64>,
    /// A head that names them starts before this.
    named: Option<LogPosition>,
}

impl Settling {
    pub fn new(replay: &Replay) -> Settling {
        Settling {
            sides: replay.sides().iter().rev().copied().collect(),
            named: None,
        }
    }

    /// Whether a head should name its segments now.
    fn is_ready(&mut self, log: &Log) -> bool {
        while self.sides.last().is_some_and(|&side| log.is_settled(side)) {
            self.sides.pop();
        }
        self.sides.is_empty() && self.named.is_none()
    }

    pub fn is_durable(&self, log: &Log) -> bool {
        self.named
            .is_some_and(|named| named <= log.durable_position())
    }
}

/// Starts a head that names the segments of all that are ready for it. Whether there is something to send to backups.
pub(crate) fn name_settled<'a>(log: &mut Log, all: impl Iterator<Item = &'a mut Settling>) -> bool {
    let ready = all.filter_map(|one| one.is_ready(log).then_some(one));
    let ready: Vec<_> = ready.collect();
    if ready.is_empty() {
        return false;
    }
    let named = log.name_segments();
    ready.into_iter().for_each(|one| one.named = named);
    named.is_some()
}
