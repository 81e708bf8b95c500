//! Checkpoints in volumes, and a store that is made again from them: a test for each rule of docs/rebuild.md.

mod given_up;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::replicated::{Store, with_replicas};
use crate::common::{self, Action, Recorder, create_table, hello};
use coordinator::checkpoint::{self, HEADER_BYTES};
use coordinator::status::Checkpoint;
use coordinator::{Config, Coordinator};
use wire::ids::{ServerId, TableId};
use wire::member::coordinator::Kind;
use wire::member::{
    BackupReport, CheckpointKept, CheckpointPart, Hello, KeepCheckpoint, OpenFloor, Pong, Position,
    RefusedReason, ToCoordinator, shard,
};
use wire::rpc;
use wire::time::Time;

const CLUSTER: u64 = common::CLUSTER;

/// A store whose backups keep checkpoints, and what each of them keeps.
struct Kept {
    store: Store,
    volumes: BTreeMap<u64, Vec<u8>>,
    coming: BTreeMap<u64, Vec<u8>>,
    /// Who does not answer.
    silent: BTreeSet<u64>,
    /// Who has no room.
    full: BTreeSet<u64>,
}

impl Kept {
    /// With `members` members, each with a table's worth of tablets.
    fn new(members: u64) -> Kept {
        let mut kept = Kept {
            store: Store::new(members),
            volumes: BTreeMap::new(),
            coming: BTreeMap::new(),
            silent: BTreeSet::new(),
            full: BTreeSet::new(),
        };
        kept.store.harness.coordinator.begin_term(5, 0);
        for number in 1..=members {
            let report = BackupReport {
                segment_bytes: 8 << 20,
                frames: 1000,
                frames_free: 1000,
                keeps_checkpoints: true,
                ..BackupReport::default()
            };
            kept.store.says(number, shard::Kind::BackupReport(report));
        }
        kept.settle();
        kept
    }

    fn advance(&mut self, ms: u64) -> Vec<Action> {
        self.store.harness.advance(Duration::from_millis(ms))
    }

    /// One round: what is due, with what backups answer; everything that is said but checkpoints and pings.
    fn round(&mut self, ms: u64) -> Vec<Action> {
        let mut rest = Vec::new();
        let mut actions = self.advance(ms);
        while !actions.is_empty() {
            let mut next = Vec::new();
            for action in actions {
                match action {
                    Action::Send(connection, Kind::KeepCheckpoint(part)) => {
                        next.extend(self.keep(connection - 100, &part));
                    }
                    Action::Send(connection, Kind::Ping(ping)) => {
                        let pong = Pong {
                            sequence: ping.sequence,
                            ..Pong::default()
                        };
                        let kind = shard::Kind::Pong(pong);
                        next.extend(self.store.harness.shard_says(connection, kind));
                    }
                    other => rest.push(other),
                }
            }
            next.extend(self.advance(0));
            actions = next;
        }
        rest
    }

    fn keep(&mut self, number: u64, part: &KeepCheckpoint) -> Vec<Action> {
        if self.silent.contains(&number) {
            return Vec::new();
        }
        let bytes = self.coming.entry(number).or_default();
        if part.offset == 0 {
            bytes.clear();
        }
        assert_eq!(bytes.len() as u64, part.offset, "parts come in order");
        bytes.extend_from_slice(&part.data);
        let mut kept = CheckpointKept {
            number: part.number,
            bytes: bytes.len() as u64,
            ..CheckpointKept::default()
        };
        if self.full.contains(&number) {
            kept.failure = "no frame is free".to_owned();
        } else if bytes.len() as u64 == part.total_bytes {
            kept.is_kept = true;
            self.volumes.insert(number, bytes.clone());
        }
        self.store.says(number, shard::Kind::CheckpointKept(kept))
    }

    /// Until everything is kept that can be.
    fn settle(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..30 {
            all.extend(self.round(100));
        }
        all
    }

