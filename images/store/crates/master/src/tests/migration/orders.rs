//! What the coordinator may order, in which order, and what becomes of requests meanwhile.

use core::time::Duration;

#[cfg(feature = "planted-bugs")]
use base::bugs::{Bug, plant};
use base::ids::{ServerId, TableId};
use base::time::Time;
use wire::member::{self, Migrated, MigrationId, TabletRange, coordinator, shard};
use wire::peer::{MigrateRead, Migrating, Phase, Request, Status as PeerStatus};
use wire::rpc::{MigrateTabletRequest, RejectRules, RetryResponse, WriteResponse};
use wire::status::Status;

use super::super::harness::*;
use crate::*;

const ID: u64 = 5;
const OTHER_TABLE: TableId = TableId(2);

fn target_of(config: Config) -> Driver {
    let mut target = Driver::new(config);
    let session = target.welcome(CLUSTER, ServerId::new(2, 0), 1, &[]);
    assert_eq!(session, Session::Continue);
    target
}

/// A source that has two tables, and a target that has none.
fn pair() -> (Driver, Driver) {
    let mut source = Driver::new(small(Durability::Unreplicated));
    source.welcome(
        CLUSTER,
        ServerId::new(1, 0),
        1000,
        &[WHOLE_TABLE, whole(OTHER_TABLE.0)],
    );
    (source, target_of(small(Durability::Unreplicated)))
}

fn id() -> MigrationId {
    MigrationId { migration_id: ID }
}

fn begin(source: &mut Driver, target: &mut Driver) {
    source.order(out_of(ID, WHOLE_TABLE));
    target.order(into(ID));
}

fn out_of(migration_id: u64, tablet: TabletRange) -> coordinator::Kind {
    coordinator::Kind::MigrateOut(member::MigrateOut {
        migration_id,
        tablet,
        target: ServerId::new(2, 0).0,
    })
}

fn into(migration_id: u64) -> coordinator::Kind {
    coordinator::Kind::Migrate(member::Migrate {
        migration_id,
        tablet: WHOLE_TABLE,
        source: ServerId::new(1, 0).0,
        locator: "tcp:host=source,port=1".to_owned(),
        bytes_per_second: u64::MAX,
        version_floor: 0,
    })
}

/// Carries one question to the source, and its answer back; no if there was none.
fn carry_one(source: &mut Driver, target: &mut Driver) -> bool {
    target.shard.tick(target.now, &mut target.said);
    for id in std::mem::take(&mut target.said.migrations_connected) {
        let (now, said) = (target.now, &mut target.said);
        let channel = Channel::Migration;
        target.shard.backup_connected(now, channel, id, said);
        target.shard.tick(now, said);
    }
    let Some((from, nonce, request)) = target.said.to_migrations.pop() else {
        return false;
    };
    let Ok(Request::MigrateRead(read)) = Request::decode(&request) else {
        panic!("another request");
    };
    let mut data = Vec::new();
    let answer = source.shard.migrate_read(&read, &mut data);
    let payload = [&answer.fixed_bytes()[..], &data].concat();
    let (now, said) = (target.now, &mut target.said);
    target
        .shard
        .backup_answer(now, Channel::Migration, from, nonce, &payload, said);
    true
}

fn carry(source: &mut Driver, target: &mut Driver) {
    while carry_one(source, target) {}
}

/// What a shard has said of migrations since this was last asked.
fn migrated(driver: &mut Driver) -> Vec<Migrated> {
    let messages = std::mem::take(&mut driver.said.messages);
    let migrated = messages.into_iter().filter_map(|kind| match kind {
        shard::Kind::Migrated(migrated) => Some(migrated),
        _ => None,
    });
    migrated.collect()
}

fn failure(driver: &mut Driver) -> Migrated {
    let mut all = migrated(driver);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_ne!(all[0].failure, "");
    all.remove(0)
}

/// The coordinator was told of a failure, which is in the log, too: why.
fn failed(driver: &mut Driver) -> MigrationError {
    let told = failure(driver);
    let Some(ShardEvent::Migration(MigrationEvent::Failed { migration, error })) =
        driver.said.events.pop()
    else {
        panic!("{told:?} is not reported");
    };
    assert_eq!(
        (told.migration_id, told.failure),
        (migration, error.to_string())
    );
    assert_eq!(told.is_full, error.is_full());
    error
}

fn status(driver: &mut Driver, payload: &[u8]) -> Status {
    let reply = driver.call(payload);
    Status::try_from(u32::from_le_bytes(reply[..4].try_into().unwrap())).unwrap()
}

