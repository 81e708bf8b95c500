//! A storage that takes its time: what is answered, begun and told only when it has completed what that depends on.

use base::bugs::{Bug, plant};

use super::*;
use crate::record::Superblock;

impl Rig {
    /// From now on nothing is over before [`Rig::go_on`].
    fn is_late(&mut self) {
        self.settle();
        self.storage().is_late = true;
    }

    /// The storage does all that was submitted, and says so.
    fn go_on(&mut self) {
        for _ in 0..4 {
            let (writes, jobs, _) = self.storage().waiting();
            self.storage().carry_out(writes);
            (0..jobs).for_each(|_| self.storage().do_job(0));
            self.storage().report();
            self.tick();
        }
    }

    /// All that is under way ends, syncs as well.
    fn end_all(&mut self) {
        for _ in 0..6 {
            self.go_on();
            for scope in self.storage().syncs_under_way() {
                self.storage().finish_sync(scope);
            }
        }
        self.go_on();
    }

    /// The sync that is under way fails, and that is told.
    fn fail_sync(&mut self) {
        self.storage().faults.syncs = Some("input/output error".to_owned());
        self.storage().finish_sync(Scope::All);
        self.storage().report();
        self.tick();
        self.storage().faults.syncs = None;
    }

    /// The write that is next fails, and that is told.
    fn fail_write(&mut self) {
        self.storage().faults.writes = Some("input/output error".to_owned());
        self.storage().carry_out(1);
        self.storage().report();
        self.tick();
        self.storage().faults.writes = None;
    }

    /// A storage with a write under way for so long that it is late: masters begin no replicas here.
    fn stopped() -> Rig {
        let mut rig = Rig::new(Durability::Buffered, 9);
        rig.put_now(replica(1, 1), 0..100, false);
        rig.is_late();
        rig.put(replica(1, 1), 100..200, false);
        rig.wait(Duration::from_millis(200));
        let refused = rig.put(replica(1, 2), 0..10, false);
        assert_eq!(rig.answer(refused), Some((Status::Full, 0)));
        rig
    }

    /// A sync is under way, and behind it a write of the same frame.
    fn with_a_write_behind_a_sync() -> Rig {
        let mut rig = Rig::flushed();
        rig.wait(10 * wire::peer::SERVING_PROMISE);
        rig.put_settled(replica(1, 1), 0..100, false);
        rig.is_late();
        rig.put(replica(1, 1), 100..200, false);
        let (writes, _, _) = rig.storage().waiting();
        rig.storage().carry_out(writes);
        rig.storage().report();
        rig.tick();
        rig.put(replica(1, 1), 200..300, false);
        rig
    }

    fn read_later(&mut self, replica: ReplicaId) -> ReplyTo {
        let to = self.to();
        let read = Read {
            replica,
            offset: 0,
            bytes: SEGMENT_BYTES,
        };
        self.backup
            .as_mut()
            .unwrap()
            .read(&read, to, &mut self.said);
        to
    }
}

#[test]
fn a_buffered_append_is_answered_when_it_is_written_and_that_is_told() {
    let mut rig = Rig::buffered();
    rig.is_late();
    let first = rig.put(replica(1, 1), 0..100, false);
    let again = rig.put(replica(1, 1), 0..100, false);
    assert_eq!((rig.answer(first), rig.answer(again)), (None, None));
    rig.storage().carry_out(1);
    rig.storage().report();
    rig.tick();
    assert_eq!(rig.answer(first), None, "the header is not written");
    rig.storage().carry_out(1);
    rig.tick();
    assert_eq!(rig.answer(first), None, "nobody has said so");
    rig.storage().report();
    rig.tick();
    assert_eq!(rig.answer(first), Some((Status::Ok, 100)));
    assert_eq!(rig.answer(again), Some((Status::Ok, 100)));
    rig.restart();
    rig.assert_holds(replica(1, 1), 100);
}