    /// Makes a table, which takes until its owners have been told.
    fn create(&mut self, name: &str, span: u32) -> TableId {
        let mut actions = self.store.harness.request(&create_table(name, span));
        for _ in 0..20 {
            actions.extend(self.round(100));
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Send(on, Kind::TakeTablet(order)) => {
                        actions.extend(self.store.harness.done(on, order.sequence));
                    }
                    Action::Reply(_, bytes) => {
                        return rpc::TableIdResponse::decode(&bytes).unwrap().table_id;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        panic!("no table");
    }

    fn status(&self) -> Checkpoint {
        let harness = &self.store.harness;
        let status = harness.coordinator.cluster_status(harness.now);
        status.checkpoint.expect("the store has copies")
    }

    fn raise_floor(&mut self, number: u64, segment_id: u64) -> Vec<Action> {
        let floor = OpenFloor { segment_id };
        self.store.says(number, shard::Kind::RaiseOpenFloor(floor))
    }
}

fn is_floor(action: &Action, connection: u64, segment_id: u64) -> bool {
    matches!(action, Action::Send(on, Kind::OpenFloorRaised(floor)) if *on == connection && floor.segment_id == segment_id)
}

#[test]
fn every_backup_gets_each_change_that_matters() {
    let mut kept = Kept::new(3);
    let before = kept.status();
    assert!(before.is_current, "{before:?}");
    assert_eq!((before.members_wanted, before.keepers.len()), (2, 3));
    let all_same = kept.volumes.values().collect::<BTreeSet<_>>().len();
    assert_eq!((kept.volumes.len(), all_same), (3, 1));
    let (header, pairs) = checkpoint::decode(&kept.volumes[&1]).unwrap();
    assert_eq!(header.cluster_id, CLUSTER);
    assert_eq!((header.position.term, header.position.nonce), (1, 5));
    let now: BTreeSet<_> = kept.store.harness.coordinator.pairs().collect();
    let without_time = |pairs: BTreeSet<coordinator::state::Pair>| -> BTreeSet<_> {
        pairs.into_iter().filter(|pair| pair.key != [1]).collect()
    };
    assert_eq!(without_time(pairs.into_iter().collect()), without_time(now));
    // Nothing changes: only now and then one is made for the sake of time.
    let number = kept.status().number;
    kept.settle();
    assert!(kept.status().number <= number + 1);
    kept.raise_floor(1, 2);
    assert!(!kept.status().is_current);
    kept.round(0);
    assert!(kept.status().is_current);
}

#[test]
fn what_an_older_checkpoint_would_contradict_waits_for_a_newer_one() {
    let mut kept = Kept::new(3);
    kept.silent = BTreeSet::from([1, 2, 3]);
    assert_eq!(kept.raise_floor(1, 7), []);
    let sent = kept.advance(0);
    let sent = sent
        .iter()
        .filter(|it| matches!(it, Action::Send(_, Kind::KeepCheckpoint(_))));
    assert_eq!(sent.count(), 3, "at once, and nothing else is said");
    assert_eq!(kept.round(500), []);
    // As many members as there are copies are enough.
    let part = KeepCheckpoint {
        number: kept.status().number,
        ..KeepCheckpoint::default()
    };
    kept.silent = BTreeSet::from([1]);
    assert_eq!(kept.keep(2, &part), []);
    assert_eq!(kept.round(0), [], "one is too few");
    let said = kept.keep(3, &part);
    assert_eq!(said, [], "what leaves, leaves at the end of the round");
    let said = kept.round(0);
    assert!(is_floor(&said[0], 101, 7), "{said:?}");
    assert_eq!(said.len(), 1);
}

#[test]
fn nothing_waits_for_longer_than_a_second() {
    let mut kept = Kept::new(3);
    kept.silent = BTreeSet::from([1, 2, 3]);
    assert_eq!(kept.raise_floor(1, 7), []);
    assert_eq!(kept.round(0), []);
    let said = kept.round(900);
    assert!(!said.iter().any(|it| is_floor(it, 101, 7)), "{said:?}");
    let said = kept.round(200);
    assert!(said.iter().any(|it| is_floor(it, 101, 7)), "{said:?}");
    assert!(!kept.status().is_current, "and that is shown");
}

#[test]
fn what_follows_for_the_same_server_waits_behind_it() {
    let mut kept = Kept::new(2);
    kept.silent = BTreeSet::from([1, 2]);
    let table = kept.store.harness.request(&create_table("t", 1));
    assert_eq!(table, [], "the owner has yet to take it");
    assert_eq!(kept.round(0), []);
    let location = shard::Kind::LocateServer(wire::member::LocateServer { server_id: 1 });
    assert_eq!(kept.store.says(1, location), []);
    let said = kept.round(1100);
    let kinds: Vec<_> = said
        .iter()
        .filter_map(|action| match action {
            Action::Send(_, Kind::TakeTablet(_)) => Some("take"),
            Action::Send(_, Kind::ServerLocation(_)) => Some("location"),
            Action::Send(_, Kind::Probe(_)) => None,
            _ => Some("other"),
        })
        .collect();
    assert_eq!(kinds, ["take", "location"], "{said:?}");
}

#[test]
fn backups_that_cannot_keep_any_keep_nobody_waiting() {
    let mut kept = Kept::new(3);
    kept.full = BTreeSet::from([1, 2, 3]);
    kept.raise_floor(1, 7);
    kept.settle();
    let status = kept.status();
    assert!(!status.is_current);
    let failures = status.keepers.iter().filter(|it| !it.failure.is_empty());
    assert_eq!(failures.count(), 3);
    let said = kept.raise_floor(1, 8);
    assert!(is_floor(&said[0], 101, 8), "{said:?}");
    // When there is room again they get the newest.
    kept.full.clear();
    for _ in 0..60 {
        kept.round(100);
    }
    assert!(kept.status().is_current);
}

#[test]
fn a_backup_of_an_older_build_is_sent_none() {
    let mut store = Store::new(3);
    let said = store.wait(3000);
    let checkpoints = said.iter();
    let checkpoints =
        checkpoints.filter(|it| matches!(it, Action::Send(_, Kind::KeepCheckpoint(_))));
    assert_eq!(checkpoints.count(), 0);
}

#[test]
fn the_volume_of_another_store_is_left_as_it_is() {
    let mut store = Store::new(3);
    let foreign = Hello {
        volume_cluster_id: 0xabc,
        ..with_replicas("m9", 9)
    };
    let refused = store.harness.refused(109, foreign);
    assert_eq!(refused.reason(), RefusedReason::Invalid);
    for part in ["0000000000000abc", "--rebuild", "empty volume"] {
        assert!(refused.text.contains(part), "{}", refused.text);
    }
    let own = Hello {
        volume_cluster_id: CLUSTER,
        ..with_replicas("m9", 9)
    };
    store.harness.enlist(109, own);
}

#[test]
fn a_large_state_comes_in_parts() {
    let mut kept = Kept::new(2);
    for number in 0..450 {
        let name = format!("{number:0>1000}");
        kept.store.harness.request(&create_table(&name, 1));
    }
    kept.settle();
    assert!(kept.status().is_current);
    let bytes = &kept.volumes[&1];
    assert!(bytes.len() > 400_000, "{}", bytes.len());
    assert!(checkpoint::decode(bytes).is_ok());
}

// ---- a store that is made again ----

/// A coordinator without any state, and servers with volumes.
struct Rebuild {
    coordinator: Coordinator,
    now: Time,
    out: Recorder,
    volumes: BTreeMap<u64, Vec<u8>>,
    /// Connections that it has ended.
    closed: usize,
}

impl Rebuild {
    fn new(volumes: &BTreeMap<u64, Vec<u8>>) -> Rebuild {
        Rebuild::of(volumes, 77)
    }

    fn of(volumes: &BTreeMap<u64, Vec<u8>>, nonce: u64) -> Rebuild {
        Rebuild::with(Config::new(0xbad, 0xbad, "test"), volumes, nonce)
    }

    fn with(config: Config, volumes: &BTreeMap<u64, Vec<u8>>, nonce: u64) -> Rebuild {
        let now = Time(5_000);
        Rebuild {
            coordinator: Coordinator::rebuilding(config, nonce, true, now),
            now,
            out: Recorder::default(),
            volumes: volumes.clone(),
            closed: 0,
        }
    }

    fn hears(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        self.coordinator
            .member_message(self.now, connection, message, &mut self.out);
    }

    /// The server of this number starts, with its volume.
    fn starts(&mut self, number: u64) {
        let volume_cluster_id = match self.volumes.contains_key(&number) {
            true => CLUSTER,
            false => 0,
        };
        let hello = Hello {
            volume_cluster_id,
            ..with_replicas(&format!("m{number}"), 1000 + number)
        };
        self.hears(200 + number, shard::Kind::Hello(hello));
    }

    /// Lets servers answer, and time pass.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 100 + 1 {
            for action in std::mem::take(&mut self.out.actions) {
                self.closed += usize::from(matches!(action, Action::Close(_)));
                let Action::Send(connection, Kind::ReadCheckpoint(read)) = action else {
                    continue;
                };
                let bytes = &self.volumes[&(connection - 200)];
                let rest = &bytes[(read.offset as usize).min(bytes.len())..];
                let part = CheckpointPart {
                    cluster_id: CLUSTER,
                    total_bytes: bytes.len() as u64,
                    offset: read.offset,
                    data: rest[..rest.len().min(read.bytes as usize)].to_vec(),
                };
                self.hears(connection, shard::Kind::CheckpointPart(part));
            }
            self.now += Duration::from_millis(100);
            if self.coordinator.is_rebuilding() {
                self.coordinator.tick(self.now, &mut self.out);
            }
        }
    }

