//! What a run has met. A quick set that never met one of these proves less than it seems, so a zero fails it.

use std::collections::BTreeMap;

/// Everything that a set of seeds must meet at least once.
pub const REQUIRED: &[&str] = &[
    "server crashes",
    "crashes of several servers at once",
    "processes that died within a write",
    "losses of power",
    "servers isolated with their clients",
    "servers frozen and cut off from the coordinator",
    "disks lost",
    "writes that were late",
    "jobs that were late",
    "completions that were told of late",
    "disks that stalled",
    "stalls that were reported",
    "bytes rotten",
    "bytes that cannot be read",
    "disks full",
    "disks whose writes fail",
    "disks whose syncs fail",
    "backups retired",
    "storages that could not be opened",
    "answers that a backup is full",
    "appends for which there was no memory",
    "requests to deposed masters",
    "servers declared dead",
    "recoveries begun",
    "recoveries ended",
    "deposed servers that ended",
    "migrations ordered",
    "migrations that waited",
    "migrations begun",
    "migrations begun for evenness",
    "tablets cut to be moved",
    "tablets made one again",
    "tables split by order",
    "splits by order of tables that were split so",
    "boundaries of the store's own kept by order",
    "migrations ended",
    "migrations given up",
    "migrations ended without copies",
    "servers without copies lost that tablets had come to",
    "requests for tablets that have moved",
    "server restarts with other shard counts",
    "coordinator crashes",
    "coordinators that go on with what was noted",
    "leaders",
    "leaders killed",
    "leaders that found a recovery under way",
    "recoveries under way at a fail-over",
    "migrations under way at a fail-over",
    "splits under way at a fail-over",
    "leaders that died between two words",
    "leaders deposed by the root",
    "leaders deposed by the lock",
    "leaders that gave the lock up",
    "coordinators paused",
    "coordinators cut off from the API server",
    "locks taken while another held them",
    "times at which the address led anywhere",
    "servers that told a leader of a later one",
    "stores made again from disks",
    "stores of several coordinators made again from disks",
    "API servers put back to an older state",
    "older states noticed",
    "newer states put back",
    "older states given up for a rebuild",
    "absences of the API server",
    "absences of the API server for minutes",
    "absences of the API server with late backups",
    "masters that went on without a floor",
    "requests to the API server that failed",
    "conflicts at the API server",
    "roots written after their leader was gone",
    "roots written by requests that had failed",
    "chunks written",
    "chunks deleted",
    "operations completed while the API server was away",
    "processes upgraded",
    "processes taken back",
    "upgrades finalized",
    "upgrades that could not be finalized yet",
    "servers of an old build refused",
    "coordinators of an old build refused",
    "members drained",
    "drains refused",
    "drains that could not end",
    "members undrained",
    "settings changed",
    "orders without copies that kept them",
    "orders for fewer copies without a reason",
    "orders for fewer copies by mistake",
    "orders for fewer copies of old specifications",
    "numbers of copies changed",
    "restarts in a quiet life",
    "orders while a member was away",
    "looks at logs that had all of their copies",
    "drained servers lost with their disks",
    "copies on servers that leave for want of others",
    "processes paused",
    "partitions",
    "connections reset",
    "connections silenced",
    "connections stalled",
    "connections given up for silence",
    "sessions opened",
    "sessions given up for silence",
    "sessions whose peer was started anew",
    "sessions refused or displaced",
    "datagrams lost",
    "datagrams repeated",
    "datagrams changed on the way",
    "damaged datagrams dropped",
    "datagrams that came again or too late",
    "hints that a server has crashed",
    "datagrams that got nowhere",
    "datagrams that got nowhere in one direction",
    "requests repeated in a session",
    "datagrams sent again",
    "clients that fell back to streams",
    "clients that came back to datagrams",
    "servers that fell back to streams",
    "servers that came back to datagrams",
    "values lent",
    "loans called back",
    "member sessions resumed",
    "member sessions that went on",
    "losses recorded",
    "tables created",
    "tables dropped",
    "tables made again",
    "tables made whose keys are hashed in another way",
    "tablets split",
    "reads",
    "writes",
    "removes",
    "increments",
    "increments as doubles",
    "increments of what is no number refused",
    "increments sent again",
    "objects with several keys read",
    "multi-read objects",
    "multi-written objects",
    "multi-removed objects",
    "multi-incremented objects",
    "multi-ops on several tables",
    "parts of multi-ops refused",
    "parts of multi-ops sent again",
    "parts of multi-ops that may have taken effect twice",
    "parts of multi-ops with unknown outcome",
    "scans",
    "scans of keys only",
    "scans while a tablet was split",
    "scans of a table that was dropped",
    "pages of scans",
    "objects scanned",
    "conditional operations refused",
    "operations with unknown outcome",
    "log segments opened",
    "log segments cleaned",
    "segments closed before they were full",
    "logs with too little room, for a moment",
    "memory full",
    "replies held by the gate",
    "results answered from record",
    "requests sent again",
    "STALE_RPC",
    "EXPIRED_LEASE",
    "UNKNOWN_TABLET",
    "RETRY",
    "lease queries",
    "keys checked",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub fn add(&mut self, what: &'static str, count: u64) {
        debug_assert!(REQUIRED.contains(&what), "{what} is not listed");
        *self.counts.entry(what).or_default() += count;
    }

    pub fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn merge(&mut self, other: &Coverage) {
        for (&what, &count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    /// All of [`REQUIRED`], with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REQUIRED.iter().map(|&what| (what, self.count(what)))
    }

    fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// What was never met.
    pub fn missing(&self) -> Vec<&'static str> {
        self.iter()
            .filter(|&(_, count)| count == 0)
            .map(|(what, _)| what)
            .collect()
    }
}
