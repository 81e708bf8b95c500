//! Messages of a backup, on their way to the driver and to the coordinator.

use std::collections::BTreeMap;

use backup::{BackupEvent, Inventory};
use base::ids::ReplyTo;
use wire::member::{ToCoordinator, shard};
use wire::peer::{Answer, Data, Entries, Status};

use crate::effects::ServerEffects;
use crate::report;

/// Requests of each connection that are not answered yet.
pub(crate) type Waiting = BTreeMap<u64, u32>;

/// Passes on what a backup says.
pub(crate) struct FromBackup<'a, O> {
    pub out: &'a mut O,
    pub waiting: &'a mut Waiting,
    /// Where a checkpoint goes that was asked for.
    pub read: &'a mut Option<Vec<u8>>,
}

impl<O: ServerEffects> backup::BackupEffects for FromBackup<'_, O> {
    fn answer(&mut self, to: ReplyTo, answer: Answer) {
        // A connection that is gone is not counted any more.
        if let Some(waiting) = self.waiting.get_mut(&to.connection) {
            *waiting -= 1;
        }
        self.out.answer_peer(to, &[&answer.to_bytes()]);
    }

    fn data(&mut self, to: ReplyTo, status: Status, data: &[u8]) {
        self.out
            .answer_peer(to, &[&Data::fixed_bytes(status), data]);
    }

    fn entries(&mut self, to: ReplyTo, status: Status, next_offset: u32, data: &[u8]) {
        let fixed = Entries::fixed_bytes(status, next_offset);
        self.out.answer_peer(to, &[&fixed, data]);
    }

    fn checkpoint(&mut self, bytes: Option<Vec<u8>>) {
        *self.read = Some(bytes.unwrap_or_default());
    }

    fn report(&mut self, event: BackupEvent) {
        self.out.report_server(event.into());
    }

    fn released(&mut self, inventory: Inventory) {
        let kind = shard::Kind::LogInventory(report::log_inventory(inventory));
        self.out.send_coordinator(ToCoordinator::from(kind));
    }
}