    fn waits(&self) -> &str {
        self.coordinator.refusal().expect("it serves nobody yet")
    }
}

/// A store of four with a table, and what its volumes keep.
fn made() -> (Kept, TableId) {
    let mut kept = Kept::new(4);
    let table = kept.create("t", 4);
    kept.settle();
    assert!(kept.status().is_current);
    (kept, table)
}

#[test]
fn a_store_is_made_again_from_its_volumes() {
    let (kept, table) = made();
    let mut again = Rebuild::new(&kept.volumes);
    assert!(again.waits().contains("no volume has been heard of yet"));
    for number in 1..=4 {
        assert!(again.coordinator.is_rebuilding());
        again.starts(number);
        again.run(1500);
    }
    assert!(!again.coordinator.is_rebuilding());
    again.run(0);
    assert_eq!(again.closed, 4, "servers say hello anew");
    let status = again.coordinator.cluster_status(again.now);
    assert_eq!((status.cluster_id, status.table_count), (CLUSTER, 1));
    assert_eq!(
        status.recoveries.len(),
        4,
        "all that servers held comes back"
    );
    let former = kept.store.harness.coordinator.position().unwrap();
    assert!(status.term > former.term + 999);
    let tables = again.coordinator.tables(0, 10).tables;
    assert_eq!(tables[0].table_id, table.0);

    // All of it is noted, and restored.
    let changes = again.coordinator.take_changes(again.now);
    let all: BTreeSet<_> = again.coordinator.pairs().collect();
    assert_eq!(changes.puts.into_iter().collect::<BTreeSet<_>>(), all);
    let config = Config::new(1, 1, "test");
    let restored = Coordinator::restore(config, all.clone(), again.now).unwrap();
    let keys = |pairs: Vec<coordinator::state::Pair>| -> BTreeSet<Vec<u8>> {
        pairs.into_iter().map(|pair| pair.key).collect()
    };
    assert_eq!(
        keys(restored.pairs().collect()),
        keys(all.into_iter().collect())
    );

    // The next processes get ids that nobody can have had, and members of before are let in.
    again.out = Recorder::default();
    let next = Hello {
        volume_cluster_id: CLUSTER,
        ..with_replicas("m1", 1001)
    };
    again.hears(301, shard::Kind::Hello(next));
    again.hears(301, shard::Kind::Pong(Pong::default()));
    let welcome = again.out.actions.iter().find_map(|action| match action {
        Action::Send(_, Kind::Welcome(welcome)) => Some(welcome.clone()),
        _ => None,
    });
    let id = ServerId(welcome.expect("a welcome").server_id);
    let former = kept.store.ids[&1];
    assert_eq!(id.index(), former.index());
    assert!(id.generation() > former.generation() + 999, "{id}");
}

