//! MIGRATE_TABLET of RAMCloud's protocol, and a drain, in a store without copies: what moves is in one process's memory alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use base::ids::ServerId;
use client::TableId;
use wire::rpc::{MigrateTabletRequest, status};
use wire::status::Status;

use crate::common::{Rpc, Store, rcbox, wait_for};

const KEYS: u32 = 500;
/// Writes that are acknowledged between two moves.
const WRITES: u64 = 50;

fn owner(store: &Store) -> String {
    let tables = store.coordinator.tables();
    let tablets = tables[0]["tablets"].as_array().unwrap();
    assert_eq!(tablets.len(), 1, "{tables}");
    tablets[0]["member"].as_str().unwrap().to_owned()
}

/// As RAMCloud's client asks: the master that has the tablet.
fn migrate(store: &Store, table: TableId, source: usize, target: usize) {
    let mut request = Vec::new();
    MigrateTabletRequest {
        table_id: table,
        first_key_hash: 0,
        last_key_hash: u64::MAX,
        new_owner: ServerId::new(target as u32 + 1, 0),
    }
    .encode(&mut request);
    let mut master = Rpc::connect(store.servers[source].shards[0]);
    let answer = master.call_until_done(&request);
    assert_eq!(status(&answer), Ok(Status::Ok));
    assert_eq!(owner(store), format!("m{target}"));
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(75)
}

/// Everything is there, and the counter is what was acknowledged last.
fn check(store: &Store, table: TableId, counted: u64) {
    let mut cluster = store.cluster();
    for number in 0..KEYS {
        let object = cluster.read(table, &number.to_le_bytes()).unwrap();
        assert_eq!(object.value, value(number)[..]);
    }
    let counter = cluster.read(table, b"counter").unwrap();
    assert_eq!(counter.value, counted.to_le_bytes()[..]);
}

/// Ends the client that writes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_tablet_moves_between_servers_without_copies_while_it_is_written() {
    let mut store = Store::start(2, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 1).unwrap();
    for number in 0..KEYS {
        cluster
            .write(table, &number.to_le_bytes(), &value(number))
            .unwrap();
    }
    let first = usize::from(owner(&store) == "m1");
    let (is_over, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cluster = store.cluster();
            while !is_over.load(SeqCst) {
                let sum = cluster.increment(table, b"counter", 1).unwrap();
                let before = counted.fetch_add(1, SeqCst);
                assert_eq!(sum.value, before as i64 + 1, "each counts once");
            }
        });
        // Also when something is wrong here.
        let _ends = Ends(&is_over);
        for turn in 0..3 {
            let seen = counted.load(SeqCst);
            wait_for("writes", || {
                (counted.load(SeqCst) >= seen + WRITES).then_some(())
            });
            let source = (first + turn) % 2;
            migrate(&store, table, source, 1 - source);
        }
    });
    let counted = counted.load(SeqCst);
    check(&store, table, counted);
    // Back once more, since the member is to leave.
    let leaving = owner(&store);
    let told = |words: &[&str]| {
        let output = rcbox(&store.coordinator.locator, words, b"");
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    told(&["member", "drain", &leaving, "--wait"]);
    told(&["member", "remove", &leaving, "--yes"]);
    assert_ne!(owner(&store), leaving);
    let at = usize::from(leaving == "m1");
    store.servers.remove(at);
    check(&store, table, counted);
}
