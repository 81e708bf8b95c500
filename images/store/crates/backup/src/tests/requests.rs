//! Appends, frees and reads without faults.

use super::*;

#[test]
fn a_buffered_append_is_answered_at_once_and_survives_the_process() {
    let mut rig = Rig::buffered();
    assert_eq!(rig.put_now(replica(1, 1), 0..100, false), (Status::Ok, 100));
    assert_eq!(
        rig.put_now(replica(1, 1), 100..300, false),
        (Status::Ok, 300)
    );
    rig.restart();
    rig.assert_holds(replica(1, 1), 300);
    assert_eq!(rig.damage_of(replica(1, 1)), None);
    assert_eq!(
        rig.put_now(replica(1, 1), 300..301, true),
        (Status::Ok, 301)
    );
    rig.restart();
    rig.assert_holds(replica(1, 1), 301);
    assert_eq!(rig.backup().stats().frames_closed, 1);
}

#[test]
fn a_flushed_append_is_answered_when_a_sync_that_began_after_it_has_ended() {
    let mut rig = Rig::flushed();
    rig.settle();
    let first = rig.put(replica(1, 1), 0..100, false);
    assert_eq!(rig.storage().syncs_under_way(), [Scope::All]);
    let [second, third] = [100..200, 200..300].map(|range| rig.put(replica(1, 1), range, false));
    assert_eq!(rig.answer(first), None);
    rig.finish_sync(Scope::All);
    assert_eq!(rig.answer(first), Some((Status::Ok, 100)));
    assert_eq!((rig.answer(second), rig.answer(third)), (None, None));
    rig.finish_sync(Scope::All);
    assert_eq!(
        rig.answer(second),
        Some((Status::Ok, 200)),
        "one sync for both"
    );
    assert_eq!(rig.answer(third), Some((Status::Ok, 300)));
    rig.power_loss(|_| 0);
    rig.assert_holds(replica(1, 1), 300);
    assert_eq!(rig.damage_of(replica(1, 1)), None);
}

#[test]
fn what_is_held_is_passed_over() {
    let mut rig = Rig::buffered();
    let one = replica(1, 1);
    rig.put_now(one, 0..100, false);
    assert_eq!(rig.put_now(one, 0..100, false), (Status::Ok, 100));
    assert_eq!(rig.put_now(one, 20..50, false), (Status::Ok, 100));
    assert_eq!(rig.put_now(one, 50..150, false), (Status::Ok, 150));
    assert_eq!(rig.put_now(one, 150..150, false), (Status::Ok, 150));
    rig.assert_holds(one, 150);
    assert_eq!(rig.backup().stats().bytes_appended, 150);
    assert_eq!(rig.put_now(one, 120..160, true), (Status::Ok, 160));
    assert_eq!(rig.put_now(one, 120..160, true), (Status::Ok, 160));
    assert_eq!(
        rig.put_now(one, 0..100, false),
        (Status::Ok, 160),
        "sent again with the rest"
    );
    rig.assert_holds(one, 160);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let mut rig = Rig::buffered();
    let one = replica(1, 1);
    assert_eq!(rig.put_now(one, 5..10, false), (Status::Missing, 0));
    rig.put_now(one, 0..100, false);
    assert_eq!(rig.put_now(one, 101..110, false), (Status::Missing, 100));
    assert_eq!(
        rig.put_now(one, 0..50, true),
        (Status::Mismatch, 100),
        "shorter"
    );
    let right = Append {
        replica: one,
        role: Role::Head,
        offset: 100,
        closes: false,
        crc: crc32c::crc32c(&content_of(one, 110)),
        data: &content_of(one, 110)[100..],
    };
    let wrong = [
        Append { crc: 1, ..right },
        Append {
            data: b"other data",
            ..right
        },
        Append {
            role: Role::Side,
            ..right
        },
        Append {
            replica: replica(1, 2),
            offset: 0,
            ..right
        },
        Append {
            offset: SEGMENT_BYTES - 9,
            ..right
        },
    ];
    for append in wrong {
        let nonce = rig.send(&append);
        assert_eq!(rig.answer(nonce).unwrap().0, Status::Mismatch, "{append:?}");
    }
    let nonce = rig.send(&right);
    assert_eq!(rig.answer(nonce), Some((Status::Ok, 110)));
    rig.put_now(one, 110..120, true);
    assert_eq!(
        rig.put_now(one, 110..130, true),
        (Status::Mismatch, 120),
        "it is closed"
    );
    rig.assert_holds(one, 120);
}