#[test]
fn two_stores_of_one_checkpoint_do_not_meet() {
    let (kept, _) = made();
    let terms = [1, 2].map(|nonce| {
        let mut again = Rebuild::of(&kept.volumes, nonce);
        for number in 1..=4 {
            again.starts(number);
        }
        again.run(2000);
        again.coordinator.position().unwrap()
    });
    assert!(terms[0].term != terms[1].term && terms[0].nonce != terms[1].nonce);
}

#[test]
fn a_store_can_be_made_again_and_again() {
    let (kept, _) = made();
    let mut volumes = kept.volumes;
    for number in 1..=3 {
        let mut again = Rebuild::new(&volumes);
        for server in 1..=4 {
            again.starts(server);
        }
        again.run(2000);
        assert!(!again.coordinator.is_rebuilding(), "{}", again.waits());
        again.coordinator.take_changes(again.now);
        // What it has noted is believed by whoever goes on, and by whoever makes the store from it once more.
        let pairs: Vec<_> = again.coordinator.pairs().collect();
        let config = Config::new(1, 1, "test");
        let mut restored = Coordinator::restore(config, pairs, again.now).unwrap();
        restored.take_changes(again.now);
        let header = checkpoint::Header {
            cluster_id: CLUSTER,
            position: again.coordinator.position().unwrap(),
            number,
            cluster_time_ns: 0,
        };
        let bytes = checkpoint::encode(&header, restored.pairs());
        volumes.values_mut().for_each(|it| it.clone_from(&bytes));
    }
}

