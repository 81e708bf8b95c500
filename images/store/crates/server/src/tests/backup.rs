//! What the server does for its backup.

use std::time::Duration;

use backup::{Durability, Scope};
use master::Session;
use wire::entry::{self, Digest, Entry};
use wire::format::FIRST_FORMAT;
use wire::member::{Log, Logs, MigrateOut, TabletOrder, TabletRange, coordinator};
use wire::peer::{
    Answer, Data, Entries, Free, Held, KeepAlive, List, Listed, Listing, Malformed, MigrateRead,
    Migrating, Read, ReadEntries, Status,
};

use super::harness::*;
use crate::{Config, PeerError, ServerEvent};

#[test]
fn peers_are_answered() {
    let mut rig = Rig::ready(Durability::Buffered);
    let nonce = rig.append(replica(1), b"content");
    let answer = rig.answer_to(nonce).unwrap();
    let held = Answer {
        status: Status::Ok,
        bytes: 7,
    };
    assert_eq!(Answer::decode(&answer), Ok(held));
    let log = replica(1).log;
    let nonce = rig.ask(&KeepAlive { log }.to_bytes());
    assert_eq!(rig.status_of(nonce), Status::Ok);
    let read = Read {
        replica: replica(1),
        offset: 3,
        bytes: 100,
    };
    let nonce = rig.ask(&read.to_bytes());
    rig.tick();
    let answer = rig.answer_to(nonce).unwrap();
    let (status, data) = (Status::Ok, &b"tent"[..]);
    assert_eq!(Data::decode(&answer), Ok(Data { status, data }));
    let free = Free {
        replica: replica(1),
    };
    let nonce = rig.ask(&free.to_bytes());
    assert_eq!(rig.status_of(nonce), Status::Ok);
    let nonce = rig.ask(&read.to_bytes());
    rig.tick();
    let answer = rig.answer_to(nonce).unwrap();
    assert_eq!(Data::decode(&answer).unwrap().status, Status::Missing);
}

#[test]
fn without_a_backup_other_servers_read_tablets_that_leave_and_nothing_else() {
    let alone = Config {
        backup: None,
        ..with_backup(Durability::Buffered)
    };
    let mut rig = Rig::new("m", alone);
    assert_eq!(rig.welcome(CLUSTER), Session::Continue);
    let tablet = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };
    let take = TabletOrder {
        sequence: 1,
        tablet,
    };
    rig.order(coordinator::Kind::TakeTablet(take));
    let read = |migration_id| MigrateRead {
        migration_id,
        piece: 0,
        bytes: 1000,
        freezes: false,
    };
    rig.order(coordinator::Kind::MigrateOut(MigrateOut {
        migration_id: 3,
        tablet,
        target: 9,
    }));
    for (migration_id, expected) in [(3, Status::Ok), (4, Status::Missing)] {
        let nonce = rig.ask(&read(migration_id).to_bytes());
        let answer = rig.answer_to(nonce).unwrap();
        assert_eq!(Migrating::decode(&answer).unwrap().status, expected);
    }
    let log = replica(1).log;
    let nonces = [
        rig.append(replica(1), b"content"),
        rig.ask(&KeepAlive { log }.to_bytes()),
        rig.ask(b"nonsense"),
    ];
    assert_eq!(nonces.map(|nonce| rig.answer_to(nonce)), [None, None, None]);
    assert_eq!(rig.said.peers_closed, [PEER; 3]);
}

/// The beginning of a head, as far as a recovery wants to know.
fn digest(ids: &[u64]) -> Vec<u8> {
    let ids: Vec<[u8; 8]> = ids.iter().map(|id| id.to_le_bytes()).collect();
    let digest = Digest::new(&ids);
    let mut bytes = vec![0; digest.entry_bytes()];
    entry::write(&digest, FIRST_FORMAT, &mut bytes);
    bytes
}

