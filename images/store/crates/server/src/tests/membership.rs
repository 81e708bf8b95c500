//! A server and its coordinator.

use backup::{Backup, Durability};
use base::ids::ServerId;
use base::time::Time;
use master::Session;
use wire::format::Formats;
use wire::member::{
    Format, Log, Logs, Refused, RefusedReason, TabletOrder, TabletRange, coordinator,
};

use super::harness::*;
use crate::{Config, End, ServerEvent};

const TABLET: TabletRange = TabletRange {
    table_id: 1,
    start_key_hash: 0,
    end_key_hash: u64::MAX,
};

fn backup_only() -> Config {
    Config {
        backup_only: true,
        ..with_backup(Durability::Buffered)
    }
}

#[test]
fn the_storage_is_opened_for_the_cluster_that_lets_the_server_in() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    rig.tick();
    assert_eq!(rig.said.to_open, None);
    rig.welcome(CLUSTER);
    let config = rig.said.to_open.as_ref().unwrap();
    assert_eq!(config.cluster_id, CLUSTER);
    rig.open(empty_storage());
    assert!(rig.server.backup().is_some());
    assert_eq!(rig.server.must_end(), None);
}

#[test]
fn a_storage_of_another_cluster_ends_the_process() {
    let mut first = Rig::ready(Durability::Buffered);
    let backup = first.server.backup_mut().unwrap();
    let storage = backup.storage().clone();
    let mut second = Rig::new("m", with_backup(Durability::Buffered));
    second.welcome(CLUSTER + 1);
    second.open(storage);
    let text = second.server.must_end().unwrap().to_string();
    assert!(
        text.contains("belongs to cluster 000000000000004d"),
        "{text}"
    );
    assert!(second.server.backup().is_none());
}

#[test]
fn a_coordinator_of_another_cluster_ends_the_process() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.server.coordinator_lost(rig.now);
    rig.welcome(CLUSTER + 1);
    let text = rig.server.must_end().unwrap().to_string();
    assert!(
        text.contains("belongs to cluster 000000000000004d"),
        "{text}"
    );

    let mut opening = Rig::new("m", with_backup(Durability::Buffered));
    opening.welcome(CLUSTER);
    opening.welcome(CLUSTER + 1);
    assert!(opening.server.must_end().is_some());
}

#[test]
fn a_storage_that_is_no_backups_ends_the_process() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    rig.welcome(CLUSTER);
    let config = rig.said.to_open.take().unwrap();
    let mut storage = empty_storage();
    storage.rot(0, 1);
    let opened = Backup::open(rig.now, config, storage);
    rig.server.backup_opened(rig.now, opened);
    let text = rig.server.must_end().unwrap().to_string();
    assert!(text.contains("no backup's"), "{text}");
}

#[test]
fn orders_for_the_backup_before_a_welcome_end_the_session() {
    let orders = || {
        [
            coordinator::Kind::FenceLog(Log { log: 1 }),
            coordinator::Kind::ForgetLogs(Logs { logs: vec![1] }),
        ]
    };
    for order in orders() {
        let mut rig = Rig::new("m", with_backup(Durability::Buffered));
        assert_eq!(rig.order(order), Session::Close);
    }
    for order in orders() {
        let mut rig = Rig::ready(Durability::Buffered);
        assert_eq!(rig.order(order.clone()), Session::Continue);
        rig.server.coordinator_lost(rig.now);
        assert_eq!(rig.order(order), Session::Close);
    }
}

#[test]
fn a_backup_only_says_so_and_takes_no_tablets() {
    let mut rig = Rig::new("b", backup_only());
    assert!(rig.server.hello().backup_only);
    let session = rig.welcome_as(CLUSTER, OWN, vec![TABLET]);
    assert_eq!(session, Session::Close);
    assert_eq!(rig.welcome(CLUSTER), Session::Continue);
    let order = TabletOrder {
        sequence: 1,
        tablet: TABLET,
    };
    let session = rig.order(coordinator::Kind::TakeTablet(order));
    assert_eq!(session, Session::Close);
    assert_eq!(rig.server.shard().stats().tablets, 0);
    assert_eq!(rig.said.events.last(), Some(&ServerEvent::TabletRefused));
}

#[test]
fn a_master_only_asks_for_no_storage() {
    let config = Config {
        master: replicated(),
        backup: None,
        backup_only: false,
    };
    let mut rig = Rig::new("m", config);
    let hello = rig.server.hello();
    assert!(!hello.backup_only && hello.replicas == 1);
    rig.welcome(CLUSTER);
    assert_eq!(rig.said.to_open, None);
    let fence = coordinator::Kind::FenceLog(Log { log: 1 });
    assert_eq!(rig.order(fence), Session::Continue);
    assert_eq!(rig.server.close_in_order(), Ok(()));
}

fn superseded() -> coordinator::Kind {
    coordinator::Kind::Refused(Refused {
        reason: RefusedReason::Superseded.into(),
        text: "a newer process has the name".to_owned(),
    })
}

#[test]
fn a_process_that_others_have_replaced_ends_so_that_it_begins_anew() {
    let mut rig = Rig::ready(Durability::Buffered);
    rig.order(superseded());
    rig.tick();
    let text = rig.server.must_end().unwrap().to_string();
    assert!(text.contains("safely be started again"), "{text}");
}

#[test]
fn a_process_that_is_refused_for_ever_ends_with_the_reason_even_if_it_never_came_in() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    rig.order(superseded());
    rig.tick();
    let why = rig.server.must_end().expect("nobody will ever let it in");
    let why = why.to_string();
    assert!(why.contains("can safely be started again"), "{why}");
    assert!(rig.server.shard().is_superseded());
}

#[test]
fn a_master_without_replicas_stays_when_it_is_superseded() {
    let config = Config {
        master: master_config(),
        backup: None,
        backup_only: false,
    };
    let mut rig = Rig::new("m", config);
    rig.welcome_as(CLUSTER, ServerId::new(1, 0), Vec::new());
    rig.order(superseded());
    assert!(rig.tick() > Time::ZERO);
    assert_eq!(rig.server.must_end(), None);
}

#[test]
fn the_format_in_force_reaches_the_backup_also_while_it_is_opened() {
    let next = Formats {
        oldest: 1,
        newest: 2,
    };
    let mut config = with_backup(Durability::Buffered);
    config.master.formats = next;
    let activate = || coordinator::Kind::Activate(Format { format: 2 });
    for opens_late in [false, true] {
        let mut rig = Rig::new("m", config.clone());
        rig.welcome(CLUSTER);
        if opens_late {
            assert_eq!(rig.order(activate()), Session::Continue);
        }
        rig.open(empty_storage());
        if !opens_late {
            assert_eq!(rig.server.backup().unwrap().config().format, 1);
            assert_eq!(rig.order(activate()), Session::Continue);
        }
        assert_eq!(rig.server.backup().unwrap().config().format, 2);
    }
}

#[test]
fn a_process_of_a_build_that_the_store_has_left_behind_ends() {
    let refused = || {
        coordinator::Kind::Refused(Refused {
            reason: RefusedReason::Version.into(),
            text: "too old".to_owned(),
        })
    };
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    assert_eq!(rig.order(refused()), Session::Close);
    let wrong = End::WrongVersion("too old".to_owned());
    assert_eq!(rig.server.must_end(), Some(&wrong));
    // What one holds that was let in is not thrown away for a word.
    let mut rig = Rig::ready(Durability::Buffered);
    rig.server.coordinator_lost(rig.now);
    assert_eq!(rig.order(refused()), Session::Close);
    assert_eq!(rig.server.must_end(), None);
}