#[test]
fn the_newest_checkpoint_is_taken() {
    let (mut kept, _) = made();
    kept.silent = BTreeSet::from([1, 2, 3]);
    kept.store.harness.request(&create_table("late", 1));
    kept.settle();
    assert!(kept.volumes[&1] != kept.volumes[&4]);
    let mut again = Rebuild::new(&kept.volumes);
    for number in [1, 2, 3] {
        again.starts(number);
    }
    again.run(2000);
    assert!(
        again.waits().contains("waiting for m4"),
        "{}",
        again.waits()
    );
    again.starts(4);
    again.run(2000);
    assert!(!again.coordinator.is_rebuilding());
    assert_eq!(again.coordinator.cluster_status(again.now).table_count, 2);
}

#[test]
fn fewer_volumes_than_may_be_lost_are_waited_for_and_not_for_ever() {
    let mut kept = Kept::new(4);
    // Three copies: what counts as kept is in three volumes at least, so two may be missing.
    for number in 1..=4 {
        let hello = Hello {
            cluster_id: CLUSTER,
            server_id: kept.store.ids[&number].0,
            replicas: 3,
            ..with_replicas(&format!("m{number}"), number)
        };
        kept.store.harness.hello(100 + number + 1000, hello);
        kept.store.harness.close(100 + number + 1000);
        let hello = Hello {
            cluster_id: CLUSTER,
            server_id: kept.store.ids[&number].0,
            replicas: 3,
            ..with_replicas(&format!("m{number}"), number)
        };
        kept.store.harness.hello(100 + number, hello);
        let report = BackupReport {
            keeps_checkpoints: true,
            frames: 9,
            frames_free: 9,
            ..BackupReport::default()
        };
        kept.store.says(number, shard::Kind::BackupReport(report));
    }
    kept.settle();
    assert_eq!(kept.status().members_wanted, 3);
    assert!(kept.status().is_current);

    let mut again = Rebuild::new(&kept.volumes);
    again.starts(1);
    again.run(120_000);
    let text = again.waits();
    assert!(text.contains("heard from 1 of 4 members"), "{text}");
    assert!(
        text.contains("waiting for m2, m3, m4: a newer checkpoint may lie"),
        "{text}"
    );
    again.starts(2);
    again.run(20_000);
    let text = again.waits();
    assert!(
        text.contains("waiting for m3, m4, for 30 s after the last"),
        "{text}"
    );
    again.run(15_000);
    assert!(!again.coordinator.is_rebuilding());
    assert!(
        again
            .out
            .log
            .iter()
            .any(|text| text.contains("without the volumes of m3, m4"))
    );
}