#[test]
fn frames_run_out_and_come_back() {
    let mut rig = Rig::buffered();
    for segment_id in 1..=3 {
        assert_eq!(
            rig.put_now(replica(1, segment_id), 0..10, true).0,
            Status::Ok
        );
    }
    assert_eq!(rig.put_now(replica(1, 4), 0..10, false), (Status::Full, 0));
    assert_eq!(rig.free(replica(1, 2)), Status::Ok);
    assert_eq!(rig.free(replica(1, 2)), Status::Ok, "twice is once");
    assert_eq!(rig.read(replica(1, 2), 0, 1).0, Status::Missing);
    assert_eq!(rig.put_now(replica(1, 4), 0..20, false).0, Status::Ok);
    rig.restart();
    rig.assert_holds(replica(1, 1), 10);
    rig.assert_holds(replica(1, 4), 20);
    assert_eq!(
        rig.backup()
            .segments(ServerId::new(1, 1))
            .collect::<Vec<_>>(),
        [1, 3, 4]
    );
}

#[test]
fn what_is_freed_during_a_sync_is_free_with_the_next() {
    let mut rig = Rig::new(Durability::Flushed, 1);
    rig.settle();
    rig.put(replica(1, 1), 0..10, false);
    assert_eq!(rig.storage().syncs_under_way(), [Scope::All]);
    rig.free(replica(1, 1));
    for expected in [0, 1] {
        rig.finish_sync(Scope::All);
        assert_eq!(rig.backup().stats().frames_free, expected);
    }
}

#[test]
fn a_frame_taken_again_during_a_sync_owes_nothing_to_its_past() {
    let mut rig = Rig::new(Durability::Buffered, 1);
    rig.settle();
    rig.put_now(replica(1, 1), 0..500, true);
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.storage().syncs_under_way(), [Scope::All]);
    rig.free(replica(1, 1));
    rig.put_now(replica(1, 2), 0..10, false);
    rig.finish_sync(Scope::All);
    rig.put_now(replica(1, 2), 10..20, false);
    rig.settle();
    rig.restart();
    rig.assert_holds(replica(1, 2), 20);
}

#[test]
fn a_log_is_forgotten_with_all_its_frames() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..10, true);
    rig.put_now(replica(1, 2), 0..10, false);
    rig.put_now(replica(2, 1), 0..10, false);
    let logs: Vec<_> = rig.backup().logs().collect();
    assert_eq!(logs, [ServerId::new(1, 1), ServerId::new(2, 1)]);
    let now = rig.now;
    rig.backup().forget_log(now, logs[0]);
    rig.restart();
    assert_eq!(rig.backup().logs().collect::<Vec<_>>(), logs[1..]);
    assert_eq!(rig.backup().stats().frames_free, 2);
}

#[test]
fn reads_give_pieces_and_less_at_the_end() {
    let mut rig = Rig::buffered();
    let one = replica(1, 1);
    let all = content_of(one, 100);
    rig.put_now(one, 0..100, true);
    assert_eq!(rig.read(one, 0, 10), (Status::Ok, all[..10].to_vec()));
    assert_eq!(rig.read(one, 90, 20), (Status::Ok, all[90..].to_vec()));
    assert_eq!(rig.read(one, 100, 20), (Status::Ok, vec![]));
    assert_eq!(rig.read(one, u32::MAX, u32::MAX), (Status::Ok, vec![]));
    assert_eq!(rig.read(replica(1, 2), 0, 10).0, Status::Missing);
}

#[test]
fn what_is_closed_reaches_the_disk_in_the_background() {
    let mut rig = Rig::buffered();
    rig.settle();
    rig.put_now(replica(1, 1), 0..100, true);
    rig.put_now(replica(1, 2), 0..100, false);
    assert_eq!(rig.storage().syncs_under_way(), [], "nobody waits for it");
    rig.settle();
    rig.power_loss(|_| 0);
    rig.assert_holds(replica(1, 1), 100);
    let syncs = rig.backup().stats().syncs;
    rig.put_now(replica(1, 3), 0..100, false);
    rig.settle();
    assert_eq!(
        rig.backup().stats().syncs,
        syncs,
        "an open one is not synced for itself"
    );
}

