//! Draining a member: what it gets no more, when nobody needs it, and what is refused.

use std::time::Duration;

use crate::common::replicated::*;
use crate::common::{self, Action, Harness, hello, removal};
use base::ids::ServerId;
use coordinator::status::{Draining, Hindrance};
use coordinator::{Drain, DrainError, MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use wire::member::{
    BackupReport, Backups, CopiesAt, Hello, Migrated, MigrationId, OnDraining, Pong,
    coordinator::Kind, shard,
};

fn drain(name: &str) -> Drain {
    Drain {
        name: name.to_owned(),
        ..Drain::default()
    }
}

fn try_drain(harness: &mut Harness, name: &str) -> Result<(Draining, Vec<Action>), DrainError> {
    let draining = harness
        .coordinator
        .drain_member(harness.now, &drain(name), &mut harness.out)?;
    Ok((draining, harness.take()))
}

fn refusal(harness: &mut Harness, name: &str) -> String {
    match try_drain(harness, name) {
        Err(error) => error.to_string(),
        Ok(begun) => panic!("not refused: {begun:?}"),
    }
}

fn undrain(harness: &mut Harness, name: &str) -> Vec<Action> {
    let undrained = harness
        .coordinator
        .undrain_member(&drain(name), &mut harness.out);
    assert_eq!(undrained, Ok(()));
    harness.take()
}

fn shown(harness: &Harness, name: &str) -> Option<Draining> {
    let status = harness.coordinator.cluster_status(harness.now);
    let mut members = status.members.into_iter();
    let member = members.find(|member| member.name == name);
    member.and_then(|member| member.draining)
}

/// The list that this connection was told last.
fn list_of(actions: &[Action], connection: u64) -> Option<Backups> {
    let mut lists = actions.iter().filter_map(|action| match action {
        Action::Send(to, Kind::Backups(list)) if *to == connection => Some(list.clone()),
        _ => None,
    });
    lists.next_back()
}

/// All who are connected answer a ping; server `number` says that so many segments of its log have copies at each draining backup of the list. Returns
/// the list that all were told before, if there was one.
fn pongs(store: &mut Store, list: &Backups, segments: &[(u64, u64)]) -> Option<Backups> {
    let actions = store.harness.advance(Duration::from_millis(200));
    let told = list_of(&actions, 102);
    for action in actions {
        let Action::Send(connection, Kind::Ping(ping)) = action else {
            continue;
        };
        let of_server = segments
            .iter()
            .find(|(number, _)| connection == 100 + number);
        let draining = list.backups.iter().filter(|backup| backup.is_draining);
        let at = draining.map(|backup| CopiesAt {
            backup: backup.server_id,
            segments: of_server.map_or(0, |(_, segments)| *segments),
        });
        let pong = Pong {
            sequence: ping.sequence,
            segments: 14,
            on_draining: Some(OnDraining {
                list_number: list.number,
                backups: at.collect(),
            }),
            ..Pong::default()
        };
        store
            .harness
            .shard_says(connection, shard::Kind::Pong(pong));
    }
    told
}

/// Nobody has anything there; which list all know in the end.
fn all_need_nothing(store: &mut Store, list: Backups) -> Backups {
    pongs(store, &list, &[]);
    let list = pongs(store, &list, &[]).unwrap_or(list);
    pongs(store, &list, &[]);
    list
}

fn remove(store: &mut Store, name: &str) -> Result<(), String> {
    let harness = &mut store.harness;
    let removed = harness
        .coordinator
        .remove_member(harness.now, &removal(name), &mut harness.out);
    removed.map_err(|error| error.to_string())
}

/// For what a member that is drained waits, as people read it.
fn told(draining: &Draining) -> String {
    let sentences = draining.waits_for.iter().map(Hindrance::to_string);
    sentences.collect::<Vec<_>>().join("; ")
}

/// What the list says of the backup of a server.
fn said_of(list: &Backups, id: ServerId) -> (bool, bool) {
    let mut backups = list.backups.iter();
    let backup = backups.find(|backup| backup.server_id == id.0).unwrap();
    (backup.is_draining, backup.is_last_resort)
}

fn migrate_to(store: &mut Store, key_hash: u64, target: ServerId) -> Result<u64, MigrateError> {
    let order = MigrationOrder {
        table: TabletTable::Name("t".to_owned()),
        key_hash,
        target: MigrationTarget::Server(target),
        bytes_per_second: 0,
        expected_cluster_id: 0,
    };
    let harness = &mut store.harness;
    let begun = harness
        .coordinator
        .migrate_tablet(harness.now, &order, &mut harness.out)?;
    harness.take();
    Ok(begun.id)
}

/// The only tablet of "t" goes to another server.
fn moved(store: &mut Store, from: u64, to: u64) {
    let target = store.ids[&to];
    let migration_id = migrate_to(store, 7, target).unwrap();
    let migrated = Migrated {
        migration_id,
        from_segment: 3,
        ..Migrated::default()
    };
    store.says(to, shard::Kind::Migrated(migrated));
    store.says(from, shard::Kind::Stopped(MigrationId { migration_id }));
}

#[test]
fn drained_is_who_has_nothing_that_anybody_needs() {
    let mut store = Store::new(4);
    store.harness.create("t", 1);
    assert_eq!(shown(&store.harness, "m1"), None);
    let (begun, actions) = try_drain(&mut store.harness, "m1").unwrap();
    assert_eq!((begun.is_drained, begun.tablets), (false, 1));
    assert!(told(&begun).contains("1 tablets are to move"), "{begun:?}");
    // All masters are told which backup leaves.
    for connection in 101..=104 {
        let list = list_of(&actions, connection).unwrap();
        let draining: Vec<bool> = list.backups.iter().map(|one| one.is_draining).collect();
        assert_eq!(draining, [true, false, false, false]);
    }
    let list = list_of(&actions, 102).unwrap();
    // Again is no news.
    assert_eq!(try_drain(&mut store.harness, "m1").unwrap().1, []);

    moved(&mut store, 1, 2);
    let waits = |store: &Store| told(&shown(&store.harness, "m1").unwrap());
    assert!(
        waits(&store).contains("has not said yet"),
        "{}",
        waits(&store)
    );
    // What was said before the list came is about another one.
    let old = Backups {
        number: list.number - 1,
        ..list.clone()
    };
    pongs(&mut store, &old, &[]);
    assert!(
        waits(&store).contains("has not said yet"),
        "{}",
        waits(&store)
    );
    pongs(&mut store, &list, &[(2, 5), (4, 1)]);
    let draining = shown(&store.harness, "m1").unwrap();
    assert_eq!((draining.is_drained, draining.copies), (false, 6));
    let text = told(&draining);
    assert!(
        text.contains("5 segments of the log of server 2.0"),
        "{text}"
    );
    assert!(remove(&mut store, "m1").unwrap_err().contains("5 segments"));

    let list = all_need_nothing(&mut store, list);
    let drained = Draining {
        is_drained: true,
        ..Draining::default()
    };
    assert_eq!(shown(&store.harness, "m1"), Some(drained));
    // A master that is away may need what it has there.
    store.harness.close(103);
    assert!(
        waits(&store).contains("is not connected"),
        "{}",
        waits(&store)
    );
    store.start(3, "m3", &[]);
    pongs(&mut store, &list, &[]);
    assert_eq!(remove(&mut store, "m1"), Ok(()));
}

#[test]
fn what_is_drained_stays_so() {
    let mut store = Store::new(4);
    let one = store.ids[&1];
    let (_, actions) = try_drain(&mut store.harness, "m1").unwrap();
    let open = list_of(&actions, 102).unwrap();
    assert_eq!(said_of(&open, one), (true, true));
    let waits = |store: &Store| told(&shown(&store.harness, "m1").unwrap());
    // Nobody has anything there, but may put something there before the next list comes.
    pongs(&mut store, &open, &[]);
    assert!(waits(&store).contains("may still get"), "{}", waits(&store));
    let refused = remove(&mut store, "m1").unwrap_err();
    assert!(refused.contains("may still get"), "{refused}");
    let closed = pongs(&mut store, &open, &[]).expect("all are told");
    assert_eq!(said_of(&closed, one), (true, false));
    assert!(
        waits(&store).contains("has not said yet"),
        "{}",
        waits(&store)
    );
    // As somebody has.
    pongs(&mut store, &closed, &[(3, 1)]);
    assert!(waits(&store).contains("1 segments"), "{}", waits(&store));
    assert_eq!(pongs(&mut store, &closed, &[]), None);
    assert!(shown(&store.harness, "m1").unwrap().is_drained);

    // For every list to come: those of the next coordinator, too.
    store.start(5, "m5", &[]);
    let list = list_of(&store.wait(0), 102);
    assert!(list.is_none_or(|list| said_of(&list, one) == (true, false)));
    store.harness.restart(Duration::from_secs(1));
    let shown = shown(&store.harness, "m1").unwrap();
    assert!(
        !shown.waits_for.contains(&Hindrance::LastResort),
        "{shown:?}"
    );
}

/// A server that is drained dies and is started again: what its new process shows as drained stays so, too.
#[test]
fn what_is_drained_is_not_taken_back_when_its_backup_opens() {
    let mut store = Store::new(4);
    let list = list_of(&try_drain(&mut store.harness, "m1").unwrap().1, 102).unwrap();
    let list = all_need_nothing(&mut store, list);
    store.kill(1);
    let known = Backups {
        number: list.number + 1,
        backups: list.backups[1..].to_vec(),
    };
    let (welcome, _) = store.harness.enlist(111, with_replicas("m1", 11));
    pongs(&mut store, &known, &[]);
    let waits = |store: &Store| told(&shown(&store.harness, "m1").unwrap());
    assert!(
        waits(&store).contains("has not opened its storage"),
        "{}",
        waits(&store)
    );
    let refused = remove(&mut store, "m1").unwrap_err();
    assert!(refused.contains("has not opened its storage"), "{refused}");

    store.ids.insert(11, ServerId(welcome.server_id));
    let actions = store.says(11, shard::Kind::BackupReport(BackupReport::default()));
    let list = list_of(&actions, 102).expect("all are told of the backup");
    assert!(!shown(&store.harness, "m1").unwrap().is_drained);
    pongs(&mut store, &list, &[]);
    assert!(shown(&store.harness, "m1").unwrap().is_drained);
    assert_eq!(remove(&mut store, "m1"), Ok(()));
}

#[test]
fn one_that_was_taken_back_is_drained_from_the_beginning() {
    let mut store = Store::new(4);
    let list = list_of(&try_drain(&mut store.harness, "m1").unwrap().1, 102).unwrap();
    all_need_nothing(&mut store, list);
    assert!(shown(&store.harness, "m1").unwrap().is_drained);
    let one = store.ids[&1];
    let list = list_of(&undrain(&mut store.harness, "m1"), 102).unwrap();
    assert_eq!(said_of(&list, one), (false, false));
    let (begun, actions) = try_drain(&mut store.harness, "m1").unwrap();
    assert!(!begun.is_drained);
    let list = list_of(&actions, 102).unwrap();
    assert_eq!(said_of(&list, one), (true, true));
}

#[test]
fn what_a_master_said_on_another_connection_does_not_count() {
    let mut store = Store::new(4);
    let list = list_of(&try_drain(&mut store.harness, "m1").unwrap().1, 102).unwrap();
    let list = all_need_nothing(&mut store, list);
    assert!(shown(&store.harness, "m1").unwrap().is_drained);
    store.harness.close(102);
    let again = Hello {
        cluster_id: common::CLUSTER,
        server_id: store.ids[&2].0,
        ..with_replicas("m2", 2)
    };
    store.harness.hello(102, again);
    let draining = shown(&store.harness, "m1").unwrap();
    assert!(
        !draining.is_drained,
        "it may have placed copies there meanwhile"
    );
    pongs(&mut store, &list, &[]);
    assert!(shown(&store.harness, "m1").unwrap().is_drained);
}

#[test]
fn it_gets_no_tablets() {
    let mut store = Store::new(4);
    store.harness.create("t", 1);
    let three = store.ids[&3];
    let id = migrate_to(&mut store, 7, three).unwrap();
    let (_, actions) = try_drain(&mut store.harness, "m3").unwrap();
    let give_up = Kind::GiveUpMigration(MigrationId { migration_id: id });
    for connection in [101, 103] {
        assert!(actions.contains(&Action::Send(connection, give_up.clone())));
    }
    let refused = migrate_to(&mut store, 7, three).unwrap_err().to_string();
    assert!(refused.contains("is being drained"), "{refused}");
    let table = store.harness.create("u", 8);
    let owners = store.harness.owners(table);
    assert!(!owners.contains(&three), "{owners:?}");
    // A recovery goes to others as well.
    let dead = store.ids[&1];
    store.kill(1);
    store.wait(100);
    for number in [2, 3, 4] {
        store.finds(number, dead, vec![open_head(1, 50, &[])]);
    }
    let ordered = orders(&store.wait(100));
    assert!(!ordered.is_empty());
    assert!(ordered.iter().all(|(connection, _)| *connection != 103));
    // Whose log is being read may be needed, wherever it is.
    let text = told(&shown(&store.harness, "m3").unwrap());
    assert!(text.contains("is being read"), "{text}");

    undrain(&mut store.harness, "m3");
    let table = store.harness.create("v", 8);
    assert!(store.harness.owners(table).contains(&three));
    assert_eq!(shown(&store.harness, "m3"), None);
}

#[test]
fn a_recovery_waits_while_all_who_could_do_it_are_drained() {
    let mut store = Store::new(4);
    store.harness.create("t", 1);
    try_drain(&mut store.harness, "m2").unwrap();
    let dead = store.ids[&1];
    for number in [1, 3, 4] {
        store.kill(number);
    }
    store.wait(100);
    store.finds(2, dead, vec![open_head(1, 50, &[])]);
    store.wait(100);
    let recoveries = store.recoveries();
    let of_one = recoveries.iter().find(|one| one.server_id == dead.0);
    let waits_for = &of_one.unwrap().waits_for;
    assert!(waits_for.contains("undrain one"), "{waits_for}");
    undrain(&mut store.harness, "m2");
    assert_eq!(orders(&store.wait(2000)).len(), 1);
}

#[test]
fn what_cannot_end_is_refused() {
    let mut harness = Harness::new();
    let unknown = Err(DrainError::NotFound {
        member: "a".to_owned(),
    });
    assert_eq!(try_drain(&mut harness, "a"), unknown);
    let other = Drain {
        expected_cluster_id: 5,
        ..drain("a")
    };
    let refused = harness
        .coordinator
        .drain_member(harness.now, &other, &mut harness.out);
    assert!(matches!(refused, Err(DrainError::OtherStore(_))));

    // Nobody else could take tablets.
    harness.hello(100, with_replicas("a", 1));
    harness.create("t", 1);
    let backup_only = Hello {
        backup_only: true,
        replicas: 0,
        ..with_replicas("b", 2)
    };
    harness.hello(101, backup_only);
    let text = refusal(&mut harness, "a");
    assert!(
        text.contains("no other server that stays could take them"),
        "{text}"
    );
    let without_copies = Hello {
        replicas: 0,
        ..with_replicas("c", 3)
    };
    harness.hello(102, without_copies);
    refusal(&mut harness, "a");
    harness.hello(103, with_replicas("d", 4));
    try_drain(&mut harness, "a").unwrap();

    // Two copies on other machines need two other machines that stay.
    let mut store = Store::new(4);
    try_drain(&mut store.harness, "m1").unwrap();
    let text = refusal(&mut store.harness, "m2");
    assert!(text.contains("1 machine left"), "{text}");
    assert!(text.contains("start another member first"), "{text}");
    assert_eq!(shown(&store.harness, "m2"), None);
    store.start(5, "m5", &[]);
    try_drain(&mut store.harness, "m2").unwrap();
    // Nor can one be removed on whose machine the others rely now.
    store.wait(300);
    let harness = &mut store.harness;
    let removed = harness
        .coordinator
        .remove_member(harness.now, &removal("m3"), &mut harness.out);
    assert!(removed.unwrap_err().to_string().contains("1 machine left"));
}

#[test]
fn without_copies_it_is_the_tablets_that_count() {
    let mut harness = Harness::new();
    let alone = |member: &str, process| Hello {
        peer_locator: format!("tcp:host={member},port=12200"),
        ..hello(member, process, 0, 1)
    };
    harness.hello(100, alone("a", 1));
    harness.hello(101, alone("b", 2));
    harness.create("t", 2);
    let (begun, _) = try_drain(&mut harness, "a").unwrap();
    assert_eq!(
        (begun.is_drained, begun.tablets, begun.copies),
        (false, 1, 0)
    );
    let order = MigrationOrder {
        table: TabletTable::Name("t".to_owned()),
        key_hash: 7,
        target: MigrationTarget::Member("b".to_owned()),
        bytes_per_second: 0,
        expected_cluster_id: 0,
    };
    let begun = harness
        .coordinator
        .migrate_tablet(harness.now, &order, &mut harness.out)
        .unwrap();
    let migration_id = begun.id;
    let migrated = Migrated {
        migration_id,
        ..Migrated::default()
    };
    harness.shard_says(101, shard::Kind::Migrated(migrated));
    harness.shard_says(100, shard::Kind::Stopped(MigrationId { migration_id }));
    harness.advance(Duration::from_millis(200));
    assert!(shown(&harness, "a").unwrap().is_drained);
}

/// After a restart nobody has said yet what backups there are.
#[test]
fn what_cannot_end_is_refused_before_all_are_back_as_well() {
    let mut store = Store::new(4);
    try_drain(&mut store.harness, "m1").unwrap();
    store.harness.restart(Duration::from_secs(1));
    let text = refusal(&mut store.harness, "m2");
    assert!(text.contains("1 machine left"), "{text}");
}

#[test]
fn it_holds_for_the_next_process_and_the_next_coordinator() {
    let mut store = Store::new(4);
    try_drain(&mut store.harness, "m1").unwrap();
    store.kill(1);
    store.start(11, "m1", &[]);
    assert!(shown(&store.harness, "m1").is_some());
    let text = told(&shown(&store.harness, "m1").unwrap());
    assert!(text.contains("has not said yet"), "{text}");
    store.harness.restart(Duration::from_secs(1));
    assert!(shown(&store.harness, "m1").is_some(), "it was noted");
    undrain(&mut store.harness, "m1");
    store.harness.restart(Duration::from_secs(1));
    assert_eq!(shown(&store.harness, "m1"), None);
}