/// Whoever was away when a checkpoint was made may have come back since, and have a newer one that others had no room for.
#[test]
fn a_member_that_was_dead_is_waited_for() {
    let (mut kept, _) = made();
    let before = kept.status().number;
    for number in [3, 4] {
        kept.store.kill(number);
    }
    for _ in 0..10 {
        kept.settle();
    }
    assert!(kept.status().number > before && kept.status().is_current);

    let mut again = Rebuild::new(&kept.volumes);
    again.starts(1);
    again.starts(2);
    again.run(120_000);
    assert!(
        again.waits().contains("heard from 2 of 4 members")
            && again.waits().contains("waiting for m3, m4: a newer"),
        "{}",
        again.waits()
    );
    again.starts(3);
    again.run(20_000);
    assert!(
        again.waits().contains("waiting for m4, for 30 s"),
        "{}",
        again.waits()
    );
    again.starts(4);
    again.run(1000);
    assert!(!again.coordinator.is_rebuilding());
}

#[test]
fn an_empty_volume_is_a_lost_one() {
    let (kept, _) = made();
    let mut volumes = kept.volumes.clone();
    for lost in [2, 3] {
        volumes.remove(&lost);
    }
    let mut again = Rebuild::new(&volumes);
    for number in 1..=4 {
        again.starts(number);
    }
    again.run(120_000);
    // Two copies: two volumes may have been the only ones with the checkpoint that counts.
    assert!(
        again.waits().contains("waiting for m2, m3: a newer"),
        "{}",
        again.waits()
    );
}

#[test]
fn volumes_of_two_stores_are_not_mixed() {
    let (kept, _) = made();
    let mut volumes = kept.volumes.clone();
    let mut foreign = volumes[&3].clone();
    foreign[16] ^= 0xff;
    volumes.insert(3, foreign);
    let mut again = Rebuild::new(&volumes);
    for number in 1..=4 {
        again.starts(number);
    }
    again.run(60_000);
    assert!(
        again.waits().contains("of different stores"),
        "{}",
        again.waits()
    );
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let (kept, _) = made();
    let mut volumes = kept.volumes.clone();
    for bytes in volumes.values_mut() {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    }
    let mut again = Rebuild::new(&volumes);
    for number in 1..=4 {
        again.starts(number);
    }
    again.run(20_000);
    let text = again.waits();
    assert!(
        text.contains("none has a checkpoint that can be used (it is damaged)"),
        "{text}"
    );
}

