//! Counts of copies of other logs' entries: who copies, where to, and which tombstones are needed because of them.

#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The side segment that takes them.
    pub open: Option<u32>,
    /// Those that copy at present share it.
    pub copying: u32,
    /// What was purged lies in older segments.
    pub purged_before: u64,
    /// Logs that may be read again.
    pub sources: u32,
    /// Tombstones in this segment and later ones are needed, while there are such logs.
    pub first_segment: u64,
    /// Tombstones that are needed only because of them.
    pub kept_bytes: u64,
}
