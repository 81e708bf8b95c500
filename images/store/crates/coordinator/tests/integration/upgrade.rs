//! The format in force: who is let in, when it can be raised, and that it stays so.

use std::time::Duration;

use crate::common::{Action, CLUSTER, Harness, hello, removal};
use base::ids::ServerId;
use coordinator::{Config, Coordinator, Finalize, FinalizeError, RestoreError};
use wire::format::Formats;
use wire::member::{Format, Hello, RefusedReason, coordinator::Kind};

const OLD: Formats = Formats {
    oldest: 1,
    newest: 1,
};
const NEW: Formats = Formats {
    oldest: 1,
    newest: 2,
};

/// A store that a coordinator of the old build began, and one of the new build goes on with.
fn upgraded() -> Harness {
    let mut store = Harness::with(|config| config.formats = OLD);
    store.upgrade(NEW);
    store
}

fn of_build(formats: Formats, hello: Hello) -> Hello {
    Hello {
        oldest_format: formats.oldest,
        newest_format: formats.newest,
        build_version: format!("0.{}.0", formats.newest),
        ..hello
    }
}

fn member(formats: Formats, name: &str, process: u64) -> Hello {
    of_build(formats, hello(name, process, 0, 1))
}

fn finalize(store: &mut Harness) -> Result<u32, FinalizeError> {
    store.finalize(&Finalize::default())
}

fn hindrances(store: &Harness) -> Vec<String> {
    let status = store.coordinator.cluster_status(store.now);
    status.upgrade.hindrances
}

fn in_force(store: &Harness) -> u32 {
    store.coordinator.cluster_status(store.now).format_version
}

#[test]
fn a_new_store_is_of_its_coordinators_newest_format() {
    let mut store = Harness::with(|config| config.formats = NEW);
    assert_eq!(in_force(&store), 2);
    let (welcome, _) = store.enlist(1, member(NEW, "m0", 1));
    assert_eq!(welcome.format, 2);
    let refused = store.refused(2, member(OLD, "m1", 2));
    assert_eq!(refused.reason(), RefusedReason::Version);
}

#[test]
fn an_upgraded_coordinator_leaves_the_format_as_it_is_and_can_be_taken_back() {
    let mut store = upgraded();
    let (welcome, _) = store.enlist(1, member(NEW, "m0", 1));
    assert_eq!((in_force(&store), welcome.format), (1, 1));
    store.upgrade(OLD);
    assert_eq!(in_force(&store), 1);
    let again = Hello {
        cluster_id: CLUSTER,
        server_id: welcome.server_id,
        ..member(NEW, "m0", 1)
    };
    assert_eq!(store.enlist(2, again).0.server_id, welcome.server_id);
    // One that reads no more than that has nothing to put in force.
    assert_eq!(finalize(&mut store), Ok(1));
    assert_eq!(hindrances(&store), [""; 0]);
}

#[test]
fn a_format_is_put_in_force_once_every_member_reads_it() {
    let mut store = upgraded();
    store.enlist(1, member(NEW, "m0", 1));
    store.enlist(2, member(OLD, "m1", 2));
    let text = finalize(&mut store).unwrap_err().to_string();
    assert_eq!(
        text,
        "format 2 cannot be put in force: member \"m1\" runs version \"0.1.0\", which reads format 1: start it with a version that reads \
         format 2, or remove it"
    );
    assert_eq!((in_force(&store), hindrances(&store).len()), (1, 1));

    // Nobody knows which build comes back.
    store.close(2);
    store.advance(Duration::from_secs(1));
    let text = finalize(&mut store).unwrap_err().to_string();
    assert!(text.contains("is not connected and ran"), "{text}");

    store.enlist(3, member(NEW, "m1", 3));
    assert_eq!(hindrances(&store), [""; 0]);
    assert_eq!(finalize(&mut store), Ok(2));
    assert_eq!(in_force(&store), 2);
    let mut told = store.take_formats();
    told.sort_unstable();
    assert_eq!(told, [(1, 2), (3, 2)]);
    // Once more changes nothing, and tells nobody.
    assert_eq!(finalize(&mut store), Ok(2));
    assert_eq!(store.take_formats(), []);
}

#[test]
fn a_member_that_says_nothing_reads_the_first_format() {
    let mut store = upgraded();
    store.enlist(1, hello("m0", 1, 0, 1));
    assert!(finalize(&mut store).is_err());
}

#[test]
fn a_member_is_no_hindrance_once_it_is_removed() {
    let mut store = upgraded();
    store.enlist(1, member(NEW, "m0", 1));
    store.enlist(2, member(OLD, "m1", 2));
    let removed = store
        .coordinator
        .remove_member(store.now, &removal("m1"), &mut store.out);
    assert_eq!(removed, Ok(()));
    assert_eq!(finalize(&mut store), Ok(2));
}

#[test]
fn many_hindrances_are_counted() {
    let mut store = upgraded();
    for number in 0..12 {
        store.enlist(number, member(OLD, &format!("m{number:02}"), number));
    }
    let hindrances = hindrances(&store);
    assert_eq!(hindrances.len(), 9);
    assert_eq!(hindrances[8], "4 members more");
}

