//! Migration: who is told what, in which order, and from when on a tablet is another server's.

use std::time::Duration;

use crate::common::replicated::*;
use crate::common::{self, Action, drop_table, hello, removal, split_tablet};
use base::ids::{ServerId, TableId};
use coordinator::status::Migration;
use coordinator::{MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use wire::member::{
    Hello, Migrated, MigrationId, MigrationProgress, MigrationWanted, Pong, TabletRange,
    coordinator::Kind, shard,
};
use wire::status::Status;

const WHOLE: TabletRange = TabletRange {
    table_id: 1,
    start_key_hash: 0,
    end_key_hash: u64::MAX,
};

fn to_server(id: ServerId) -> MigrationOrder {
    MigrationOrder {
        table: TabletTable::Name("t".to_owned()),
        key_hash: 7,
        target: MigrationTarget::Server(id),
        bytes_per_second: 0,
        expected_cluster_id: 0,
    }
}

fn begin(
    store: &mut Store,
    order: &MigrationOrder,
) -> Result<(Migration, Vec<Action>), MigrateError> {
    let harness = &mut store.harness;
    let begun = harness
        .coordinator
        .migrate_tablet(harness.now, order, &mut harness.out)?;
    Ok((begun, harness.take()))
}

fn refusal(store: &mut Store, order: &MigrationOrder) -> String {
    match begin(store, order) {
        Err(error) => error.to_string(),
        Ok(begun) => panic!("not refused: {begun:?}"),
    }
}

/// What an order waits for that was let in.
fn waits_for(store: &mut Store, order: &MigrationOrder) -> String {
    let (waiting, actions) = begin(store, order).expect("it is let in");
    assert_eq!(actions, []);
    waiting.waits_for
}

fn shown(store: &Store) -> Vec<Migration> {
    let status = store.harness.coordinator.cluster_status(store.harness.now);
    status.migrations
}

fn sent(actions: &[Action]) -> Vec<(u64, Kind)> {
    let sent = actions.iter().map(|action| match action {
        Action::Send(connection, kind) => (*connection, kind.clone()),
        other => panic!("{other:?}"),
    });
    sent.collect()
}

/// A table that server 1 of three owns, on its way to server 2.
fn one_under_way() -> (Store, TableId, u64) {
    let mut store = Store::new(3);
    let table = store.harness.create("t", 1);
    assert_eq!(store.harness.owners(table), [store.ids[&1]]);
    let order = to_server(store.ids[&2]);
    let (begun, _) = begin(&mut store, &order).expect("nothing stands against it");
    (store, table, begun.id)
}

fn has_all(store: &mut Store, migration_id: u64) -> Vec<Action> {
    let migrated = Migrated {
        migration_id,
        from_segment: 9,
        bytes: 5000,
        objects: 50,
        ..Migrated::default()
    };
    store.says(2, shard::Kind::Migrated(migrated))
}

fn fails(store: &mut Store, number: u64, migration_id: u64) -> Vec<Action> {
    let migrated = Migrated {
        migration_id,
        failure: "out of breath".to_owned(),
        ..Migrated::default()
    };
    store.says(number, shard::Kind::Migrated(migrated))
}

fn give_up(migration_id: u64) -> Kind {
    Kind::GiveUpMigration(MigrationId { migration_id })
}

fn stopped(store: &mut Store, migration_id: u64) -> Vec<Action> {
    store.says(1, shard::Kind::Stopped(MigrationId { migration_id }))
}

fn says_nothing(store: &mut Store, migration_id: u64) {
    assert_eq!(has_all(store, migration_id), []);
    assert_eq!(stopped(store, migration_id), []);
}

#[test]
fn a_tablet_is_copied_then_stopped_then_noted_and_then_served_elsewhere() {
    let mut store = Store::new(3);
    let table = store.harness.create("t", 1);
    let [one, two] = [1, 2].map(|number| store.ids[&number]);
    let (begun, actions) = begin(&mut store, &to_server(two)).unwrap();
    let id = begun.id;
    let sent_at_first = sent(&actions);
    let [(102, Kind::Migrate(migrate)), (101, Kind::MigrateOut(out))] = &sent_at_first[..] else {
        panic!("{sent_at_first:?}");
    };
    assert_eq!((migrate.tablet, migrate.source), (WHOLE, one.0));
    assert_eq!(migrate.locator, "tcp:host=m1,port=12200");
    assert_eq!((out.tablet, out.target), (WHOLE, two.0));
    assert_eq!([migrate.migration_id, out.migration_id], [id; 2]);
    let pong = Pong {
        migration: Some(MigrationProgress {
            migration_id: id,
            bytes: 1000,
            objects: 10,
            is_frozen: true,
        }),
        ..Pong::default()
    };
    store.says(2, shard::Kind::Pong(pong.clone()));
    let under_way = shown(&store);
    assert_eq!((under_way[0].bytes, under_way[0].is_frozen), (1000, true));
    assert_eq!(under_way[0].ended_ns, 0);

    assert_eq!(stopped(&mut store, id), [], "nobody asked for that");
    let stop = has_all(&mut store, id);
    let expected = Kind::StopTablet(MigrationId { migration_id: id });
    assert_eq!(sent(&stop), [(101, expected)]);
    assert_eq!(store.harness.owners(table), [one], "it answers still");
    let end = sent(&stopped(&mut store, id));
    let [
        (102, Kind::CommitMigration(commit)),
        (101, Kind::DropTablet(dropped)),
    ] = &end[..]
    else {
        panic!("{end:?}");
    };
    assert_eq!((commit.migration_id, dropped.tablet), (id, WHOLE));
    assert_eq!(store.harness.owners(table), [two]);
    let ended = &shown(&store)[0];
    assert!(ended.ended_ns > 0 && ended.failure.is_empty());
    assert_eq!((ended.bytes, ended.objects), (5000, 50));
    assert_eq!(store.harness.done(101, dropped.sequence), []);
    // What comes late changes nothing.
    says_nothing(&mut store, id);
    assert_eq!(fails(&mut store, 1, id), []);
    assert_eq!(store.harness.owners(table), [two]);
}

#[test]
fn the_new_owners_log_is_all_that_its_recovery_reads() {
    let (mut store, table, id) = one_under_way();
    has_all(&mut store, id);
    stopped(&mut store, id);
    let (one, two) = (store.ids[&1], store.ids[&2]);
    store.kill(1);
    assert_eq!(store.harness.owners(table), [two]);
    assert_eq!(store.recoveries(), [], "it held nothing any more");
    store.kill(2);
    let asked = fenced(&store.wait(100));
    assert_eq!(asked, [(103, two)], "and not {one}");
    // Segment 8 is from before.
    let head = open_head(10, 60, &[8, 9]);
    store.finds(3, two, vec![closed(8), closed(9), head]);
    let orders = orders(&store.wait(100));
    let read: Vec<u64> = segments(&orders[0].1).iter().map(|(id, _)| *id).collect();
    assert_eq!(read, [9, 10]);
}

#[test]
fn what_was_brought_back_needs_its_old_log_no_more_once_it_has_moved() {
    let (mut store, table, dead) = one_dead_of_four();
    store.wait(100);
    for number in 2..=4 {
        store.finds(number, dead, vec![open_head(1, 60, &[])]);
    }
    let orders = orders(&store.wait(100));
    for (connection, recover) in &orders {
        store.done(*connection, recover, 7);
    }
    // Three parts, of which the last to go is the last that needs the dead server's log.
    let config = store.harness.config(table);
    let mut log_forgotten = Vec::new();
    for tablet in &config.tablet {
        let owner = ServerId(tablet.server_id.unwrap());
        let source = *store.ids.iter().find(|(_, id)| **id == owner).unwrap().0;
        let target = if source == 4 { 2 } else { source + 1 };
        let order = MigrationOrder {
            key_hash: tablet.start_key_hash,
            ..to_server(store.ids[&target])
        };
        let (begun, _) = begin(&mut store, &order).unwrap();
        let migrated = Migrated {
            migration_id: begun.id,
            from_segment: 20,
            ..Migrated::default()
        };
        store.says(target, shard::Kind::Migrated(migrated));
        let migration_id = begun.id;
        let end = store.says(source, shard::Kind::Stopped(MigrationId { migration_id }));
        log_forgotten.push(forgotten(&end).iter().any(|(_, logs)| logs == &[dead.0]));
    }
    assert_eq!(log_forgotten, [false, false, true]);
}

#[test]
fn whatever_breaks_the_owner_stays_and_who_is_left_is_told() {
    // The source says that it cannot go on; both are told.
    let (mut store, table, id) = one_under_way();
    let owner = store.harness.owners(table);
    let told = sent(&fails(&mut store, 1, id));
    assert_eq!(told, [(101, give_up(id)), (102, give_up(id))]);
    assert!(shown(&store)[0].failure.contains("out of breath"));
    says_nothing(&mut store, id);
    assert_eq!(store.harness.owners(table), owner);

    // The target's session ends, also when all was read.
    let (mut store, table, id) = one_under_way();
    has_all(&mut store, id);
    let told = sent(&store.harness.close(102));
    assert!(told.contains(&(101, give_up(id))), "{told:?}");
    assert_eq!(stopped(&mut store, id), []);
    assert_eq!(store.harness.owners(table), owner);

    // The source's.
    let (mut store, table, id) = one_under_way();
    has_all(&mut store, id);
    let told = sent(&store.harness.close(101));
    assert!(told.contains(&(102, give_up(id))), "{told:?}");
    store.resume(1);
    assert_eq!(stopped(&mut store, id), []);
    assert_eq!(store.harness.owners(table), owner);

    // A new session takes the place of the one before: who is welcomed is not told, and nothing goes on behind the welcome.
    let (mut store, _, id) = one_under_way();
    has_all(&mut store, id);
    let same = Hello {
        cluster_id: common::CLUSTER,
        server_id: store.ids[&1].0,
        ..with_replicas("m1", 1)
    };
    let (welcome, actions) = store.harness.enlist(201, same);
    assert_eq!(welcome.tablets, [WHOLE]);
    let is_told = |on: u64| {
        let give_up = Action::Send(on, give_up(id));
        actions.contains(&give_up)
    };
    assert_eq!([101, 102, 201].map(is_told), [false, true, false]);

    // The source dies: others bring back what it had.
    let (mut store, _, id) = one_under_way();
    has_all(&mut store, id);
    store.kill(1);
    assert_eq!(store.recoveries()[0].tablets_left, 1);

    // The coordinator dies: the next one has ordered nothing.
    let (mut store, table, id) = one_under_way();
    has_all(&mut store, id);
    store.harness.restart(Duration::from_millis(100));
    (1..=3).for_each(|number| store.resume(number));
    says_nothing(&mut store, id);
    assert_eq!(store.harness.owners(table), owner);
    let two = store.ids[&2];
    let (next, _) = begin(&mut store, &to_server(two)).unwrap();
    assert!(next.id > id, "no number is used twice");
}

#[test]
fn a_split_and_a_drop_end_it_first() {
    let (mut store, _, id) = one_under_way();
    let (_, actions) = store.harness.request_on(1, &split_tablet("t", 1 << 63));
    let told = sent(&actions);
    assert_eq!(told[..2], [(101, give_up(id)), (102, give_up(id))]);
    assert!(matches!(told[2], (101, Kind::SplitTablet(_))), "{told:?}");

    let (mut store, _, id) = one_under_way();
    let (_, actions) = store.harness.request_on(1, &drop_table("t"));
    let told = sent(&actions);
    assert_eq!(told[..2], [(101, give_up(id)), (102, give_up(id))]);
    assert!(matches!(told[2], (101, Kind::DropTablet(_))), "{told:?}");
    says_nothing(&mut store, id);
}

#[test]
fn a_target_may_be_removed() {
    let (mut store, table, id) = one_under_way();
    let harness = &mut store.harness;
    let removal = coordinator::Removal {
        gives_up_copies: true,
        ..removal("m2")
    };
    let removed = harness
        .coordinator
        .remove_member(harness.now, &removal, &mut harness.out);
    assert_eq!(removed, Ok(()));
    let told = harness.take();
    assert!(told.contains(&Action::Send(101, give_up(id))));
    assert_eq!(store.harness.owners(table), [store.ids[&1]]);
}

#[test]
fn a_server_gives_out_one_tablet_and_takes_in_one_at_a_time() {
    let mut store = Store::new(4);
    store.harness.create("t", 3);
    let [one, two, three, four] = [1, 2, 3, 4].map(|number| store.ids[&number]);
    let third = u64::MAX / 3 + 1;
    let at = |key_hash: u64, id: ServerId| MigrationOrder {
        key_hash,
        ..to_server(id)
    };
    let (first, _) = begin(&mut store, &at(0, two)).unwrap();
    let (again, actions) = begin(&mut store, &at(5, two)).unwrap();
    assert_eq!((again.id, actions), (first.id, vec![]), "the same one");
    let busy = waits_for(&mut store, &at(0, three));
    assert!(
        busy.contains("is on its way to server 2.0 already"),
        "{busy}"
    );
    let busy = waits_for(&mut store, &at(2 * third, two));
    assert!(busy.contains("server 2.0 is taking in another"), "{busy}");
    // Out of the one that takes in, and into the one that gives out, is another matter.
    begin(&mut store, &at(third, three)).unwrap();
    begin(&mut store, &at(2 * third, one)).unwrap();
    store.harness.request(&split_tablet("t", 5));
    begin(&mut store, &at(0, two)).unwrap();
    let busy = waits_for(&mut store, &at(5, four));
    assert!(busy.contains("server 1.0 is giving out another"), "{busy}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let mut store = Store::new(2);
    let table = store.harness.create("t", 1);
    let [one, two] = [1, 2].map(|number| store.ids[&number]);
    let nothing = MigrationOrder {
        table: TabletTable::Name("no".to_owned()),
        ..to_server(two)
    };
    assert_eq!(refusal(&mut store, &nothing), "there is no table \"no\"");
    assert_eq!(
        refusal(&mut store, &to_server(one)),
        "server 1.0 has this tablet already"
    );
    let unknown = refusal(&mut store, &to_server(ServerId::new(2, 1)));
    assert!(unknown.contains("there is no server 2.1"), "{unknown}");
    let unknown = MigrationOrder {
        target: MigrationTarget::Member("m9".to_owned()),
        ..to_server(two)
    };
    assert!(refusal(&mut store, &unknown).contains("no member \"m9\""));
    let elsewhere = MigrationOrder {
        expected_cluster_id: 5,
        ..to_server(two)
    };
    assert!(refusal(&mut store, &elsewhere).contains("this is store"));
    store.harness.enlist(110, hello("bare", 10, 0, 1));
    let bare = MigrationOrder {
        target: MigrationTarget::Member("bare".to_owned()),
        table: TabletTable::Id(table.0),
        ..to_server(two)
    };
    let text = refusal(&mut store, &bare);
    assert!(text.contains("keeps no copies"), "{text}");
    let backup = Hello {
        backup_only: true,
        ..with_replicas("keeper", 11)
    };
    store.harness.enlist(111, backup);
    let keeper = MigrationOrder {
        target: MigrationTarget::Member("keeper".to_owned()),
        ..to_server(two)
    };
    assert!(refusal(&mut store, &keeper).contains("takes no tablets"));
    store.harness.close(102);
    let away = refusal(&mut store, &to_server(two));
    assert!(away.contains("server 2.0 is not connected"), "{away}");
}

#[test]
fn a_member_is_as_good_as_its_server_with_the_fewest_tablets() {
    let mut store = Store::new(1);
    store.harness.create("t", 1);
    for shard in 0..2 {
        let two = Hello {
            shard_index: shard,
            shard_count: 2,
            ..with_replicas("two", 5)
        };
        store.harness.enlist(120 + u64::from(shard), two);
    }
    store.harness.create("u", 1);
    let order = MigrationOrder {
        target: MigrationTarget::Member("two".to_owned()),
        ..to_server(ServerId::INVALID)
    };
    let (begun, _) = begin(&mut store, &order).unwrap();
    assert_eq!(begun.target_member, "two");
}

#[test]
fn a_client_that_asks_the_master_is_answered_at_the_end() {
    let mut store = Store::new(3);
    store.harness.create("t", 1);
    let two = store.ids[&2];
    let wanted = MigrationWanted {
        sequence: 5,
        tablet: WHOLE,
        target: two.0,
    };
    let first = store.says(1, shard::Kind::MigrationWanted(wanted));
    assert_eq!(sent(&first).len(), 2, "the orders");
    let again = MigrationWanted {
        sequence: 6,
        ..wanted
    };
    assert_eq!(store.says(1, shard::Kind::MigrationWanted(again)), []);
    let odd = MigrationWanted {
        sequence: 7,
        tablet: TabletRange {
            end_key_hash: 5,
            ..WHOLE
        },
        ..wanted
    };
    let answers = |actions: &[Action]| -> Vec<(u64, u64, u32)> {
        let ended = sent(actions)
            .into_iter()
            .filter_map(|(on, kind)| match kind {
                Kind::MigrationEnded(ended) => Some((on, ended.sequence, ended.status)),
                _ => None,
            });
        ended.collect()
    };
    let refused = store.says(1, shard::Kind::MigrationWanted(odd));
    let unknown = u32::from(Status::UnknownTablet);
    assert_eq!(answers(&refused), [(101, 7, unknown)]);
    let elsewhere = MigrationWanted {
        sequence: 8,
        target: store.ids[&3].0,
        ..wanted
    };
    let busy = store.says(1, shard::Kind::MigrationWanted(elsewhere));
    assert_eq!(answers(&busy), [(101, 8, u32::from(Status::Retry))]);
    let nowhere = MigrationWanted {
        sequence: 9,
        target: 99,
        ..wanted
    };
    let wrong = store.says(1, shard::Kind::MigrationWanted(nowhere));
    let invalid = u32::from(Status::InvalidParameter);
    assert_eq!(answers(&wrong), [(101, 9, invalid)]);
    let id = shown(&store)[0].id;
    has_all(&mut store, id);
    let end = stopped(&mut store, id);
    assert_eq!(answers(&end), [(101, 5, 0), (101, 6, 0)]);
}

#[test]
fn what_has_ended_is_shown_for_a_while() {
    let (mut store, _, mut id) = one_under_way();
    for _ in 0..25 {
        fails(&mut store, 2, id);
        let order = to_server(store.ids[&2]);
        id = begin(&mut store, &order).unwrap().0.id;
    }
    let shown = shown(&store);
    assert_eq!(shown.len(), 21);
    assert!(shown[..20].iter().all(|one| one.ended_ns > 0));
    assert_eq!((shown[20].id, shown[20].ended_ns), (id, 0));
}
