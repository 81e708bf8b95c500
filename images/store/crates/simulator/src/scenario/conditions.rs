//! The network for byte streams.

/// How long packets take, in nanoseconds, and how often they are cut in two.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub min_delay: u64,
    pub max_delay: u64,
    pub split_per_mille: u64,
}
