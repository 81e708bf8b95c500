//! A shard whose log has replicas: the test plays its backups.

use core::time::Duration;

use base::ids::ServerId;
use wire::member::{self, OpenFloor, coordinator, shard};
use wire::peer::{self, Answer, Listing, Request};
use wire::rpc::{ReadResponse, RejectRules, RetryResponse, WriteResponse};
use wire::status::Status;

use super::harness::*;
use crate::*;

fn replicated() -> Config {
    Config {
        replication: Some(Replication {
            replicas: 2,
            min_replicas: 1,
            copy_bytes: 1 << 17,
            repair_bytes_per_second: 1 << 40,
        }),
        ..small(Durability::External)
    }
}

fn backup(number: u64) -> member::Backup {
    member::Backup {
        server_id: number,
        host_id: format!("host-{number}"),
        locator: format!("tcp:host=host-{number},port=1"),
        segment_bytes: 8 << 20,
        ..member::Backup::default()
    }
}

/// A shard that was told of two backups, and is connected with them.
fn with_backups() -> Driver {
    let mut driver = Driver::enlisted(replicated());
    let list = member::Backups {
        backups: vec![backup(10), backup(11)],
        number: 1,
    };
    driver.order(coordinator::Kind::Backups(list));
    driver.tick();
    for id in std::mem::take(&mut driver.said.backups_connected) {
        let (now, channel) = (driver.now, Channel::Replication);
        driver
            .shard
            .backup_connected(now, channel, id, &mut driver.said);
    }
    driver.tick();
    driver.answer_lists();
    driver
}

impl Driver {
    fn tick(&mut self) {
        self.shard.tick(self.now, &mut self.said);
    }

    /// Backups that were asked what they hold have nothing.
    fn answer_lists(&mut self) {
        let mut nothing = Vec::new();
        let (status, replicas) = (peer::Status::Ok, Vec::new());
        Listing { status, replicas }.encode(&mut nothing);
        for (id, nonce, request) in std::mem::take(&mut self.said.to_backups) {
            assert!(matches!(Request::decode(&request), Ok(Request::List(_))));
            let (now, channel) = (self.now, Channel::Replication);
            self.shard
                .backup_answer(now, channel, id, nonce, &nothing, &mut self.said);
        }
        self.tick();
    }

    /// All requests that backups have got are answered with this.
    fn answer_all(&mut self, status: peer::Status) {
        for (id, nonce, _) in std::mem::take(&mut self.said.to_backups) {
            let answer = Answer { status, bytes: 0 }.to_bytes();
            self.shard.backup_answer(
                self.now,
                Channel::Replication,
                id,
                nonce,
                &answer,
                &mut self.said,
            );
        }
        self.tick();
    }

    fn raise_floor(&mut self) {
        let is_floor = |kind: &shard::Kind| matches!(kind, shard::Kind::RaiseOpenFloor(_));
        let at = self
            .said
            .messages
            .iter()
            .position(is_floor)
            .expect("a floor is asked for");
        let shard::Kind::RaiseOpenFloor(floor) = self.said.messages.remove(at) else {
            unreachable!()
        };
        self.order(coordinator::Kind::OpenFloorRaised(floor));
        self.tick();
    }

    fn reads(&mut self) -> Status {
        let reply = self.call(&read(b"none"));
        if RetryResponse::decode(&reply).is_ok() {
            return Status::Retry;
        }
        ReadResponse::decode(&reply).unwrap().status
    }
}

#[test]
fn nothing_is_served_before_the_log_has_a_head_on_its_backups() {
    let mut driver = Driver::enlisted(replicated());
    assert_eq!(driver.reads(), Status::Retry, "no backup");
    driver = with_backups();
    assert_eq!(driver.reads(), Status::Retry, "no answer");
    driver.answer_all(peer::Status::Ok);
    assert_eq!(driver.reads(), Status::Retry, "no floor");
    driver.raise_floor();
    assert_eq!(driver.reads(), Status::ObjectDoesntExist);
}