#[test]
fn a_storage_that_cannot_be_used_is_refused_with_what_to_do() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, true);
    let storage = rig.take_storage();
    let refuse = |config: &Config, storage: &MemoryStorage| {
        let opened = Backup::open(Time(0), config.clone(), storage.clone());
        opened.map(|_| ()).unwrap_err().to_string()
    };
    let config = rig.config.clone();
    let other_cluster = Config {
        cluster_id: 8,
        ..config.clone()
    };
    let text = refuse(&other_cluster, &storage);
    assert!(
        text.contains("cluster 0000000000000007") && text.contains("another one"),
        "{text}"
    );
    let other_segments = Config {
        segment_bytes: 8192,
        ..config.clone()
    };
    let text = refuse(&other_segments, &storage);
    assert!(
        text.contains("segments of 4096 bytes") && text.contains("empty storage"),
        "{text}"
    );
    let none = Config {
        frame_count: 0,
        ..config.clone()
    };
    assert!(refuse(&none, &storage).contains("too small"));
    let grown = Config {
        frame_count: 4,
        ..config.clone()
    };
    let empty = MemoryStorage::new(config.layout().total_bytes());
    assert!(refuse(&grown, &empty).contains("beyond the end"));
    let mut foreign = empty.clone();
    foreign.write(5000, b"x").unwrap();
    assert!(refuse(&config, &foreign).contains("no backup's"));
    let mut broken = storage.clone();
    for place in 0..3 {
        broken.rot(place * 4096 + 20, 1);
    }
    assert!(refuse(&config, &broken).contains("superblocks of the storage are damaged"));
    for place in 0..3 {
        broken.rot(place * 4096 + 12, 2);
    }
    assert!(refuse(&config, &broken).contains("format 3"));
}

#[test]
fn a_storage_of_a_format_that_this_build_does_not_read_is_refused_whatever_older_superblocks_say() {
    let later = Formats {
        oldest: 1,
        newest: 2,
    };
    for durability in [Durability::Buffered, Durability::Flushed] {
        let mut rig = Rig::new(durability, 3);
        rig.config.formats = later;
        let storage = rig.take_storage();
        rig.open(storage);
        rig.put_settled(replica(1, 1), 0..100, true);
        rig.backup().activate(2);
        rig.tick();
        rig.settle();
        let former = Config {
            formats: Formats::CURRENT,
            ..rig.config.clone()
        };
        let storage = rig.take_storage();
        let refused = Backup::open(Time(0), former, storage.clone()).map(|_| ());
        let unknown = OpenError::UnknownFormat {
            found: 2,
            known: Formats::CURRENT,
        };
        assert_eq!(refused, Err(unknown), "{durability:?}");
        // Who reads it goes on with it, whatever it is told.
        assert_eq!(rig.config.format, 1);
        rig.open(storage);
        assert_eq!(rig.backup().config().format, 2);
        assert_eq!(rig.backup().logs().count(), 1);
    }
}

#[test]
fn formatting_leaves_nothing_of_what_was_there() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, true);
    rig.begin_recovery(ServerId::new(2, 1));
    rig.settle();
    let storage = rig.take_storage();
    let formatted = Backup::format(rig.now, rig.config.clone(), storage).unwrap();
    rig.open(formatted.into_storage());
    assert_eq!(rig.backup().logs().count(), 0);
    assert_eq!(rig.put_now(replica(2, 1), 0..10, false).0, Status::Ok);
}

#[test]
fn an_append_of_nothing_takes_no_frame() {
    let mut rig = Rig::buffered();
    let free = rig.backup().stats().frames_free;
    for log in 1..=3 {
        for closes in [false, true] {
            let refused = rig.put_now(replica(log, 1), 0..0, closes);
            assert_eq!(refused, (Status::Mismatch, 0));
        }
    }
    assert_eq!(rig.backup().stats().frames_free, free);
    assert_eq!(rig.put_now(replica(1, 1), 0..1, false), (Status::Ok, 1));
    // An end without more data is none.
    assert_eq!(rig.put_now(replica(1, 1), 1..1, true), (Status::Ok, 1));
}