#[test]
fn a_sync_begins_when_what_it_carries_is_written() {
    let mut rig = Rig::flushed();
    rig.is_late();
    let first = rig.put(replica(1, 1), 0..100, false);
    assert_eq!(rig.storage().syncs_under_way(), []);
    rig.storage().carry_out(2);
    let second = rig.put(replica(1, 1), 100..200, false);
    rig.storage().report();
    rig.tick();
    assert_eq!(rig.storage().syncs_under_way(), [Scope::All]);
    rig.storage().finish_sync(Scope::All);
    rig.tick();
    assert_eq!(rig.answer(first), None, "nobody has said so");
    rig.storage().report();
    rig.tick();
    assert_eq!(rig.answer(first), Some((Status::Ok, 100)));
    assert_eq!(rig.answer(second), None);
    rig.power_loss(|_| 0);
    rig.assert_holds(replica(1, 1), 100);
}

#[test]
fn what_is_under_way_when_a_write_fails_is_as_if_it_had_never_been() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, false);
    rig.put_now(replica(1, 2), 0..100, true);
    rig.is_late();
    let nonces = [
        rig.put(replica(1, 1), 100..200, false),
        rig.put(replica(1, 3), 0..100, false),
    ];
    let to = rig.to();
    let backup = rig.backup.as_mut().unwrap();
    let free = Free {
        replica: replica(1, 2),
    };
    backup.free(rig.now, free, to, &mut rig.said);
    rig.storage().faults.writes = Some("as told".to_owned());
    rig.storage().carry_out(1);
    // Between the failure and its report, more comes.
    let last = rig.put(replica(1, 1), 200..300, true);
    rig.go_on();
    for nonce in [nonces[0], nonces[1], to.nonce, last] {
        assert_eq!(rig.answer(nonce), Some((Status::Retired, 0)));
    }
    rig.storage().is_late = false;
    rig.assert_holds(replica(1, 1), 100);
    rig.assert_holds(replica(1, 2), 100);
    assert_eq!(rig.read(replica(1, 3), 0, 10).0, Status::Missing);
    rig.tick();
    rig.storage().faults = Default::default();
    rig.restart();
    rig.assert_holds(replica(1, 1), 100);
    rig.assert_holds(replica(1, 2), 100);
}

fn read_of_another_use() {
    let mut rig = Rig::new(Durability::Buffered, 1);
    rig.put_now(replica(1, 1), 0..100, true);
    rig.is_late();
    let to = rig.read_later(replica(1, 1));
    let backup = rig.backup.as_mut().unwrap();
    let free = Free {
        replica: replica(1, 1),
    };
    backup.free(rig.now, free, to, &mut rig.said);
    rig.put(replica(2, 1), 0..50, false);
    // The writes pass the job, which finds other data than it was sent for.
    let writes = rig.storage().waiting().0;
    rig.storage().carry_out(writes);
    rig.go_on();
    let answer = rig.said.read.pop().expect("an answer");
    assert_eq!((answer.1, answer.3), (Status::Missing, Vec::new()));
    rig.storage().is_late = false;
    rig.assert_holds(replica(2, 1), 50);
    assert_eq!(rig.damage_of(replica(2, 1)), None);
}

#[test]
fn a_read_waits_for_the_writes_of_its_frame() {
    let mut rig = Rig::buffered();
    rig.is_late();
    rig.put(replica(1, 1), 0..100, false);
    let to = rig.read_later(replica(1, 1));
    assert_eq!(rig.storage().waiting().1, 0, "nothing is there to read");
    rig.go_on();
    let (nonce, status, _, data) = rig.said.read.pop().expect("an answer");
    assert_eq!((nonce, status), (to.nonce, Status::Ok));
    assert_eq!(data, content_of(replica(1, 1), 100));
}

#[test]
fn a_log_is_told_of_when_all_that_was_taken_of_it_is_written() {
    let mut rig = Rig::buffered();
    let log = replica(1, 1).log;
    rig.wait(10 * wire::peer::SERVING_PROMISE);
    rig.is_late();
    let nonce = rig.put(replica(1, 1), 0..100, true);
    rig.begin_recovery(log);
    assert_eq!(rig.answer(nonce), Some((Status::Fenced, 0)));
    for scope in rig.storage().syncs_under_way() {
        rig.storage().finish_sync(scope);
    }
    // The superblock is written behind the append, so only a backup that does not wait for either tells of the log now.
    rig.wait(10 * wire::peer::SERVING_PROMISE);
    assert!(rig.said.released.is_empty());
    rig.end_all();
    let released = rig.said.released.pop().expect("an inventory");
    assert_eq!(released.replicas[0].bytes, 100);
    rig.restart();
    rig.assert_holds(replica(1, 1), 100);
}