#[test]
fn a_write_is_answered_when_all_backups_have_it() {
    let mut driver = with_backups();
    driver.answer_all(peer::Status::Ok);
    driver.raise_floor();
    let nonce = driver.send(&write(lease(1), 1, 0, b"key", b"1", RejectRules::default()));
    driver.tick();
    assert_eq!(driver.said.to_backups.len(), 2, "both in one burst");
    let (id, first, _) = driver.said.to_backups.remove(0);
    let done = Answer {
        status: peer::Status::Ok,
        bytes: 0,
    }
    .to_bytes();
    driver.shard.backup_answer(
        driver.now,
        Channel::Replication,
        id,
        first,
        &done,
        &mut driver.said,
    );
    driver.tick();
    assert!(driver.reply_to(nonce).is_none(), "one of two");
    driver.answer_all(peer::Status::Ok);
    let reply = driver.reply_to(nonce).expect("both have it");
    assert_eq!(WriteResponse::decode(&reply).unwrap().status, Status::Ok);
}

#[test]
fn a_master_that_backups_do_not_answer_stops_to_serve_and_goes_on_when_they_do() {
    let mut driver = with_backups();
    driver.answer_all(peer::Status::Ok);
    driver.raise_floor();
    driver.now += peer::SERVING_LEASE - Duration::from_nanos(1);
    assert_eq!(driver.reads(), Status::ObjectDoesntExist);
    driver.now += Duration::from_nanos(1);
    assert_eq!(driver.reads(), Status::Retry);
    driver.tick();
    driver.answer_all(peer::Status::Ok);
    assert_eq!(driver.reads(), Status::ObjectDoesntExist);
}

#[test]
fn a_master_whose_log_is_recovered_answers_nothing_more() {
    let mut driver = with_backups();
    driver.answer_all(peer::Status::Ok);
    driver.raise_floor();
    let nonce = driver.send(&write(lease(1), 1, 0, b"key", b"1", RejectRules::default()));
    driver.tick();
    driver.answer_all(peer::Status::Fenced);
    assert_eq!(driver.reads(), Status::Retry);
    driver.order(coordinator::Kind::Refused(member::Refused {
        reason: member::RefusedReason::Superseded.into(),
        text: "others have what it had".to_owned(),
    }));
    // A backup that has it may be believed, so the request may have had an effect: nothing may say that it had none.
    assert_eq!(driver.reply_to(nonce), None);
}

#[test]
fn an_answer_that_cannot_be_read_ends_the_connection() {
    let mut driver = with_backups();
    let (id, nonce, _) = driver.said.to_backups.remove(0);
    driver.shard.backup_answer(
        driver.now,
        Channel::Replication,
        id,
        nonce,
        b"?",
        &mut driver.said,
    );
    assert_eq!(driver.said.backups_disconnected, [id]);
}

#[test]
fn another_incarnation_has_another_log() {
    let mut driver = with_backups();
    driver.answer_all(peer::Status::Ok);
    driver.raise_floor();
    driver.welcome(CLUSTER, ServerId::new(1, 1), 1, &[WHOLE_TABLE]);
    assert_eq!(
        driver.said.backups_disconnected,
        [ServerId(10), ServerId(11)]
    );
    assert_eq!(driver.reads(), Status::Retry);
    // What the former log's floor was does not count.
    driver.order(coordinator::Kind::OpenFloorRaised(OpenFloor {
        segment_id: 1,
    }));
    assert_eq!(driver.reads(), Status::Retry);
}

