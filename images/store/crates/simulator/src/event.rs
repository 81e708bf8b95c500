//! What can happen in the cluster, and when.

use coordinator::state::objects::{ObjectResponse, Request, RequestId};

use std::net::SocketAddrV4;

use crate::net::network::{Host, NetworkEvent};

/// Something that happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Network(NetworkEvent),
    /// A datagram is at the port that it is for.
    Datagram {
        from: SocketAddrV4,
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
    /// A round of a process's ports for datagrams.
    Poll {
        owner: Owner,
        incarnation: u64,
    },
    Tick(Host),
    /// What a shard had appended when this was put on its way is durable now.
    Flushed {
        server: usize,
        incarnation: u64,
        shard: usize,
        epoch: u64,
        position: u64,
    },
    OpenBackup {
        server: usize,
        incarnation: u64,
        shard: usize,
        config: backup::Config,
    },
    Synced {
        server: usize,
        incarnation: u64,
        shard: usize,
        scope: backup::Scope,
    },
    /// A late disk goes on.
    Disk {
        server: usize,
        incarnation: u64,
        shard: usize,
        step: DiskStep,
    },
    /// A shard looks for the coordinator.
    Enlist {
        server: usize,
        incarnation: u64,
        shard: usize,
    },
    /// A shard was not let in on this connection.
    GiveUpLink {
        connection: u64,
    },
    ClientStep(usize),
    /// A client wants the next page of a scan.
    PageStep(usize),
    Heal,
    /// What is wrong with this server's disks ends.
    RepairDisks(usize),
    /// A connection that stalled in this direction goes on.
    GoOn {
        connection: u64,
        direction: usize,
    },
    Restart(Host),
    /// A paused process may go on, if no other pause holds it.
    Resume(Host),
    /// A coordinator looks who leads.
    Elect {
        process: usize,
        incarnation: u64,
    },
    /// The store's address leads to this coordinator from now on.
    Publish {
        process: usize,
    },
    /// A coordinator's request gets to the API server.
    ApiExecute {
        process: usize,
        incarnation: u64,
        id: RequestId,
        request: Box<Request>,
        is_waited_for: bool,
    },
    ApiAnswer {
        process: usize,
        incarnation: u64,
        id: RequestId,
        answer: Box<ObjectResponse>,
    },
    /// What logs, and copies of logs, must be like at any time is looked at.
    Look,
    /// Of who makes trouble.
    Turn(Turn),
    /// Somebody keeps a copy of the coordinators' state, or puts it back.
    PutBack(PutBackStep),
}

/// Who has ports for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client(usize),
    Shard { server: usize, shard: usize },
}

/// Who sits at one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    Client {
        client: usize,
        session: u64,
    },
    CoordinatorClient {
        process: usize,
    },
    CoordinatorMember {
        process: usize,
    },
    ShardClient {
        server: usize,
        shard: usize,
    },
    ShardLink {
        server: usize,
        shard: usize,
    },
    /// A peer that uses the shard's backup.
    ShardPeer {
        server: usize,
        shard: usize,
    },
    /// A shard that has opened a connection to another server.
    ShardToServer {
        server: usize,
        shard: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Clients work, faults happen.
    Load,
    /// No more faults: everything under way has to end.
    Drain,
    /// Every key is read once more.
    FinalReads,
    Over,
}

/// An event, in the order of time, and then in that in which they were scheduled.
pub struct Scheduled {
    pub at: u64,
    pub sequence: u64,
    pub event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Whose turn it is of those that make trouble: see `faults`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// One of the usual faults.
    Next,
    /// That of a fault that knows nothing of the others, by number.
    Independent(usize),
    Absence,
    Migrate,
    /// Something happens to those who take part in a migration.
    Strike(Between),
    Drain,
    Tune,
    /// Somebody gives an order while this server is away.
    OrderWhileAway(usize),
    Late,
    Upgrade,
}

/// What somebody does next who puts the coordinators' state back: see `cluster::put_back`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBackStep {
    /// Keeps a copy of the objects.
    Copy,
    PutBack,
    /// Nobody may have failed to notice by now.
    Overdue,
    Repair,
}

/// Who a migration is between, by their places in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    pub source: usize,
    pub target: usize,
}

/// The next step of a late disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskStep {
    /// Carries out writes.
    Write,
    /// Does a job.
    Job,
    /// Tells of what it has done.
    Report,
}
