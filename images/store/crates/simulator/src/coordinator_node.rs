//! The coordinator's process, and what a driver would keep for it.

use std::collections::{BTreeMap, BTreeSet};

use coordinator::{Coordinator, Output};
use transport::member::MemberReader;
use transport::rpc::RpcReader;
use wire::ids::ReplyTo;
use wire::member::ToShard;

/// What the coordinator told its driver to do, in order.
pub enum CoordinatorAction {
    Reply(ReplyTo, Vec<u8>),
    SendMember(u64, ToShard),
    CloseMember(u64),
    Log(String),
}

#[derive(Default)]
pub struct CoordinatorActions(pub Vec<CoordinatorAction>);

impl Output for CoordinatorActions {
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
    fn log_message(&mut self, _level: u32, text: &str) {
        self.0.push(CoordinatorAction::Log(text.to_owned()));
    }
}

pub struct CoordinatorNode {
    pub core: Coordinator,
    pub clients: BTreeMap<u64, RpcReader>,
    pub members: BTreeMap<u64, MemberReader>,
    /// The newest table whose placement was noted.
    pub last_table: u64,
    /// Names that tables have had.
    pub table_names: BTreeSet<String>,
}

impl CoordinatorNode {
    pub fn new(core: Coordinator) -> CoordinatorNode {
        // A coordinator that goes on has tables already.
        let tables = core.tables(0, u32::MAX).tables;
        CoordinatorNode {
            core,
            clients: BTreeMap::new(),
            members: BTreeMap::new(),
            last_table: tables.last().map_or(0, |table| table.table_id),
            table_names: tables.into_iter().map(|table| table.name).collect(),
        }
    }
}
