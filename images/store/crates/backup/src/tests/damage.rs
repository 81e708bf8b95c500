//! Rot, torn writes and lost page caches are named, never believed.

use super::*;
use crate::layout::HEAD_BYTES;

#[test]
fn the_rot_of_a_closed_replica_is_found_when_it_is_read() {
    let mut rig = Rig::buffered();
    let one = replica(1, 1);
    rig.put_now(one, 0..4000, true);
    rig.restart();
    let at = rig.place_of(one) + 3999;
    rig.storage().rot(at, 1);
    assert_eq!(rig.read(one, 0, 10), (Status::Mismatch, vec![]));
    rig.tick();
    assert!(
        rig.has_reported_damage(one, |damage| *damage == Damage::Rotten),
        "{:?}",
        rig.said.events
    );
    assert_eq!(rig.backup().stats().frames_damaged, 1);
    assert_eq!(
        rig.put_now(one, 0..4000, true).0,
        Status::Mismatch,
        "it must be freed first"
    );
    rig.free(one);
    assert_eq!(rig.put_now(one, 0..4000, true).0, Status::Ok);
    rig.assert_holds(one, 4000);
}

#[test]
fn the_rot_of_an_open_replica_is_found_when_the_storage_is_opened() {
    for durability in [Durability::Buffered, Durability::Flushed] {
        let mut rig = Rig::new(durability, 3);
        let one = replica(1, 1);
        rig.put_settled(one, 0..100, false);
        rig.put_settled(one, 100..200, false);
        let at = rig.place_of(one) + 150;
        rig.storage().rot(at, 1);
        rig.restart();
        assert!(matches!(
            rig.damage_of(one),
            Some(Damage::Short {
                acknowledged_bytes: 200,
                ..
            })
        ));
        assert!(
            rig.has_reported_damage(one, |damage| matches!(
                damage,
                Damage::Short {
                    acknowledged_bytes: 200,
                    ..
                }
            )),
            "{:?}",
            rig.said.events
        );
        assert_eq!(rig.read(one, 0, 10).0, Status::Mismatch);
        assert_eq!(rig.put_now(one, 200..210, false).0, Status::Mismatch);
        assert_eq!(rig.keep_alive(one.log), Status::Missing);
        rig.restart();
        assert!(rig.damage_of(one).is_some(), "it stays named");
    }
}

#[test]
fn open_buffered_replicas_are_damaged_when_the_kernel_has_gone_down() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, true);
    rig.put_now(replica(1, 2), 0..100, false);
    rig.settle();
    // Whatever got through: nobody can know that it was all.
    rig.power_loss(|writes| writes);
    rig.assert_holds(replica(1, 1), 100);
    assert_eq!(rig.damage_of(replica(1, 2)), Some(Damage::Unsynced));
    assert!(rig.has_reported_damage(replica(1, 2), |damage| *damage == Damage::Unsynced));
    rig.restart();
    assert_eq!(
        rig.damage_of(replica(1, 2)),
        Some(Damage::Unsynced),
        "it stays so"
    );
}

#[test]
fn a_storage_closed_in_order_is_whole_under_any_kernel() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, false);
    let mut storage = rig.close_in_order();
    storage.power_loss(|_| 0);
    rig.config.boot_id[0] += 1;
    rig.open(storage);
    rig.assert_holds(replica(1, 1), 100);
    rig.put_now(replica(1, 1), 100..200, false);
    rig.power_loss(|_| 0);
    assert!(
        rig.damage_of(replica(1, 1)).is_some(),
        "the mark is good for once"
    );
}

#[test]
fn the_mode_that_counts_is_the_one_in_which_it_was_written() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, false);
    rig.config.durability = Durability::Flushed;
    rig.power_loss(|writes| writes);
    assert_eq!(rig.damage_of(replica(1, 1)), Some(Damage::Unsynced));
    rig.config.durability = Durability::Buffered;
    rig.restart();
    rig.put_now(replica(1, 2), 0..100, false);
    rig.config.durability = Durability::Flushed;
    rig.restart();
    rig.power_loss(|_| 0);
    rig.assert_holds(replica(1, 2), 100);
}

