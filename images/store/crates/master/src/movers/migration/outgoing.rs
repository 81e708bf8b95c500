//! A tablet that is on its way to another master: how far that one has come.

use base::ids::TableId;
use log::LogPosition;
use wire::member::TabletRange;

use crate::data::walk::Unfinished;

/// A tablet that somebody else reads.
pub(super) struct Outgoing {
    pub id: u64,
    pub(super) tablet: TabletRange,
    /// Where the log ended when it began.
    pub(super) since: LogPosition,
    /// Number of the piece that was asked for last, where it begins, and where the next one does.
    pub(super) piece: u64,
    pub(super) at: Cursor,
    pub(super) next: Cursor,
    /// Nothing of the tablet was appended to the log behind this.
    pub(super) frozen_at: Option<LogPosition>,
    /// The target has been given everything.
    pub(super) has_ended: bool,
    pub(super) is_stopped: bool,
}

/// How far the target has come.
#[derive(Clone)]
pub(super) enum Cursor {
    Objects(Unfinished),
    /// The last client whose RPC results were given out, or 0.
    Results(u64),
    Changes(LogPosition),
}

impl Outgoing {
    pub fn would_be_split(&self, table_id: TableId, key_hash: u64) -> bool {
        let tablet = &self.tablet;
        tablet.table_id == table_id.0
            && tablet.start_key_hash < key_hash
            && key_hash <= tablet.end_key_hash
    }
}