#[test]
fn after_that_a_process_of_the_old_build_is_refused_and_told_what_to_do() {
    let mut store = upgraded();
    store.enlist(1, member(NEW, "m0", 1));
    assert_eq!(finalize(&mut store), Ok(2));
    store.take();
    store.close(1);
    for (connection, process) in [(2, member(OLD, "m0", 2)), (3, member(OLD, "m1", 3))] {
        let refused = store.refused(connection, process);
        assert_eq!(refused.reason(), RefusedReason::Version);
        assert!(
            refused.text.starts_with("the store is of format 2")
                && refused.text.contains("reads format 1"),
            "{}",
            refused.text
        );
    }
    // Also one that has to show that it is alive first, and whose Hello came before.
    let (welcome, _) = store.enlist(4, member(NEW, "m0", 4));
    assert_eq!(welcome.format, 2);
}

#[test]
fn a_process_that_waits_to_be_let_in_is_looked_at_again() {
    let mut store = upgraded();
    store.enlist(1, member(NEW, "m0", 1));
    store.close(1);
    let asked = store.shard_says(2, wire::member::shard::Kind::Hello(member(OLD, "m0", 2)));
    assert!(matches!(asked[..], [Action::Send(2, Kind::Ping(_))]));
    assert_eq!(finalize(&mut store), Ok(2));
    store.take();
    let pong = wire::member::Pong::default();
    let refused = store.shard_says(2, wire::member::shard::Kind::Pong(pong));
    match &refused[..] {
        [Action::Send(2, Kind::Refused(refused)), Action::Close(2)] => {
            assert_eq!(refused.reason(), RefusedReason::Version);
        }
        other => panic!("let in: {other:?}"),
    }
}

#[test]
fn a_build_that_left_the_format_behind_is_told_to_go_step_by_step() {
    let mut store = upgraded();
    let far = Formats {
        oldest: 2,
        newest: 3,
    };
    let refused = store.refused(1, member(far, "m0", 1));
    assert_eq!(refused.reason(), RefusedReason::Version);
    assert!(refused.text.contains("in between"), "{}", refused.text);
    let config = Config {
        formats: far,
        ..Config::new(0, 0, "test")
    };
    let restored = Coordinator::restore(config, store.kept.pairs(), store.now);
    let text = restored.unwrap_err();
    let text = text.to_string();
    assert!(text.contains("in between"), "{text}");
}

#[test]
fn what_is_in_force_and_who_reads_what_is_noted() {
    let mut store = upgraded();
    store.enlist(1, member(NEW, "m0", 1));
    store.enlist(2, member(OLD, "m1", 2));
    store.restart(Duration::from_secs(5));
    assert_eq!(hindrances(&store).len(), 1, "before anybody is back");
    store.enlist(3, member(NEW, "m1", 3));
    assert_eq!(finalize(&mut store), Ok(2));
    store.take();
    store.restart(Duration::from_secs(5));
    assert_eq!(in_force(&store), 2);
    let m0 = Hello {
        cluster_id: CLUSTER,
        server_id: ServerId::new(1, 0).0,
        ..member(NEW, "m0", 1)
    };
    assert_eq!(store.enlist(4, m0).0.format, 2, "who was away is told");

    let config = Config {
        formats: OLD,
        ..Config::new(0, 0, "test")
    };
    let error = Coordinator::restore(config, store.kept.pairs(), store.now).unwrap_err();
    assert!(matches!(
        error,
        RestoreError::NewerFormat { version: 2, .. }
    ));
    let text = error.to_string();
    assert!(
        text.starts_with("the state was written in format 2 by a newer build"),
        "{text}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut store = upgraded();
    let mut ask = |format, expected_cluster_id| {
        let asked = Finalize {
            format,
            expected_cluster_id,
        };
        store.finalize(&asked)
    };
    assert!(matches!(ask(2, 5), Err(FinalizeError::OtherStore(_))));
    let text = ask(3, CLUSTER).unwrap_err().to_string();
    assert!(text.contains("reads formats 1 to 2"), "{text}");
    assert_eq!(ask(2, CLUSTER), Ok(2));
    assert!(matches!(
        ask(1, CLUSTER),
        Err(FinalizeError::NotPossible { in_force: 2, .. })
    ));
}

impl Harness {
    fn finalize(&mut self, finalize: &Finalize) -> Result<u32, FinalizeError> {
        self.coordinator.finalize_upgrade(finalize, &mut self.out)
    }

    /// The coordinator's process ends, and one of this build goes on.
    fn upgrade(&mut self, formats: Formats) {
        self.change_config(|config| config.formats = formats);
        self.restart(Duration::from_secs(1));
    }

    /// Whom it has told which format, and nothing else.
    fn take_formats(&mut self) -> Vec<(u64, u32)> {
        let told = self.take().into_iter();
        told.map(|action| match action {
            Action::Send(to, Kind::Activate(Format { format })) => (to, format),
            other => panic!("{other:?}"),
        })
        .collect()
    }
}