#[test]
fn a_storage_that_has_stopped_is_named_and_takes_no_more_replicas_until_it_goes_on() {
    let mut rig = Rig::stopped();
    assert_eq!(rig.backup().stats().stalled, None);
    assert!(rig.next_tick <= rig.now + Duration::from_secs(1));
    rig.wait(Duration::from_secs(1));
    assert!(rig.backup().stats().stalled.is_some());
    assert!(rig.has_reported(&BackupEvent::Stalled(Stall::Write)));
    assert_eq!(rig.keep_alive(replica(1, 1).log), Status::Ok);
    rig.go_on();
    assert_eq!(rig.backup().stats().stalled, None);
    assert!(rig.has_reported(&BackupEvent::GoesOn));
    let taken = rig.put(replica(1, 2), 0..10, false);
    rig.go_on();
    assert_eq!(rig.answer(taken), Some((Status::Ok, 10)));
}

#[test]
fn what_is_under_way_is_bounded() {
    let mut rig = Rig::of_segments(Durability::Buffered, 24, 1 << 20);
    rig.is_late();
    let taken = (1..=20).map(|id| rig.put(replica(1, id), 0..1 << 20, true));
    let taken: Vec<u64> = taken.collect();
    let refused = taken.iter().filter(|&&nonce| rig.answer(nonce).is_some());
    assert_eq!(refused.count(), 4, "16 MiB are under way");
    rig.go_on();
    let ok = taken.iter().filter(|&&nonce| {
        rig.answer(nonce)
            .is_some_and(|(status, _)| status == Status::Ok)
    });
    assert_eq!(ok.count(), 16);
}

/// A master forgets a replica when it is told that there is no room for it: one that is here in part is never answered so.
#[test]
fn what_is_there_is_not_refused_as_if_it_were_not() {
    let mut rig = Rig::new(Durability::Buffered, 4);
    rig.is_late();
    rig.backup().bound_under_way(1);
    let opened = rig.put(replica(1, 1), 0..60, false);
    let other = rig.put(replica(1, 2), 0..10, false);
    assert_eq!(rig.answer(other), Some((Status::Full, 0)));
    let append = |replica| Append {
        replica,
        role: Role::Head,
        offset: 60,
        closes: false,
        crc: 0,
        data: &[0; 10],
    };
    let (known, new) = (append(replica(1, 1)), append(replica(1, 2)));
    assert!(!rig.backup().has_room_for(&known));
    assert!(rig.backup().has_room_for(&new), "it is refused, no more");
    rig.go_on();
    assert_eq!(rig.answer(opened), Some((Status::Ok, 60)));
    assert!(rig.backup().has_room_for(&known));
    let again = rig.put(replica(1, 1), 60..70, false);
    rig.go_on();
    assert_eq!(rig.answer(again), Some((Status::Ok, 70)));
}

/// Any order of what a storage does, against what was answered.
fn chance(durability: Durability, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut rig = Rig::new(durability, 6);
    rig.is_late();
    let mut sent = [0_u32; 4];
    let mut acknowledged = [0_u32; 4];
    let mut nonces = Vec::new();
    for _ in 0..200 {
        match next(8) {
            0..3 => {
                let id = next(4);
                let (from, to) = (sent[id as usize], sent[id as usize] + 10);
                nonces.push((rig.put(replica(1, id + 1), from..to, false), id, to));
                sent[id as usize] = to;
            }
            3 => rig.storage().carry_out(1),
            4 => rig.storage().report(),
            5 => {
                if let Some(&scope) = rig.storage().syncs_under_way().first() {
                    rig.storage().finish_sync(scope);
                }
            }
            6 => {
                rig.read_later(replica(1, next(4) + 1));
            }
            _ => {
                if rig.storage().waiting().1 > 0 {
                    rig.storage().do_job(0);
                }
            }
        }
        rig.tick();
        nonces.retain(|&(nonce, id, end)| match rig.answer(nonce) {
            None => true,
            Some((status, bytes)) => {
                assert_eq!((status, bytes), (Status::Ok, end));
                acknowledged[id as usize] = end;
                false
            }
        });
    }
    for (_, status, _, data) in std::mem::take(&mut rig.said.read) {
        assert!(status == Status::Missing || status == Status::Ok && data.len() % 10 == 0);
    }
    match durability {
        Durability::Buffered => rig.restart(),
        Durability::Flushed => rig.power_loss(|_| 0),
    }
    for (id, &bytes) in (1..).zip(&acknowledged) {
        let (status, data) = rig.read(replica(1, id), 0, SEGMENT_BYTES);
        assert!(
            bytes == 0 || status == Status::Ok && data.len() as u32 >= bytes,
            "{bytes} bytes of segment {id} were acknowledged, and {status:?} with {} is what is there",
            data.len()
        );
        assert!(status != Status::Mismatch, "segment {id} is damaged");
    }
}