#[test]
fn the_coordinator_hears_of_a_broken_connection_once_a_second() {
    let mut driver = with_backups();
    let suspected = |driver: &mut Driver| {
        let messages = std::mem::take(&mut driver.said.messages).into_iter();
        let ids = messages.filter_map(|kind| match kind {
            shard::Kind::SuspectServer(suspect) => Some(suspect.server_id),
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    let breaks = |driver: &mut Driver, id| {
        let (now, channel) = (driver.now, Channel::Replication);
        driver
            .shard
            .backup_disconnected(now, channel, ServerId(id), &mut driver.said);
    };
    breaks(&mut driver, 10);
    breaks(&mut driver, 10);
    breaks(&mut driver, 11);
    assert_eq!(suspected(&mut driver), [10, 11]);
    driver.now += Duration::from_millis(999);
    breaks(&mut driver, 10);
    assert_eq!(suspected(&mut driver), [0; 0]);
    driver.now += Duration::from_millis(1);
    breaks(&mut driver, 10);
    assert_eq!(suspected(&mut driver), [10]);
    driver.now += Duration::from_secs(1);
    driver.shard.coordinator_lost(driver.now);
    breaks(&mut driver, 10);
    assert_eq!(suspected(&mut driver), [0; 0], "nobody hears it");
}

#[test]
fn a_backup_whose_frames_are_too_small_gets_no_replicas() {
    let mut driver = Driver::enlisted(replicated());
    let small = member::Backup {
        segment_bytes: (1 << 14) - 1,
        ..backup(10)
    };
    let backups = vec![small, backup(11)];
    driver.order(coordinator::Kind::Backups(member::Backups {
        backups,
        number: 1,
    }));
    driver.tick();
    assert_eq!(driver.said.backups_connected, [ServerId(11)]);
    let too_small = ReplicasEvent::FramesTooSmall {
        backup: ServerId(10),
        frame_bytes: (1 << 14) - 1,
        segment_bytes: 1 << 14,
    };
    assert_eq!(driver.said.events.last(), Some(&too_small.into()));
}

#[test]
fn a_pong_says_what_is_on_backups_that_are_drained() {
    let mut driver = with_backups();
    let pong = |driver: &mut Driver| {
        driver.said.messages.clear();
        driver.order(coordinator::Kind::Ping(member::Ping::default()));
        let shard::Kind::Pong(pong) = driver.said.messages.remove(0) else {
            panic!("no pong");
        };
        pong.on_draining.expect("this build says so")
    };
    let before = pong(&mut driver);
    assert_eq!((before.list_number, before.backups.len()), (1, 0));
    driver.answer_all(peer::Status::Ok);
    let draining = |number| member::Backup {
        is_draining: true,
        ..backup(number)
    };
    // Of the last it knows nothing, as its frames are too small.
    let small = member::Backup {
        segment_bytes: 1,
        ..draining(12)
    };
    let list = member::Backups {
        backups: vec![backup(10), draining(11), small],
        number: 7,
    };
    driver.order(coordinator::Kind::Backups(list));
    driver.tick();
    let said = pong(&mut driver);
    assert_eq!(said.list_number, 7);
    let at = said.backups.iter().map(|at| (at.backup, at.segments > 0));
    assert_eq!(at.collect::<Vec<_>>(), [(11, true), (12, false)]);
}

#[test]
fn settings_are_in_force_at_once_and_until_they_are_taken_back() {
    let mut driver = with_backups();
    let copies = |driver: &mut Driver| {
        driver.order(coordinator::Kind::Ping(member::Ping::default()));
        let Some(shard::Kind::Pong(pong)) = driver.said.messages.pop() else {
            panic!("no answer to a ping");
        };
        let wanted = driver.shard.config().replication.unwrap();
        assert_eq!(pong.replicas, Some(wanted.replicas.into()));
        assert_eq!(driver.shard.hello().replicas, u32::from(wanted.replicas));
        (pong.settings, wanted.replicas, wanted.min_replicas)
    };
    assert_eq!(copies(&mut driver), (0, 2, 1));
    let three = member::Settings {
        number: 4,
        replicas: Some(3),
        repair_mbps: Some(7),
        poll_micros: Some(0),
        ..member::Settings::default()
    };
    driver.order(coordinator::Kind::Settings(three));
    assert_eq!(copies(&mut driver), (4, 3, 2));
    let wanted = driver.shard.config().replication.unwrap();
    assert_eq!(wanted.repair_bytes_per_second, 7_000_000);
    assert_eq!(driver.said.settings, Some(three), "polling is the driver's");

    // What makes no sense is passed over.
    let none = member::Settings {
        replicas: Some(0),
        ..three
    };
    driver.order(coordinator::Kind::Settings(none));
    assert_eq!(copies(&mut driver), (4, 3, 2));

    // The next coordinator may not know of any.
    driver.shard.coordinator_lost(driver.now);
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    assert_eq!(copies(&mut driver), (0, 2, 1));
    assert_eq!(driver.said.settings, Some(member::Settings::default()));
}
