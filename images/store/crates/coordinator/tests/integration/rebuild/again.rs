//! A store that is made again from its volumes: which of them count, how long others are waited for, and what clients are told.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::replicated::with_replicas;
use crate::common::{Action, Recorder, create_table, hello};
use base::ids::ServerId;
use coordinator::checkpoint::{self, HEADER_BYTES};
use coordinator::reports::StateEvent;
use coordinator::{Config, Coordinator, CoordinatorEvent};
use wire::member::coordinator::Kind;
use wire::member::{BackupReport, Hello, Pong, Position, RefusedReason, shard};

use super::{CLUSTER, Kept, Rebuild, made};

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
        // The next coordinator believes the notes of this one, and so does a rebuild from them.
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
            .events
            .iter()
            .any(|event| matches!(event, CoordinatorEvent::State(StateEvent::MadeAgain { without, .. }) if without[..] == ["m3", "m4"]))
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
    let to = base::ids::ReplyTo {
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
