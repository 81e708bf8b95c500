//! What coordinators do with what they hear, and with time.

use base::ids::{ReplyTo, TableId};
use base::time::Time;
use coordinator::reports::{MemberEvent, MigrationEvent, RecoveryEvent, TableEvent};
use coordinator::status::MoveReason;
use coordinator::{Coordinator, CoordinatorEvent};
use wire::opcode::Opcode;
use wire::rpc::SplitTabletRequest;

use crate::cluster::coordinator_node::{CoordinatorAction, CoordinatorActions, Core};
use crate::cluster::hosts::coordinator_host;
use crate::cluster::leaders::Heard;
use crate::cluster::{COORDINATOR, Cluster};

impl Cluster {
    /// Lets the coordinator do something, and then what is due.
    pub fn with_coordinator(
        &mut self,
        act: impl FnOnce(&mut Coordinator, Time, &mut CoordinatorActions),
    ) {
        let now = self.clock(COORDINATOR);
        let Some(Core::Alone(core)) = self.coordinators[0].node.as_mut().map(|it| &mut it.core)
        else {
            return;
        };
        let mut out = CoordinatorActions::default();
        act(core, now, &mut out);
        let next = core.tick(now, &mut out);
        // Before any of its output leaves.
        let changes = core.take_changes(now);
        self.noted_count += u64::from(!changes.is_empty());
        core.noted(self.noted_count);
        for pair in changes.puts {
            self.noted.insert(pair.key, pair.value);
        }
        for key in changes.deletes {
            self.noted.remove(&key);
        }
        for action in &mut out.0 {
            if let CoordinatorAction::SendMember(_, message) = action {
                core.sign(message);
            }
        }
        self.note_rebuilt(0);
        self.note_new_tables(0);
        for action in out.0 {
            self.carry_out(0, action);
        }
        self.tick_when(COORDINATOR, next);
    }

    /// Nobody waits for its replies any more.
    pub fn client_gone(&mut self, connection: u64) {
        if let Some(node) = &mut self.coordinators[0].node
            && let Core::Alone(core) = &mut node.core
        {
            core.connection_closed(connection);
        }
    }

    pub fn carry_out(&mut self, process: usize, action: CoordinatorAction) {
        let host = coordinator_host(process);
        match action {
            CoordinatorAction::Reply(to, payload) => {
                self.note_reply(host, to, &payload);
                if self.parties.contains_key(&(to.connection, 1)) {
                    self.send_payload(to.connection, 1, to.nonce, &payload);
                }
            }
            CoordinatorAction::SendMember(session, message) => {
                self.send_on_session(process, session, message);
            }
            CoordinatorAction::CloseMember(session) => self.end_session(process, session),
            CoordinatorAction::Report(event) => {
                self.count_event(process, &event);
                self.note_log(host, &event);
            }
        }
    }

    fn count_event(&mut self, process: usize, event: &CoordinatorEvent) {
        let what = match event {
            CoordinatorEvent::Member(event) => of_member(event),
            CoordinatorEvent::Recovery(event) => of_recovery(event),
            CoordinatorEvent::Migration(event) => of_migration(event),
            CoordinatorEvent::Table(TableEvent::Cut { .. }) => {
                self.note_cut(process);
                Some("tablets cut to be moved")
            }
            CoordinatorEvent::Table(TableEvent::Merged { .. }) => Some("tablets made one again"),
            CoordinatorEvent::Table(TableEvent::Split { kept, .. }) => {
                let kept_by_order = "boundaries of the store's own kept by order";
                self.coverage.add(kept_by_order, *kept);
                Some("tables split by order")
            }
            CoordinatorEvent::Table(TableEvent::CreateRefused(_) | TableEvent::SplitRefused(_))
            | CoordinatorEvent::State(_)
            | CoordinatorEvent::Client(_) => None,
        };
        if let Some(what) = what {
            self.coverage.hit(what);
        }
    }

