//! Ports for datagrams, and the weather of their network.

use fast::Config;

/// What is known of ports and the network between them before a run.
#[derive(Clone, Copy, Debug)]
pub struct FastScenario {
    /// Ports of each process: `fast+udp`, or `fast+dpdk` as well.
    pub kinds: usize,
    pub config: Config,
    /// Values that are so long are lent.
    pub lend_bytes: usize,
    pub weather: Weather,
    /// Between two times at which datagrams get nowhere, on average; 0: that never happens.
    pub fault_interval: u64,
    /// So often at most.
    pub faults: u64,
}

/// What happens to datagrams, each in one of a thousand, and how long they take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost: u64,
    pub repeated: u64,
    pub changed: u64,
    /// Those that take ten times as long as others at most.
    pub late: u64,
    pub min_delay: u64,
    pub max_delay: u64,
}