#[test]
fn recoveries_and_returning_masters_are_answered() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.append(replica(1), &digest(&[]));
    let mut request = Vec::new();
    ReadEntries::encode(replica(1), 0, 100, &[], &mut request);
    // Some in a tick, and none of those whose connection is gone.
    let nonce = rig.ask(&request);
    let second = (0..20).map(|_| rig.ask(&request)).last().unwrap();
    assert_eq!(rig.answer_to(nonce), None);
    assert_eq!(rig.tick(), rig.now, "there is more to do");
    let answer = rig.answer_to(nonce).unwrap();
    assert_eq!(rig.answer_to(second), None);
    rig.server.peer_closed(PEER);
    rig.tick();
    assert_eq!(rig.answer_to(second), None);
    let nothing = Entries {
        status: Status::Ok,
        next_offset: 8,
        data: &[],
    };
    assert_eq!(Entries::decode(&answer), Ok(nothing));
    let log = replica(1).log;
    let nonce = rig.ask(&List { log }.to_bytes());
    let listing = Listing::decode(&rig.answer_to(nonce).unwrap());
    let open = Listed {
        segment_id: 1,
        held: Held::OpenHead,
    };
    let (status, replicas) = (Status::Ok, vec![open]);
    assert_eq!(listing, Ok(Listing { status, replicas }));
}

#[test]
fn what_makes_no_sense_ends_the_connection() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.ask(b"nonsense");
    assert_eq!(rig.said.peers_closed, [PEER]);
    assert!(rig.said.answers.is_empty());
    assert!(matches!(
        rig.said.events.last(),
        Some(ServerEvent::PeerClosed(PeerError::Malformed(
            Malformed::UnknownKind(_)
        )))
    ));
}

#[test]
fn before_the_storage_is_open_peers_are_sent_away() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    rig.append(replica(1), b"x");
    rig.welcome(CLUSTER);
    rig.append(replica(1), b"x");
    assert_eq!(rig.said.peers_closed, [PEER, PEER]);
    rig.open(empty_storage());
    let nonce = rig.append(replica(1), b"x");
    assert_eq!(rig.status_of(nonce), Status::Ok);
}

#[test]
fn flushed_appends_are_answered_after_a_sync() {
    let mut rig = Rig::ready(Durability::Flushed);
    let nonce = rig.append(replica(1), b"x");
    rig.tick();
    assert_eq!(rig.answer_to(nonce), None);
    rig.finish_sync(Scope::All);
    assert_eq!(rig.status_of(nonce), Status::Ok);
}

#[test]
fn a_peer_has_a_bounded_number_of_appends_waiting() {
    let mut rig = Rig::ready(Durability::Flushed);
    let fill = |rig: &mut Rig| {
        for _ in 0..1 << 16 {
            rig.append(replica(1), b"x");
        }
        rig.tick();
    };
    fill(&mut rig);
    rig.finish_sync(Scope::All);
    assert_eq!(rig.said.answers.len(), 1 << 16);
    // What is answered does not count any more.
    fill(&mut rig);
    assert!(rig.said.peers_closed.is_empty());
    rig.append(replica(1), b"x");
    assert_eq!(rig.said.peers_closed, [PEER]);
    // It can connect again, and what waited before is not counted twice.
    rig.peer += 1;
    fill(&mut rig);
    rig.finish_sync(Scope::All);
    rig.finish_sync(Scope::All);
    assert_eq!(rig.said.answers.len(), 3 << 16);
    assert_eq!(rig.said.peers_closed, [PEER]);
}

#[test]
fn the_coordinator_learns_what_the_backup_holds_once_for_each_session() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    rig.welcome(CLUSTER);
    rig.tick();
    assert_eq!(rig.report(), None, "the storage is not open");
    rig.open(empty_storage());
    rig.tick();
    let report = rig.report().unwrap();
    assert_eq!((report.frames, report.frames_free), (FRAMES, FRAMES));
    assert_eq!(report.segment_bytes, 1 << 14);
    assert!(report.logs.is_empty() && report.retired.is_empty());

    rig.append(replica(1), b"x");
    let next = rig.tick();
    assert_eq!(rig.report(), None, "at most once a second");
    assert!(next <= rig.now + Duration::from_secs(1));
    rig.pass(Duration::from_secs(1));
    let report = rig.report().unwrap();
    assert_eq!(report.frames_free, FRAMES - 1);
    assert!(report.logs.is_empty(), "of the first report only");

    rig.append(replica(1), b"x");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.report(), None, "nothing has changed");

    rig.server.coordinator_lost(rig.now);
    rig.append(replica(2), b"x");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.report(), None, "nobody is there");
    rig.welcome(CLUSTER);
    assert_eq!(rig.said.to_open, None, "it is open");
    rig.tick();
    let report = rig.report().unwrap();
    assert_eq!(report.logs, [replica(1).log.0]);
    assert_eq!(report.frames_free, FRAMES - 2);
}