#[test]
fn a_closed_replica_never_becomes_open_again() {
    // Its closing is durable; then its frame is freed and taken by another replica, all of which may get lost or torn.
    for through in 0..2 * 3_usize.pow(4) {
        let mut rig = Rig::new(Durability::Flushed, 1);
        let (one, two) = (replica(1, 1), replica(1, 2));
        rig.settle();
        rig.put(one, 0..400, false);
        let nonce = rig.put(one, 400..800, true);
        rig.finish_sync(Scope::All);
        rig.finish_sync(Scope::All);
        assert_eq!(rig.answer(nonce), Some((Status::Ok, 800)));
        rig.free(one);
        let nonce = rig.put(two, 0..600, false);
        assert_eq!(
            rig.answer(nonce),
            Some((Status::Full, 0)),
            "not taken before that is durable"
        );
        if through % 2 == 0 {
            rig.settle();
        }
        rig.put(two, 0..600, false);
        rig.put(two, 600..900, true);
        let mut digits = through / 2;
        rig.power_loss(|writes| {
            let digit = digits % 3;
            digits /= 3;
            digit * writes / 2
        });
        let backup = rig.backup();
        let open: Vec<_> = backup
            .replicas
            .iter()
            .filter(|(_, number)| !backup.frames[**number].content().unwrap().closed)
            .map(|(&replica, _)| replica)
            .collect();
        assert!(!open.contains(&one), "through {through}");
        if backup.replicas.contains_key(&one) {
            rig.assert_holds(one, 800);
        }
    }
}

#[test]
fn rot_of_any_one_header_changes_nothing_that_is_settled() {
    for durability in [Durability::Buffered, Durability::Flushed] {
        for place in 0..3 {
            let mut rig = Rig::new(durability, 3);
            let (closed, open) = (replica(1, 1), replica(1, 2));
            rig.put_settled(open, 0..100, false);
            rig.put_settled(closed, 0..50, false);
            rig.put_settled(closed, 50..100, true);
            rig.put_settled(open, 100..200, false);
            for one in [closed, open] {
                let head = rig.place_of(one) - HEAD_BYTES as u64;
                rig.storage().rot(head + place * 4096 + 40, 1);
            }
            rig.restart();
            rig.assert_holds(closed, 100);
            assert_eq!(rig.backup().stats().frames_closed, 1);
            let found = rig.read(open, 0, 200);
            let is_named = match found.0 {
                Status::Mismatch => {
                    rig.has_reported_damage(open, |damage| *damage == Damage::Rotten)
                }
                // Of a buffered open replica, all headers may have been in one place.
                Status::Missing => rig.has_reported(&BackupEvent::HeaderDamaged { frame: 1 }),
                _ => false,
            };
            assert!(is_named || found == (Status::Ok, content_of(open, 200)));
            assert!(
                found.0 == Status::Ok
                    || durability == Durability::Buffered
                    || rig.damage_of(open).is_some()
            );
        }
    }
}

#[test]
fn what_was_not_settled_before_a_crash_is_settled_after_it() {
    for durability in [Durability::Buffered, Durability::Flushed] {
        for place in 0..3 {
            let mut rig = Rig::new(durability, 1);
            let one = replica(1, 1);
            rig.put(one, 0..100, true);
            rig.restart();
            rig.settle();
            rig.storage().rot(HEAD_BYTES as u64 + place * 4096 + 40, 1);
            rig.restart();
            rig.assert_holds(one, 100);
        }
    }
}

#[test]
fn what_is_free_stays_free_when_a_header_rots() {
    for place in 0..3 {
        let mut rig = Rig::flushed();
        let one = replica(1, 1);
        rig.put_settled(one, 0..100, true);
        rig.free(one);
        rig.settle();
        rig.storage().rot(HEAD_BYTES as u64 + place * 4096 + 40, 1);
        rig.restart();
        assert_eq!(rig.read(one, 0, 1).0, Status::Missing);
    }
}

#[test]
fn a_header_that_is_lost_altogether_is_said() {
    let mut rig = Rig::buffered();
    let one = replica(1, 1);
    rig.put_settled(one, 0..100, true);
    let head = rig.place_of(one) - HEAD_BYTES as u64;
    for place in 0..3 {
        rig.storage().rot(head + place * 4096 + 9, 1);
    }
    rig.restart();
    assert!(
        rig.has_reported(&BackupEvent::HeaderDamaged { frame: 0 }),
        "{:?}",
        rig.said.events
    );
    assert_eq!(rig.read(one, 0, 1).0, Status::Missing);
    rig.said.events.clear();
    rig.restart();
    assert_eq!(rig.said.events, [], "reported once");
}

