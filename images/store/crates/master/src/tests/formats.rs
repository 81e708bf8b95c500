//! The format in force: what a shard writes, and what it refuses.

use base::ids::ServerId;
use wire::entry::{self, Entry, EntryError, Kind, Object, RawEntry, SegmentHeader, Tombstone};
use wire::format::{FIRST_FORMAT, Formats};
use wire::keys::KeysAndValue;
use wire::member::{Format, Welcome, coordinator};

use super::harness::*;
use crate::*;

const NEXT: u32 = Formats::NEXT.newest;

fn of_build(formats: Formats) -> Config {
    Config {
        formats,
        ..small(Durability::Unreplicated)
    }
}

fn activate(driver: &mut Driver, format: u32) -> Session {
    driver.order(coordinator::Kind::Activate(Format { format }))
}

fn welcome_to(format: u32) -> coordinator::Kind {
    coordinator::Kind::Welcome(Welcome {
        cluster_id: CLUSTER,
        server_id: ServerId::new(1, 0).0,
        first_version: 1,
        tablets: vec![WHOLE_TABLE],
        silence_timeout_ms: 5000,
        format,
        ..Welcome::default()
    })
}

/// A segment of a log in a store of this format: an object, and the tombstone of another.
fn segment(format: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let header = SegmentHeader {
        cluster_id: CLUSTER,
        server_id: ServerId::new(9, 0),
        segment_id: 1,
        safe_version: 1,
        segment_bytes: 4096,
    };
    let object = Object {
        table_id: TABLE,
        version: 5,
        expires_ns: None,
        content: KeysAndValue::single(b"kept", b"value").unwrap(),
    };
    let dead = Object {
        content: KeysAndValue::single(b"dead", b"value").unwrap(),
        ..object
    };
    let tombstone = Tombstone {
        table_id: TABLE,
        version: 5,
        segment_id: 1,
        key: b"dead",
    };
    let mut end = entry::write(&header, format, &mut bytes);
    end += entry::write(&object, format, &mut bytes[end..]);
    end += entry::write(&dead, format, &mut bytes[end..]);
    end += entry::write(&tombstone, format, &mut bytes[end..]);
    bytes.truncate(end);
    bytes
}

#[test]
fn segments_are_of_the_format_in_force_from_the_next_one_on() {
    let mut driver = Driver::enlisted(of_build(Formats::NEXT));
    assert_eq!(driver.shard.format(), FIRST_FORMAT);
    let hello = driver.shard.hello();
    assert_eq!((hello.oldest_format, hello.newest_format), (1, NEXT));
    assert_eq!(activate(&mut driver, NEXT), Session::Continue);
    assert_eq!(driver.shard.format(), NEXT);
    // It stays so when the session ends, and in a store that begins anew.
    driver.shard.coordinator_lost(driver.now);
    assert_eq!(driver.order(welcome_to(NEXT)), Session::Continue);
    let log = &mut driver.shard.store().log;
    while log.newest_segment_id() < 2 {
        let object = Object {
            table_id: TABLE,
            version: log.take_safe_version(),
            expires_ns: None,
            content: KeysAndValue::single(b"key", &[7; 1000]).unwrap(),
        };
        log.prepare(object.entry_bytes(), 1100, log::Admission::Write)
            .unwrap();
        log.append(&object);
    }
    let newest = log.segment(2).unwrap();
    let header = RawEntry::read(newest).unwrap();
    assert_eq!((header.kind, header.format), (Kind::SegmentHeader, 2));
}

#[test]
fn a_format_that_the_build_does_not_read_is_refused() {
    let mut driver = Driver::enlisted(of_build(Formats::CURRENT));
    assert_eq!(activate(&mut driver, NEXT), Session::Close);
    assert_eq!(driver.shard.format(), FIRST_FORMAT);
    let refusal = Refusal::UnknownFormat {
        format: NEXT,
        known: Formats::CURRENT,
    };
    assert_eq!(driver.shard.refusal(), Some(&refusal));
    let text = refusal.to_string();
    assert!(
        text.contains("is of format 2, and this build reads format 1"),
        "{text}"
    );
    let mut driver = Driver::new(of_build(Formats::CURRENT));
    assert_eq!(driver.order(welcome_to(NEXT)), Session::Close);
    assert!(!driver.shard.is_enlisted());
    // An older coordinator says nothing, and means the first.
    assert_eq!(driver.order(welcome_to(0)), Session::Continue);
}

#[test]
fn a_replay_reads_every_format_up_to_the_builds_own_and_no_other() {
    let replayed = |formats, format| {
        let mut driver = Driver::new(of_build(formats));
        let mut welcome = welcome_to(FIRST_FORMAT);
        if let coordinator::Kind::Welcome(welcome) = &mut welcome {
            welcome.tablets.clear();
        }
        driver.order(welcome);
        let mut replay = driver.shard.begin_replay(vec![WHOLE_TABLE]).unwrap();
        driver.shard.replay(&mut replay, &segment(format))?;
        driver.shard.end_replay(replay);
        Ok(driver.shard.stats().objects)
    };
    let unknown = ReplayError::Damaged {
        offset: 0,
        error: EntryError::UnknownFormat {
            kind: Kind::SegmentHeader,
            format: 2,
        },
    };
    assert_eq!(replayed(Formats::CURRENT, FIRST_FORMAT), Ok(1));
    assert_eq!(replayed(Formats::NEXT, FIRST_FORMAT), Ok(1));
    assert_eq!(replayed(Formats::NEXT, NEXT), Ok(1));
    assert_eq!(replayed(Formats::CURRENT, NEXT), Err(unknown));
}