#[test]
fn a_failed_storage_is_reported() {
    let mut rig = Rig::ready(Durability::Buffered);
    let backup = rig.server.backup_mut().unwrap();
    backup.storage_mut().faults.writes = Some("no space left".to_owned());
    let nonce = rig.append(replica(1), b"x");
    assert_eq!(rig.status_of(nonce), Status::Retired);
    rig.pass(Duration::from_secs(1));
    assert!(rig.report().unwrap().retired.contains("no space left"));
    assert_eq!(rig.server.must_end(), None, "what can be read is given out");
}

#[test]
fn a_storage_that_stops_and_goes_on_is_reported_though_nobody_asks_for_anything() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.pass(Duration::from_secs(2));
    let storage = rig.server.backup_mut().unwrap().storage_mut();
    storage.is_late = true;
    rig.append(replica(1), b"x");
    rig.pass(Duration::from_millis(900));
    rig.said.messages.clear();
    rig.pass(Duration::from_millis(200));
    rig.pass(Duration::from_secs(1));
    let report = rig.report().expect("a report without traffic");
    assert!(!report.stalled.is_empty());
    rig.pass(Duration::from_secs(2));
    rig.said.messages.clear();
    let storage = rig.server.backup_mut().unwrap().storage_mut();
    let (writes, _, _) = storage.waiting();
    storage.carry_out(writes);
    storage.report();
    rig.tick();
    rig.pass(Duration::from_secs(1));
    let report = rig.report().expect("a report without traffic");
    assert!(report.stalled.is_empty());
}

#[test]
fn a_log_is_fenced_and_its_inventory_given_when_no_promise_is_left() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.pass(Duration::from_secs(10));
    rig.append(replica(1), &digest(&[8, 9]));
    rig.pass(Duration::from_millis(100));
    let log = replica(1).log;
    rig.order(coordinator::Kind::FenceLog(Log { log: log.0 }));
    rig.tick();
    rig.finish_sync(Scope::Superblock);
    let nonce = rig.append(replica(1), b"more");
    assert_eq!(rig.status_of(nonce), Status::Fenced);
    assert_eq!(rig.inventory(), None, "a promise is left");
    rig.pass(Duration::from_millis(104));
    let inventory = rig.inventory().unwrap();
    assert_eq!(inventory.log, log.0);
    let found = &inventory.replicas[0];
    assert_eq!((found.segment_id, found.bytes), (1, 24));
    assert_eq!(found.digest, [8, 9]);
    assert!(found.is_open && !found.is_side && found.damage.is_empty());
    // Whoever asks again is answered again.
    rig.order(coordinator::Kind::FenceLog(Log { log: log.0 }));
    rig.tick();
    assert!(rig.inventory().is_some());

    let logs = vec![log.0];
    rig.order(coordinator::Kind::ForgetLogs(Logs { logs }));
    rig.tick();
    let held = rig.server.backup().unwrap().logs().count();
    assert_eq!(held, 0);
}

#[test]
fn its_own_log_is_never_forgotten() {
    let mut rig = Rig::ready(Durability::Buffered);
    let own = wire::peer::ReplicaId {
        log: OWN,
        segment_id: 1,
    };
    rig.append(own, b"x");
    let logs = vec![OWN.0, replica(1).log.0];
    let session = rig.order(coordinator::Kind::ForgetLogs(Logs { logs }));
    assert_eq!(session, Session::Continue);
    assert_eq!(rig.server.backup().unwrap().logs().count(), 1);
    assert_eq!(rig.said.events.last(), Some(&ServerEvent::OwnLogKept));
}

#[test]
fn a_server_that_is_told_to_end_closes_its_storage_in_order() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.append(replica(1), b"x");
    assert_eq!(rig.server.close_in_order(), Ok(()));
    let mut failing = Rig::ready(Durability::Buffered);
    let backup = failing.server.backup_mut().unwrap();
    backup.storage_mut().faults.syncs = Some("gone".to_owned());
    assert!(failing.server.close_in_order().is_err());
}
