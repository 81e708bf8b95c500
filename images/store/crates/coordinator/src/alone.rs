//! What tests of single machines stand on: a store that is put together by hand, and a record of what is sent.

use core::time::Duration;

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::member::coordinator::Kind;
use wire::member::{BackupReport, Hello, ToShard};

use crate::store::Store;
use crate::{Config, CoordinatorEffects, CoordinatorEvent};

/// What was sent, by connection: that of server `n` is `100 + n`.
#[derive(Debug, Default)]
pub(crate) struct Said(pub Vec<(u64, Kind)>);

impl CoordinatorEffects for Said {
    fn reply(&mut self, _: ReplyTo, _: &[u8]) {}
    fn send_member(&mut self, connection: u64, message: ToShard) {
        self.0.extend(message.kind.map(|kind| (connection, kind)));
    }
    fn close_member(&mut self, _: u64) {}
    fn report(&mut self, _: CoordinatorEvent) {}
}

impl Said {
    /// What was said since the last call.
    pub fn take(&mut self) -> Vec<(u64, Kind)> {
        std::mem::take(&mut self.0)
    }
}

/// A store with this many servers that have copies, each of a member of its own, and a table of two tablets at the first.
pub(crate) fn store(servers: u64) -> (Store, u64) {
    let mut store = Store::new(Config::new(7, 0, "test"), Time(1000));
    let mut indexes = Vec::new();
    for number in 1..=servers {
        let hello = Hello {
            member: format!("m{number}"),
            instance: format!("instance-{number}"),
            process: number,
            host_id: format!("host {number}"),
            shard_count: 1,
            locator: "tcp:host=127.0.0.1,port=12100".to_owned(),
            backup_locator: "tcp:host=127.0.0.1,port=12200".to_owned(),
            replicas: 2,
            log_capacity_bytes: 256 << 20,
            build_version: "test".to_owned(),
            ..Hello::default()
        };
        let admitted = store
            .members
            .admit(Time(1000), 7, 100 + number, &hello, true);
        indexes.push(admitted.expect("it is the first of its name").index);
    }
    for &index in &indexes {
        let server = store.members.server_mut(index).expect("it was admitted");
        server.open_floor = Some(1);
        server.backup = Some(BackupReport {
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 1000,
            ..BackupReport::default()
        });
    }
    let first = [indexes[0]];
    let table = store.tables.create(1, b"t", 2, &[&first]);
    let table_id = table.expect("there is room").id;
    (store, table_id)
}

/// The index of server `number`.
pub(crate) fn index(store: &Store, number: u64) -> u32 {
    let index = store.members.server_of(100 + number);
    index.expect("it is connected")
}

pub(crate) fn id(store: &Store, number: u64) -> ServerId {
    store.id_of(index(store, number))
}

pub(crate) const MOMENT: Duration = Duration::from_millis(50);
