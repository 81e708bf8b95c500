//! What people set: when tablets are moved without an order, and how fast; and what is said of why one moves.

use core::fmt;
use core::time::Duration;

/// How a coordinator moves tablets by itself.
#[derive(Clone, Debug)]
pub struct Balancing {
    /// Servers are to have about as much each. Members that drain are emptied in any case.
    pub evens_out: bool,
    /// Of each migration that it begins, while the tablet is used.
    pub bytes_per_second: u64,
    /// Between two looks; longer where there are many tablets.
    pub interval: Duration,
    /// A tablet that was moved is left alone for so long, unless its server drains.
    pub rest: Duration,
    /// A tablet of which a migration was given up is not tried again for so long, nor is a server that could not take one. Each further time it is
    /// twice as long, up to `longest_pause`; what is to leave a server that drains waits for `pause` only.
    pub pause: Duration,
    pub longest_pause: Duration,
    pub rules: Rules,
}

impl Default for Balancing {
    fn default() -> Balancing {
        Balancing {
            evens_out: true,
            bytes_per_second: 50_000_000,
            interval: Duration::from_secs(1),
            rest: Duration::from_secs(300),
            pause: Duration::from_secs(10),
            longest_pause: Duration::from_secs(300),
            rules: Rules::default(),
        }
    }
}

impl Balancing {
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses {
            first: self.pause,
            longest: self.longest_pause,
        }
    }
}

/// When it is worth it to move something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Moving begins when a server has so much more than its share, and ends below the second.
    pub begin_percent: u64,
    pub end_percent: u64,
    /// Less than this above the share is not worth it; of bytes, also so much of the server's memory.
    pub min_bytes: u64,
    pub min_capacity_percent: u64,
    pub min_rate: u64,
    /// Nothing moves to a server that would then have more of its memory in use.
    pub full_percent: u64,
    /// Moves at a time, in the whole store. Of each server it is one each way.
    pub max_under_way: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            begin_percent: 25,
            end_percent: 10,
            min_bytes: 1 << 20,
            min_capacity_percent: 2,
            min_rate: 5000,
            full_percent: 75,
            max_under_way: 2,
        }
    }
}

/// Pause after the first failure, and the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

/// Why the coordinator moves a tablet by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The server that has it is being drained.
    Drains { server: String },
    /// The server that has it has more than its share.
    Uneven {
        server: String,
        amount: u64,
        measure: Measure,
        share: u64,
    },
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveReason::Drains { server } => write!(f, "{server} drains"),
            MoveReason::Uneven {
                server,
                amount,
                measure,
                share,
            } => write!(
                f,
                "{server} has {amount} {}, and its share is {share}",
                measure.name()
            ),
        }
    }
}

/// What servers are to have evenly, each after its room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Bytes,
    /// Operations in a second.
    Rate,
}

impl Measure {
    pub(crate) fn other(self) -> Measure {
        match self {
            Measure::Bytes => Measure::Rate,
            Measure::Rate => Measure::Bytes,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Bytes => "bytes",
            Measure::Rate => "operations in a second",
        }
    }
}
