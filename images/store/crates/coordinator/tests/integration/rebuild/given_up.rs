//! Volumes that are gone for good.

use std::collections::BTreeSet;

use coordinator::orders::{Surrender, SurrenderError};
use coordinator::{Config, Coordinator};

use super::{CLUSTER, Rebuild, made};
use crate::common::create_table;

fn give_up(again: &mut Rebuild, members: &[&str]) -> Result<(), SurrenderError> {
    let members = members.iter().map(|&name| name.to_owned());
    again.coordinator.give_up_volumes(&Surrender {
        members: members.collect(),
        expected_cluster_id: CLUSTER,
    })
}

#[test]
fn volumes_that_are_gone_for_good_are_given_up_by_name() {
    let (kept, _) = made();
    let mut again = Rebuild::new(&kept.volumes);
    assert!(matches!(
        give_up(&mut again, &["m3"]),
        Err(SurrenderError::TooEarly(_))
    ));
    again.starts(1);
    again.starts(2);
    again.run(60_000);
    let text = again.waits();
    assert!(
        text.contains("gone for good: rcbox rebuild give-up m3 m4"),
        "{text}"
    );
    let other = Surrender {
        members: vec!["m3".to_owned()],
        expected_cluster_id: CLUSTER + 1,
    };
    let refused = again.coordinator.give_up_volumes(&other);
    assert!(matches!(refused, Err(SurrenderError::OtherStore(_))));
    // Whose volume is there is not given up, and nor is anybody with him.
    let refused = give_up(&mut again, &["m2", "m3"]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("volumes of m2 are not waited for; those of m3, m4 are"),
        "{refused}"
    );
    again.run(60_000);
    assert!(again.coordinator.is_rebuilding());
    // One of two is not enough: each of them may have had the newest.
    give_up(&mut again, &["m3"]).unwrap();
    again.run(60_000);
    assert!(
        again.waits().contains("waiting for m3, m4"),
        "{}",
        again.waits()
    );
    give_up(&mut again, &["m4"]).unwrap();
    again.run(200);
    assert!(!again.coordinator.is_rebuilding());
    assert_eq!(
        give_up(&mut again, &["m4"]),
        Err(SurrenderError::NotRebuilding)
    );

    // What it was made without is shown from then on, also by who goes on with it.
    let pairs: Vec<_> = again.coordinator.pairs().collect();
    let restored = Coordinator::restore(Config::new(1, 1, "test"), pairs, again.now).unwrap();
    for coordinator in [&again.coordinator, &restored] {
        let rebuilt = coordinator.cluster_status(again.now).rebuilt.unwrap();
        assert_eq!(rebuilt.checkpoint_number, kept.status().number);
        assert_eq!(
            (rebuilt.without.len(), rebuilt.given_up),
            (2, rebuilt.without)
        );
    }
}

#[test]
fn a_volume_that_was_given_up_and_comes_all_the_same_counts() {
    let (mut kept, _) = made();
    kept.silent = BTreeSet::from([1, 2, 3]);
    kept.store.harness.request(&create_table("late", 1));
    kept.settle();
    let mut again = Rebuild::new(&kept.volumes);
    again.starts(1);
    again.run(2000);
    give_up(&mut again, &["m4"]).unwrap();
    again.starts(4);
    again.run(2000);
    give_up(&mut again, &["m2", "m3"]).unwrap();
    again.run(200);
    let status = again.coordinator.cluster_status(again.now);
    assert_eq!(status.table_count, 2, "the newest is that of m4");
    let rebuilt = status.rebuilt.unwrap();
    assert_eq!(rebuilt.given_up, ["m2", "m3"]);
}