    /// Remembers where each new table's keys live.
    pub fn note_new_tables(&mut self, process: usize) {
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        let Some(state) = node.state() else {
            return;
        };
        for table in state.tables(node.last_table, 16).tables {
            node.last_table = table.table_id;
            let ranges = table
                .tablets
                .iter()
                .map(|tablet| (tablet.end_key_hash, tablet.member.clone()))
                .collect();
            self.history.place(TableId(table.table_id), ranges);
            self.coverage.hit("tables created");
            if !node.table_names.insert(table.name) {
                self.coverage.hit("tables made again");
            }
        }
    }

    /// Remembers that a table is about to have one more tablet.
    fn note_split(&mut self, process: usize, payload: &[u8]) {
        let node = self.coordinators[process].node.as_ref();
        let state = node.and_then(|node| node.state());
        if let (Ok(request), Some(state)) = (SplitTabletRequest::decode(payload), state) {
            for table in state.tables(0, 0).tables {
                if table.name.as_bytes() == request.name {
                    self.history.split(self.now, TableId(table.table_id));
                }
            }
        }
    }

    /// The same when a coordinator splits one by itself, whichever it is.
    fn note_cut(&mut self, process: usize) {
        let node = self.coordinators[process].node.as_ref();
        let state = node.and_then(|node| node.state());
        let tables = state.map(|state| state.tables(0, 0).tables);
        for table in tables.into_iter().flatten() {
            self.history.split(self.now, TableId(table.table_id));
        }
    }

    pub fn coordinator_request(&mut self, process: usize, to: ReplyTo, payload: &[u8]) {
        self.note_request(coordinator_host(process), to, payload);
        if payload.first() == Some(&(Opcode::SplitTablet as u8)) {
            self.note_split(process, payload);
        }
        if payload.first() == Some(&(Opcode::DropTable as u8)) {
            self.coverage.hit("tables dropped");
        }
        self.coordinator_hears(process, Heard::Request(to, payload.to_vec()));
    }

    pub fn tick_coordinator(&mut self, host: u32) {
        if let Some(process) = self.coordinator_of(host) {
            self.coordinator_hears(process, Heard::Tick);
        }
    }
}

/// The count that an event of a member adds to; `None`: none.
fn of_member(event: &MemberEvent) -> Option<&'static str> {
    match event {
        MemberEvent::SessionSilent { .. } => Some("connections given up for silence"),
        MemberEvent::ServerDead { .. } => Some("servers declared dead"),
        MemberEvent::Enlisted { .. }
        | MemberEvent::ShardRefused { .. }
        | MemberEvent::VolumeRefused(_)
        | MemberEvent::OddMessage
        | MemberEvent::LowerFloor { .. }
        | MemberEvent::Removed { .. }
        | MemberEvent::Drained { .. }
        | MemberEvent::Undrained { .. }
        | MemberEvent::LastResortEnded { .. }
        | MemberEvent::BackupRetired { .. }
        | MemberEvent::StorageStopped { .. }
        | MemberEvent::StorageGoesOn { .. }
        | MemberEvent::BackupsFull { .. } => None,
    }
}

fn of_recovery(event: &RecoveryEvent) -> Option<&'static str> {
    match event {
        RecoveryEvent::Began { .. } => Some("recoveries begun"),
        RecoveryEvent::Ended { .. } => Some("recoveries ended"),
        RecoveryEvent::TabletsLost { .. } => Some("losses recorded"),
        RecoveryEvent::Waits { .. }
        | RecoveryEvent::LossAccepted { .. }
        | RecoveryEvent::MayHaveLost { .. } => None,
    }
}

fn of_migration(event: &MigrationEvent) -> Option<&'static str> {
    match event {
        MigrationEvent::Began {
            reason: Some(MoveReason::Uneven { .. }),
            ..
        } => Some("migrations begun for evenness"),
        MigrationEvent::Ended { .. } => Some("migrations ended"),
        MigrationEvent::GivenUp { .. } => Some("migrations given up"),
        MigrationEvent::Began {
            reason: Some(MoveReason::Drains { .. }) | None,
            ..
        }
        | MigrationEvent::Refused(_) => None,
    }
}