#[test]
fn whoever_served_before_begins_anew() {
    let (kept, _) = made();
    let mut again = Rebuild::new(&kept.volumes);
    let alive = Hello {
        cluster_id: CLUSTER,
        server_id: kept.store.ids[&1].0,
        volume_cluster_id: CLUSTER,
        ..with_replicas("m1", 1)
    };
    again.hears(201, shard::Kind::Hello(alive.clone()));
    let refused = |actions: &[Action]| match actions {
        [
            ..,
            Action::Send(_, Kind::Refused(refused)),
            Action::Close(_),
        ] => refused.reason(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&again.out.actions), RefusedReason::Superseded);
    for number in 1..=4 {
        again.starts(number);
    }
    again.run(2000);
    assert!(!again.coordinator.is_rebuilding());
    // What it was told after the checkpoint says nothing of this store: it ends, and the store goes on.
    let later = Hello {
        position: Some(Position {
            term: 3,
            nonce: 9,
            sequence: 1 << 40,
        }),
        ..alive
    };
    again.out = Recorder::default();
    again.hears(301, shard::Kind::Hello(later));
    assert_eq!(refused(&again.out.actions), RefusedReason::Superseded);
    assert_eq!(again.coordinator.refusal(), None);
}

#[test]
fn a_server_that_goes_away_while_it_is_read_does_no_harm() {
    let (kept, _) = made();
    let mut again = Rebuild::new(&kept.volumes);
    again.starts(1);
    again.coordinator.tick(again.now, &mut again.out);
    again
        .coordinator
        .member_closed(again.now, 201, &mut again.out);
    again.out = Recorder::default();
    again.run(3000);
    for number in 1..=4 {
        again.starts(number);
    }
    again.run(3000);
    assert!(!again.coordinator.is_rebuilding());
}

/// Members are counted, not their shards: else volumes of a store of 17 members with 64 shards each would be waited for without end.
#[test]
fn all_shards_are_heard_of_as_many_members_as_a_store_can_have() {
    let mut config = Config::new(0xbad, 0xbad, "test");
    (
        config.limits.max_members,
        config.limits.max_shards_per_member,
    ) = (2, 3);
    let mut again = Rebuild::with(config, &BTreeMap::new(), 77);
    let mut answer_to = |member: &str, shard: u32, shards: u32| {
        let hello = Hello {
            volume_cluster_id: CLUSTER,
            ..hello(member, 1, shard, shards)
        };
        again.hears(200, shard::Kind::Hello(hello));
        match again.out.actions.drain(..).next() {
            Some(Action::Send(200, Kind::ReadCheckpoint(_))) => Ok(()),
            Some(Action::Send(200, Kind::Refused(refused))) => Err(refused.text),
            other => panic!("{other:?}"),
        }
    };
    for member in ["a", "b", "a"] {
        for shard in 0..3 {
            assert_eq!(answer_to(member, shard, 3), Ok(()), "{member} {shard}");
        }
    }
    let too_many = answer_to("c", 0, 1).unwrap_err();
    assert!(too_many.contains("2 members already"), "{too_many}");
    let no_such = answer_to("a", 3, 4).unwrap_err();
    assert!(no_such.contains("shard 3 of 4"), "{no_such}");
    assert_eq!(answer_to("b", 2, 3), Ok(()));
}

#[test]
fn clients_are_told_what_is_going_on() {
    let (kept, _) = made();
    let mut again = Rebuild::new(&kept.volumes);
    let to = wire::ids::ReplyTo {
        connection: 1,
        nonce: 1,
    };
    let payload = create_table("t", 1);
    again
        .coordinator
        .request(again.now, to, &payload, &mut again.out);
    let Some(Action::Reply(_, bytes)) = again.out.actions.first() else {
        panic!("no reply");
    };
    let text = String::from_utf8_lossy(bytes);
    assert!(text.contains("Rebuilding"), "{text}");
    assert!(again.coordinator.take_changes(again.now).is_empty());
    assert_eq!(HEADER_BYTES, 64);
    let nobody = hello("m9", 9, 0, 1);
    again.hears(209, shard::Kind::Hello(nobody));
    let refused = again.out.actions.iter().any(|action| matches!(action, Action::Send(209, Kind::Refused(it)) if it.text.contains("let in afterwards")));
    assert!(refused);
}