#[test]
fn an_opening_that_was_never_acknowledged_may_be_gone() {
    let mut rig = Rig::flushed();
    rig.settle();
    let one = replica(1, 1);
    let data = rig.config.layout().data(0) / 512;
    rig.put(one, 0..1000, false);
    // The header gets through, its data does not.
    let mut sector = rig.config.layout().head(0) / 512;
    rig.power_loss(|writes| {
        let is_header = sector < data;
        sector = data;
        if is_header { writes } else { 0 }
    });
    assert_eq!(rig.read(one, 0, 1).0, Status::Missing);
    assert_eq!(rig.backup().stats().frames_free, 3);
    let nonce = rig.put(one, 0..1000, false);
    rig.settle();
    assert_eq!(rig.answer(nonce), Some((Status::Ok, 1000)));
    rig.restart();
    rig.assert_holds(one, 1000);
}

#[test]
fn a_torn_append_is_dropped_and_leaves_no_trace() {
    let mut rig = Rig::flushed();
    let one = replica(1, 1);
    rig.put_settled(one, 0..1000, false);
    rig.put(one, 1000..2000, false);
    let mut first = true;
    rig.power_loss(|writes| {
        if std::mem::take(&mut first) {
            writes
        } else {
            0
        }
    });
    rig.assert_holds(one, 1000);
    rig.restart();
    rig.assert_holds(one, 1000);
    assert_eq!(
        rig.damage_of(one),
        None,
        "no rot, now that this kernel has judged"
    );
}

#[test]
fn a_header_that_cannot_be_read_takes_its_frame_out_of_use() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, true);
    let at = rig.config.layout().head(1);
    rig.storage().faults.unreadable_at = Some(at);
    rig.restart();
    assert!(
        rig.said
            .events
            .iter()
            .any(|event| matches!(event, BackupEvent::FrameUnreadable { frame: 1, .. })),
        "{:?}",
        rig.said.events
    );
    assert_eq!(rig.backup().stats().frames_unusable, 1);
    assert_eq!(rig.put_now(replica(1, 2), 0..100, true).0, Status::Ok);
    assert_eq!(rig.put_now(replica(1, 3), 0..100, true).0, Status::Full);
    rig.assert_holds(replica(1, 1), 100);
}

#[test]
fn data_that_cannot_be_read_is_named() {
    let mut rig = Rig::buffered();
    let (closed, open) = (replica(1, 1), replica(1, 2));
    rig.put_now(closed, 0..100, true);
    let at = rig.place_of(closed);
    rig.storage().faults.unreadable_at = Some(at + 50);
    assert_eq!(rig.read(closed, 0, 10).0, Status::Mismatch);
    assert_eq!(rig.damage_of(closed), Some(Damage::Unreadable));
    rig.put_now(open, 0..100, false);
    let at = rig.place_of(open);
    rig.storage().faults.unreadable_at = Some(at + 50);
    rig.begin_recovery(open.log);
    rig.settle();
    let damage = rig.said.released[0]
        .replicas
        .iter()
        .map(|replica| replica.damage);
    assert_eq!(
        damage.collect::<Vec<_>>(),
        [Some(Flaw::Damaged(Damage::Unreadable)); 2]
    );
}

#[test]
fn of_a_replica_in_two_frames_the_one_counts_of_which_more_was_promised() {
    for is_rotten in [false, true] {
        let mut rig = Rig::buffered();
        let one = replica(1, 1);
        rig.put_settled(one, 0..100, false);
        let open = rig.storage().bytes().to_vec();
        rig.put_settled(one, 100..200, true);
        // Frame 1 has it open, as if a free of it had been undone by a crash.
        let [first, second] = [0, 1].map(|frame| rig.config.layout().head(frame) as usize);
        rig.storage()
            .write(second as u64, &open[first..second])
            .unwrap();
        let at = rig.place_of(one);
        rig.storage().rot(at, u8::from(is_rotten));
        rig.restart();
        if is_rotten {
            assert_eq!(rig.read(one, 0, 1).0, Status::Mismatch);
        } else {
            rig.assert_holds(one, 200);
        }
        let stats = rig.backup().stats();
        assert_eq!((stats.frames_closed, stats.frames_free), (1, 2));
        rig.restart();
        assert_eq!(rig.backup().stats().frames_closed, 1);
    }
}