fn retries(driver: &mut Driver, payload: &[u8]) -> bool {
    RetryResponse::decode(&driver.call(payload)).is_ok()
}

fn is_stopped(driver: &mut Driver) -> bool {
    let messages = std::mem::take(&mut driver.said.messages);
    messages.contains(&shard::Kind::Stopped(id()))
}

#[test]
fn a_tablet_moves_with_all_that_belongs_to_it() {
    let (mut source, mut target) = pair();
    for key in 1..=20 {
        assert_eq!(source.write(key, &[key as u8], b"value").0, Status::Ok);
    }
    let removed = source.remove(21, &[1]).1;
    begin(&mut source, &mut target);
    assert!(carry_one(&mut source, &mut target), "the snapshot");
    source.write(22, &[2], b"changed");
    assert_eq!(source.remove(23, &[3]).0, Status::Ok);
    assert_eq!(target.read(&[2]).0, Status::UnknownTablet);
    carry(&mut source, &mut target);
    let all = migrated(&mut target);
    assert!(all.len() == 1 && all[0].failure.is_empty(), "{all:?}");
    assert!(all[0].objects >= 18 && all[0].from_segment > 0 && all[0].bytes > 500);

    let late = write(lease(1), 24, 0, &[2], b"late", RejectRules::default());
    assert!(retries(&mut source, &late), "frozen");
    assert_eq!(
        source.read(&[2]),
        (Status::Ok, source.read(&[2]).1, b"changed".to_vec())
    );
    let parts = multi_write(&[(TABLE, &[2], b"x"), (OTHER_TABLE, &[2], b"x")]);
    let reply = source.call(&parts);
    let statuses = [8, 20].map(|at| u32::from_le_bytes(reply[at..at + 4].try_into().unwrap()));
    assert_eq!(
        statuses.map(|status| Status::try_from(status).unwrap()),
        [Status::Retry, Status::Ok]
    );

    source.order(coordinator::Kind::StopTablet(id()));
    assert!(is_stopped(&mut source));
    assert!(retries(&mut source, &read(&[2])), "stopped");
    target.order(coordinator::Kind::CommitMigration(id()));
    source.order(coordinator::Kind::DropTablet(member::TabletOrder {
        sequence: 1,
        tablet: WHOLE_TABLE,
    }));
    assert_eq!(source.read(&[2]).0, Status::UnknownTablet);
    source.settle();
    assert_eq!(source.shard.stats().objects, 1, "of the other table");
    assert_eq!(source.shard.stats().rpc_results, 0);

    assert_eq!(target.read(&[2]).2, b"changed");
    assert_eq!(target.read(&[3]).0, Status::ObjectDoesntExist);
    let again = target.write(22, &[2], b"changed");
    assert_eq!(again, (Status::Ok, target.read(&[2]).1), "it was done");
    let (status, version) = target.write(24, &[1], b"made again");
    assert!(status == Status::Ok && version > removed);
    assert_eq!(
        target.order(coordinator::Kind::CommitMigration(id())),
        Session::Continue,
        "said again"
    );
    for driver in [&source, &target] {
        assert_eq!(driver.shard.audit(), Ok(()));
    }
}

#[test]
fn what_is_acknowledged_at_the_source_only_has_no_effect_at_the_target() {
    let (mut source, mut target) = pair();
    let late = write(lease(1), 1, 0, b"key", b"once", RejectRules::default());
    assert_eq!(status(&mut source, &late), Status::Ok);
    let mut elsewhere = write(lease(1), 2, 1, b"key", b"x", RejectRules::default());
    elsewhere[4..12].copy_from_slice(&OTHER_TABLE.0.to_le_bytes());
    assert_eq!(status(&mut source, &elsewhere), Status::Ok);
    begin(&mut source, &mut target);
    carry(&mut source, &mut target);
    source.order(coordinator::Kind::StopTablet(id()));
    target.order(coordinator::Kind::CommitMigration(id()));
    assert_eq!(target.shard.stats().rpc_results, 0);
    assert_eq!(status(&mut target, &late), Status::StaleRpc);
}

