//! A coordinator's process, and what a driver would keep for it.

use core::num::NonZeroU64;
use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::election::Election;
use crate::oracles::boundaries::Answered;
use base::ids::ReplyTo;
use coordinator::leader::Leader;
use coordinator::{Coordinator, CoordinatorEffects, CoordinatorEvent};
use transport::member::MemberReader;
use transport::rpc::RpcReader;
use transport::session::Sessions;
use wire::format::Formats;
use wire::member::ToShard;

/// What the coordinator told its driver to do, in order.
pub enum CoordinatorAction {
    Reply(ReplyTo, Vec<u8>),
    SendMember(u64, ToShard),
    CloseMember(u64),
    Report(CoordinatorEvent),
}

#[derive(Default)]
pub struct CoordinatorActions(pub Vec<CoordinatorAction>);

impl CoordinatorEffects for CoordinatorActions {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        self.0.push(CoordinatorAction::Reply(to, payload.to_vec()));
    }
    fn send_member(&mut self, connection: u64, message: ToShard) {
        self.0
            .push(CoordinatorAction::SendMember(connection, message));
    }
    fn close_member(&mut self, connection: u64) {
        self.0.push(CoordinatorAction::CloseMember(connection));
    }
    fn report(&mut self, event: CoordinatorEvent) {
        self.0.push(CoordinatorAction::Report(event));
    }
}

/// Where a coordinator's state is.
pub enum Core {
    /// In one place, where it is alone.
    Alone(Box<Coordinator>),
    /// In objects of the API server, where others may be, too.
    Leader(Box<Leader<Answered>>),
}

/// The sessions of a coordinator: no two ever give a session the same number.
pub fn sessions_of(process: usize, incarnation: u64) -> Sessions {
    let mut last = (incarnation << 8 | process as u64) << 32;
    Sessions::new(Box::new(move || {
        last += 1;
        NonZeroU64::new(last)
    }))
}

pub struct CoordinatorNode {
    pub core: Core,
    pub clients: BTreeMap<u64, RpcReader>,
    pub members: BTreeMap<u64, MemberReader>,
    pub sessions: Sessions,
    /// Its build lets sessions outlive their connections.
    pub numbers_messages: bool,
    /// The newest table whose placement was noted.
    pub last_table: u64,
    /// Names that tables have had.
    pub table_names: BTreeSet<String>,
    /// It hears what is on the disks.
    pub is_rebuilding: bool,
}

impl CoordinatorNode {
    pub fn new(core: Core, sessions: Sessions, numbers_messages: bool) -> CoordinatorNode {
        let mut node = CoordinatorNode {
            core,
            clients: BTreeMap::new(),
            members: BTreeMap::new(),
            sessions,
            numbers_messages,
            last_table: 0,
            table_names: BTreeSet::new(),
            is_rebuilding: false,
        };
        node.pass_over_tables();
        node
    }

    /// The tables that are there now were noted by others.
    pub fn pass_over_tables(&mut self) {
        if let Some(state) = self.state() {
            let tables = state.tables(0, u32::MAX).tables;
            self.last_table = tables.last().map_or(0, |table| table.table_id);
            self.table_names = tables.into_iter().map(|table| table.name).collect();
        }
    }

    /// What it knows; `None`: it does not lead yet.
    pub fn state(&self) -> Option<&Coordinator> {
        match &self.core {
            Core::Alone(coordinator) => Some(coordinator),
            Core::Leader(leader) => leader.coordinator(),
        }
    }
}

/// A place where coordinators run, one after the other.
pub struct CoordinatorProcess {
    /// `None`: it is dead, or a standby.
    pub node: Option<CoordinatorNode>,
    /// Counts processes, and leaderships.
    pub incarnation: u64,
    pub is_up: bool,
    pub election: Election,
    /// What the build reads that is started here.
    pub installed: Formats,
}

impl Default for CoordinatorProcess {
    fn default() -> CoordinatorProcess {
        CoordinatorProcess {
            node: None,
            incarnation: 0,
            is_up: false,
            election: Election::default(),
            installed: Formats::CURRENT,
        }
    }
}
