//! How long clients are to wait before they come again.

/// A delay that a client waits before it comes again, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Delay {
    pub min_us: u32,
    pub max_us: u32,
}

/// Nobody let this shard in yet.
pub(crate) const NOT_ENLISTED: Delay = Delay {
    min_us: 100,
    max_us: 100,
};
/// The cleaner, the log's durability, the coordinator or a migration has to get on first.
pub(crate) const BUSY: Delay = Delay {
    min_us: 1000,
    max_us: 2000,
};