#[test]
fn until_it_is_committed_it_can_be_given_up() {
    for pieces in 0..5 {
        let (mut source, mut target) = pair();
        source.write(1, b"key", b"value");
        begin(&mut source, &mut target);
        for _ in 0..pieces {
            carry_one(&mut source, &mut target);
        }
        for driver in [&mut source, &mut target] {
            driver.order(coordinator::Kind::GiveUpMigration(id()));
            driver.settle();
        }
        let stats = target.shard.stats();
        assert_eq!((stats.objects, stats.rpc_results), (0, 0));
        assert_eq!(source.write(2, b"key", b"again").0, Status::Ok);
        // And then tried again.
        let all = [migrated(&mut target), migrated(&mut source)].concat();
        assert!(all.iter().all(|one| one.failure.is_empty()));
        begin(&mut source, &mut target);
        carry(&mut source, &mut target);
        assert_eq!(migrated(&mut target).len(), 1);
        source.order(coordinator::Kind::StopTablet(id()));
        assert!(is_stopped(&mut source));
        source.order(coordinator::Kind::GiveUpMigration(id()));
        assert_eq!(source.read(b"key").2, b"again");
        assert_eq!(source.shard.audit(), Ok(()));
    }
}

#[test]
fn a_piece_can_be_asked_for_again_until_the_next_one_is() {
    let (mut source, _) = pair();
    source.write(1, b"key", b"value");
    source.order(out_of(ID, WHOLE_TABLE));
    let mut ask = |migration_id, piece, freezes| {
        let mut data = Vec::new();
        let read = MigrateRead {
            migration_id,
            piece,
            bytes: 1,
            freezes,
        };
        let Migrating { status, phase, .. } = source.shard.migrate_read(&read, &mut data);
        (status, phase, data)
    };
    assert_eq!(ask(ID + 1, 0, false).0, PeerStatus::Missing);
    assert_eq!(ask(ID, 1, false).0, PeerStatus::Ok);
    assert_eq!(ask(ID, 0, false).0, PeerStatus::Mismatch);
    assert_eq!(ask(ID, 3, false).0, PeerStatus::Mismatch);
    for piece in 2.. {
        let (status, phase, data) = ask(ID, piece, piece > 10);
        assert_eq!(status, PeerStatus::Ok);
        let again = ask(ID, piece, piece > 10);
        assert_eq!((again.1, again.2), (phase, data), "piece {piece}");
        if phase == Phase::End {
            assert_eq!(piece, 11);
            break;
        }
    }
}

#[test]
fn a_welcome_says_how_it_has_ended() {
    let welcome = |driver: &mut Driver, number, tablets: &[TabletRange]| {
        driver.shard.coordinator_lost(driver.now);
        driver.welcome(CLUSTER, ServerId::new(number, 0), 1, tablets)
    };
    for is_committed in [true, false] {
        let (mut source, mut target) = pair();
        source.write(1, b"key", b"value");
        begin(&mut source, &mut target);
        carry(&mut source, &mut target);
        source.order(coordinator::Kind::StopTablet(id()));
        let of = |is_owner| if is_owner { &[WHOLE_TABLE][..] } else { &[] };
        welcome(&mut source, 1, of(!is_committed));
        welcome(&mut target, 2, of(is_committed));
        let (owner, other) = if is_committed {
            (&mut target, &mut source)
        } else {
            (&mut source, &mut target)
        };
        owner.settle();
        other.settle();
        assert_eq!(owner.read(b"key").2, b"value");
        assert_eq!(owner.write(2, b"key", b"again").0, Status::Ok);
        assert_eq!(other.read(b"key").0, Status::UnknownTablet);
    }
    // In halves: it was split since.
    let (mut source, mut target) = pair();
    source.write(1, b"key", b"value");
    begin(&mut source, &mut target);
    carry(&mut source, &mut target);
    let half = |start_key_hash, end_key_hash| TabletRange {
        start_key_hash,
        end_key_hash,
        ..WHOLE_TABLE
    };
    let halves = [half(0, 99), half(100, u64::MAX)];
    welcome(&mut target, 2, &halves);
    assert_eq!(target.read(b"key").2, b"value");
}

#[test]
fn who_does_not_have_what_is_committed_ends() {
    let (_, mut target) = pair();
    let session = target.order(coordinator::Kind::CommitMigration(id()));
    assert_eq!(session, Session::Close);
    assert!(target.shard.is_superseded());
    let refusal = Refusal::NotMadeHere(Brought::Migration(ID));
    assert_eq!(target.shard.refusal(), Some(&refusal));
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let (mut source, mut target) = pair();
    source.order(coordinator::Kind::StopTablet(id()));
    assert_eq!(failed(&mut source), MigrationError::NotFrozen);
    source.order(out_of(ID, whole(9)));
    assert_eq!(failed(&mut source), MigrationError::NotOwned);
    begin(&mut source, &mut target);
    begin(&mut source, &mut target);
    assert_eq!(migrated(&mut source), [], "said twice is said once");
    source.order(out_of(ID + 1, whole(OTHER_TABLE.0)));
    assert_eq!(failed(&mut source), MigrationError::GivesOutAnother);
    target.order(into(ID + 1));
    assert_eq!(failed(&mut target), MigrationError::TakesInAnother);
    source.order(coordinator::Kind::StopTablet(id()));
    assert_eq!(failed(&mut source), MigrationError::NotFrozen);
    source.order(into(ID + 1));
    assert_eq!(
        failed(&mut source),
        MigrationError::Conflict(Conflict::Taken { table_id: TABLE })
    );
    let taken = target.order(coordinator::Kind::TakeTablet(member::TabletOrder {
        sequence: 1,
        tablet: WHOLE_TABLE,
    }));
    assert_eq!(taken, Session::Close);
}

