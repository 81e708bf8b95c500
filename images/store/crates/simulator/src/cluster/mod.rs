//! The processes of a store with their networks, disks and clocks: what happens to them by themselves, and what can be done to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use coordinator::Balancing;

use crate::clock::Clock;
use crate::cluster::api::Api;
use crate::cluster::builds::Builds;
use crate::cluster::client::ClientNode;
use crate::cluster::coordinator_node::CoordinatorProcess;
use crate::cluster::late_disks::LateDisks;
use crate::cluster::put_back::PutBack;
use crate::cluster::server::ServerNode;
use crate::coverage::Coverage;
use crate::event::{Event, Party, Phase, Scheduled};
use crate::net::datagrams::Datagrams;
use crate::net::network::{Host, Network};
use crate::oracles::boundaries::Boundaries;
use crate::oracles::deposed::Deposed;
use crate::oracles::history::History;
use crate::oracles::moved::Moved;
use crate::random::Streams;
use crate::scenario::{MILLI, Scenario};
use crate::trace::Trace;

pub mod api;
pub mod api_requests;
pub mod builds;
pub mod client;
pub mod client_actions;
pub mod clients;
pub mod coordinator_node;
pub mod coordinators;
pub mod datagrams;
pub mod describe;
pub mod disk_steps;
pub mod disks;
pub mod electing;
pub mod election;
pub mod endings;
pub mod ends;
pub mod hosts;
pub mod installing;
pub mod late_disks;
pub mod leaders;
pub mod notes;
pub mod peers;
pub mod ports;
pub mod put_back;
pub mod putting_back;
pub mod rebuilding;
pub mod rounds;
pub mod scan;
pub mod scanning;
pub mod server;
pub mod sessions;
pub mod shards;
pub mod starts;
pub mod time;
pub mod told;
pub mod whole;
pub mod wires;
pub mod workload;

pub use hosts::*;

/// A process's clock, pauses and timer.
#[derive(Debug)]
pub struct Machine {
    pub clock: Clock,
    pub paused_until: u64,
    /// What it has to see to when it gets the processor back.
    held: Vec<Event>,
    /// The earliest tick that is scheduled.
    tick_at: u64,
}

/// The processes of a store, what they stand on, and what is known of them.
pub struct Cluster {
    pub now: u64,
    pub scenario: Scenario,
    pub streams: Streams,
    pub network: Network,
    /// The network for datagrams, if there are any.
    pub datagrams: Option<Datagrams>,
    pub machines: BTreeMap<Host, Machine>,
    /// By connection and side.
    pub parties: BTreeMap<(u64, usize), Party>,
    /// One, or several of which one leads.
    pub coordinators: Vec<CoordinatorProcess>,
    /// Where the coordinators' state is, if there are several.
    pub api: Option<Api>,
    /// Coordinators so far; each is a store of its own.
    pub stores: u64,
    /// What the coordinator has noted.
    pub noted: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How often it has.
    pub noted_count: u64,
    /// How coordinators move tablets by themselves.
    pub balancing: Balancing,
    /// Coordinators are told to make the store again if there is no state.
    pub is_rebuilding: bool,
    pub put_back: PutBack,
    pub builds: Builds,
    pub servers: Vec<ServerNode>,
    pub clients: Vec<ClientNode>,
    pub history: History,
    pub deposed: Deposed,
    pub moved: Moved,
    pub boundaries: Boundaries,
    /// What people have asked for.
    pub asked: Asked,
    pub coverage: Coverage,
    pub trace: Trace,
    pub phase: Phase,
    /// What went wrong; the run ends at the first.
    pub failure: Option<String>,
    /// Disks that have lost something that was promised.
    pub damages: u32,
    pub late_disks: LateDisks,
    /// Backups are late, and nothing else may go wrong.
    pub is_only_late: bool,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

/// What people have asked coordinators for.
#[derive(Debug, Default)]
pub struct Asked {
    /// Copies of everything; `None`: as many as servers were started with.
    pub copies: Option<u32>,
    /// Settings so far that were accepted.
    pub settings: u64,
}

/// What a run begins with beside its scenario.
pub struct Beginning {
    pub datagrams: Option<Datagrams>,
    pub put_back: PutBack,
    pub builds: Builds,
    pub balancing: Balancing,
    /// Prints all that happens.
    pub prints: bool,
}

/// By then the servers are in, unless the network is slow.
pub const START_OF_LOAD: u64 = 100 * MILLI;

impl Cluster {
    pub fn new(scenario: Scenario, mut streams: Streams, beginning: Beginning) -> Cluster {
        let Beginning {
            datagrams,
            put_back,
            builds,
            balancing,
            prints,
        } = beginning;
        let network = Network::new(scenario.network, &mut streams);
        let late_disks = LateDisks::draw(&mut streams);
        let mut cluster = Cluster {
            now: 0,
            network,
            datagrams,
            machines: BTreeMap::new(),
            parties: BTreeMap::new(),
            coordinators: vec![CoordinatorProcess::default()],
            api: None,
            stores: 0,
            noted: BTreeMap::new(),
            noted_count: 0,
            balancing,
            is_rebuilding: false,
            put_back,
            builds,
            servers: Vec::new(),
            clients: Vec::new(),
            history: History::default(),
            deposed: Deposed::default(),
            moved: Moved::default(),
            boundaries: Boundaries::default(),
            asked: Asked::default(),
            coverage: Coverage::default(),
            trace: Trace::new(prints),
            phase: Phase::Load,
            failure: None,
            damages: 0,
            late_disks,
            is_only_late: false,
            queue: BinaryHeap::new(),
            scheduled: 0,
            scenario,
            streams,
        };
        cluster.populate();
        cluster.plan_put_back();
        cluster
    }
}
