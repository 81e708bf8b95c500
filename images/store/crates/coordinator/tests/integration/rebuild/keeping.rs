//! Which changes wait until checkpoints with them are in volumes, and what each backup is sent.

use std::collections::BTreeSet;

use crate::common::replicated::{Store, with_replicas};
use crate::common::{Action, create_table};
use coordinator::checkpoint;
use wire::member::coordinator::Kind;
use wire::member::{Hello, KeepCheckpoint, RefusedReason, shard};

use super::{CLUSTER, Kept};

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