#[test]
fn a_split_ends_it() {
    let (mut source, mut target) = pair();
    source.write(1, b"key", b"value");
    begin(&mut source, &mut target);
    carry(&mut source, &mut target);
    source.order(coordinator::Kind::SplitTablet(member::TabletSplit {
        sequence: 1,
        table_id: TABLE.0,
        key_hash: 1 << 63,
    }));
    assert_eq!(failed(&mut source), MigrationError::Split);
    assert_eq!(source.write(2, b"key", b"again").0, Status::Ok);
    source.order(coordinator::Kind::StopTablet(id()));
    assert!(!is_stopped(&mut source), "the target has too little");
}

#[test]
fn a_target_that_cannot_reach_the_source_gives_up() {
    let (_, mut target) = pair();
    target.order(into(ID));
    for _ in 0..20_000 {
        target.now += core::time::Duration::from_millis(1);
        target.shard.tick(target.now, &mut target.said);
        for source in std::mem::take(&mut target.said.migrations_connected) {
            let (now, said) = (target.now, &mut target.said);
            let channel = Channel::Migration;
            target.shard.backup_disconnected(now, channel, source, said);
        }
    }
    assert_eq!(failed(&mut target), MigrationError::SourceSilent);
}

/// Between two pieces it waits longer than it would for a source that is silent.
#[test]
fn a_slow_migration_is_not_a_late_one() {
    let (mut source, mut target) = pair();
    for key in 1..=60 {
        assert_eq!(source.write(key, &[key as u8], &[7; 1500]).0, Status::Ok);
    }
    source.order(out_of(ID, WHOLE_TABLE));
    let coordinator::Kind::Migrate(order) = into(ID) else {
        unreachable!("the order of a target");
    };
    let bytes_per_second = 500;
    target.order(coordinator::Kind::Migrate(member::Migrate {
        bytes_per_second,
        ..order
    }));
    let began = target.now;
    let mut said = Vec::new();
    for _ in 0..1000 {
        if !carry_one(&mut source, &mut target) {
            target.now += Duration::from_secs(1);
        }
        said = migrated(&mut target);
        if !said.is_empty() {
            break;
        }
    }
    assert!(said.len() == 1 && said[0].failure.is_empty(), "{said:?}");
    let took = target.now.since(began);
    let least = Duration::from_secs(60 * 1500 / bytes_per_second);
    assert!(took > least, "{took:?}");
}

#[test]
fn memory_is_for_those_who_write() {
    let value = [7; 1500];
    let (mut source, mut target) = pair();
    let mut rpc_id = 0;
    let mut fill = |driver: &mut Driver, rounds: u64| {
        for key in 0..rounds {
            rpc_id += 1;
            let key = [(key % 100) as u8];
            let payload = write(
                lease(1),
                rpc_id,
                rpc_id - 1,
                &key,
                &value,
                RejectRules::default(),
            );
            while retries(driver, &payload) {
                driver.settle();
            }
            let again = WriteResponse::decode(&driver.call(&payload)).unwrap();
            assert_eq!(again.status, Status::Ok);
        }
    };
    fill(&mut source, 100);
    begin(&mut source, &mut target);
    carry_one(&mut source, &mut target);
    // More than there is memory for, while nothing is read.
    fill(&mut source, 1000);
    assert_eq!(failed(&mut source), MigrationError::SourceFull);
    carry(&mut source, &mut target);
    assert_eq!(failed(&mut target), MigrationError::SourceGaveUp);
    assert_eq!(source.shard.audit(), Ok(()));

    // A target that is too small.
    let mut little = target_of(Config {
        log_bytes: 10 << 14,
        ..small(Durability::Unreplicated)
    });
    source.order(out_of(ID + 1, WHOLE_TABLE));
    little.order(into(ID + 1));
    carry(&mut source, &mut little);
    assert!(matches!(failed(&mut little), MigrationError::NoRoom(_)));
    little.settle();
    assert_eq!(little.shard.stats().objects, 0);
}