#[test]
fn whatever_the_order_what_was_answered_is_there() {
    for seed in 1..200 {
        chance(Durability::Buffered, seed);
        chance(Durability::Flushed, seed);
    }
}

#[test]
fn what_was_read_of_a_frame_says_nothing_of_its_next_use() {
    read_of_another_use();
}

/// Whether a test fails with this bug.
fn finds(bug: Bug, test: impl Fn() + std::panic::UnwindSafe) -> bool {
    plant(Some(bug));
    let failed = std::panic::catch_unwind(test).is_err();
    plant(None);
    failed
}

#[test]
fn each_planted_bug_is_found() {
    for (bug, durability) in [
        (Bug::AnswerUnwritten, Durability::Buffered),
        (Bug::SyncUnwritten, Durability::Flushed),
        (Bug::OvertakeWrite, Durability::Buffered),
    ] {
        let found = (1..200).any(|seed| finds(bug, move || chance(durability, seed)));
        assert!(found, "{bug:?}");
    }
    assert!(finds(Bug::BelieveOldCompletion, read_of_another_use));
}

#[test]
fn a_checkpoint_is_kept_by_a_late_storage() {
    let mut rig = Rig::stopped();
    let number = rig.backup().keep_checkpoint(&[7; 300]).unwrap();
    assert!(!rig.backup().checkpoint_is_kept(number));
    rig.go_on();
    assert!(rig.backup().checkpoint_is_kept(number));
}

#[test]
fn a_rewrite_that_waits_for_a_write_that_fails_damages_nothing() {
    let mut rig = Rig::with_a_write_behind_a_sync();
    let log = replica(1, 1).log;
    rig.fail_sync();
    rig.begin_recovery(log);
    assert_eq!(rig.storage().waiting().1, 0, "it waits for the write");
    rig.fail_write();
    rig.end_all();
    // The coordinator asks again, until no promise is left and all is on the disk.
    for _ in 0..3 {
        rig.wait(2 * wire::peer::SERVING_PROMISE);
        rig.begin_recovery(log);
        rig.end_all();
    }
    let released = rig.said.released.pop().expect("an inventory");
    assert_eq!(released.replicas[0].bytes, 200);
    assert_eq!(rig.damage_of(replica(1, 1)), None);
    rig.storage().is_late = false;
    rig.assert_holds(replica(1, 1), 200);
}

#[test]
fn a_failure_is_on_record_though_a_write_before_its_note_fails() {
    let mut rig = Rig::with_a_write_behind_a_sync();
    rig.fail_sync();
    rig.fail_write();
    rig.end_all();
    let storage = rig.take_storage();
    let superblocks = (0..3).filter_map(|place| {
        let at = Layout::superblock(place) as usize;
        Superblock::decode(&storage.bytes()[at..])
    });
    let newest = superblocks.max_by_key(|superblock| superblock.sequence);
    assert!(newest.expect("a superblock").failed);
}

#[test]
fn a_read_that_waits_for_a_write_that_fails_is_answered_and_names_no_damage() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, false);
    rig.is_late();
    rig.put(replica(1, 1), 100..200, false);
    let to = rig.read_later(replica(1, 1));
    rig.fail_write();
    let (nonce, status, _, data) = rig.said.read.pop().expect("an answer");
    assert_eq!(
        (nonce, status, data),
        (to.nonce, Status::Missing, Vec::new())
    );
    rig.end_all();
    rig.storage().is_late = false;
    rig.assert_holds(replica(1, 1), 100);
    assert_eq!(rig.damage_of(replica(1, 1)), None);
}