#[test]
fn what_is_written_after_it_has_moved_gets_no_version_that_a_loss_may_have_taken() {
    let (mut source, mut target) = pair();
    assert_eq!(source.write(1, b"key", b"value").0, Status::Ok);
    source.order(out_of(ID, WHOLE_TABLE));
    let coordinator::Kind::Migrate(order) = into(ID) else {
        unreachable!("it is one");
    };
    target.order(coordinator::Kind::Migrate(member::Migrate {
        version_floor: 1 << 41,
        ..order
    }));
    carry(&mut source, &mut target);
    source.order(coordinator::Kind::StopTablet(id()));
    target.order(coordinator::Kind::CommitMigration(id()));
    assert_eq!(target.write(2, b"key", b"over"), (Status::Ok, 1 << 41));
}

#[test]
fn a_client_that_asks_for_a_migration_is_answered_when_the_coordinator_says_how_it_ended() {
    let (mut source, _) = pair();
    let own = source.shard.server_id();
    let ask = |new_owner: ServerId, last_key_hash: u64| {
        let mut payload = Vec::new();
        let request = MigrateTabletRequest {
            table_id: TABLE,
            first_key_hash: 0,
            last_key_hash,
            new_owner,
        };
        request.encode(&mut payload);
        payload
    };
    let elsewhere = ask(ServerId::new(2, 0), u64::MAX);
    let refused = status(&mut source, &ask(own, u64::MAX));
    assert_eq!(refused, Status::RequestFormatError);
    let refused = status(&mut source, &ask(ServerId::new(2, 0), 7));
    assert_eq!(refused, Status::UnknownTablet);
    let short = status(&mut source, &elsewhere[..35]);
    assert_eq!(short, Status::MessageTooShort);

    let waiting: Vec<u64> = (0..16).map(|_| source.send(&elsewhere)).collect();
    assert!(retries(&mut source, &elsewhere), "too many wait");
    let wanted = source.said.messages.iter().filter_map(|kind| match kind {
        shard::Kind::MigrationWanted(wanted) => Some((wanted.sequence, wanted.tablet)),
        _ => None,
    });
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(wanted.len(), 16);
    assert_eq!(wanted[0].1, WHOLE_TABLE);
    assert_eq!(source.reply_to(waiting[0]), None);
    let mut ends = |at: usize, status: u32| {
        source.order(coordinator::Kind::MigrationEnded(member::MigrationEnded {
            sequence: wanted[at].0,
            status,
        }));
        source.reply_to(waiting[at])
    };
    let ok = u32::from(Status::Ok);
    assert_eq!(ends(0, ok), Some(ok.to_le_bytes().to_vec()));
    assert_eq!(ends(0, ok), None, "said twice");
    let invalid = u32::from(Status::InvalidParameter);
    assert_eq!(ends(1, invalid), Some(invalid.to_le_bytes().to_vec()));
    let later = ends(2, Status::Retry.into()).expect("an answer");
    assert!(RetryResponse::decode(&later).is_ok());
    // Another session: nobody knows any more what was asked in the one before.
    source.shard.coordinator_lost(source.now);
    assert!(retries(&mut source, &elsewhere), "nobody to ask");
    source.welcome(CLUSTER, own, 1000, &[WHOLE_TABLE, whole(OTHER_TABLE.0)]);
    let later = source.reply_to(waiting[3]).expect("an answer");
    assert!(RetryResponse::decode(&later).is_ok());
}

/// A client that waits for the end of a migration, of which the coordinator never tells.
fn never_told() {
    let (mut source, _) = pair();
    let mut payload = Vec::new();
    let request = MigrateTabletRequest {
        table_id: TABLE,
        first_key_hash: 0,
        last_key_hash: u64::MAX,
        new_owner: ServerId::new(2, 0),
    };
    request.encode(&mut payload);
    let nonce = source.send(&payload);
    let deadline = source.now + Duration::from_secs(600);
    source.shard.tick(source.now, &mut source.said);
    assert_eq!(source.reply_to(nonce), None);
    let next = source.shard.tick(Time(deadline.0 - 1), &mut source.said);
    assert!(next <= deadline);
    assert_eq!(source.reply_to(nonce), None);
    source.shard.tick(deadline, &mut source.said);
    let later = source.reply_to(nonce).expect("an answer");
    assert!(RetryResponse::decode(&later).is_ok());
}

#[test]
fn a_client_that_waits_for_too_long_asks_again() {
    never_told();
}

#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic(expected = "an answer")]
fn who_waits_for_ever_is_found() {
    plant(Some(Bug::WaitForEver));
    never_told();
}
