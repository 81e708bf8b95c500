//! A checkpoint is there whole, or the one before is.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// Of two and a half frames.
fn checkpoint(number: u64) -> Vec<u8> {
    content_of(replica(99, number), 5 * SEGMENT_BYTES / 2)
}

impl Rig {
    fn keep(&mut self, number: u64) -> Result<u64, Status> {
        let backup = self.backup.as_mut().unwrap();
        let kept = backup.keep_checkpoint(&checkpoint(number));
        self.tick();
        kept
    }

    fn keep_settled(&mut self, number: u64) {
        let here = self.keep(number).unwrap();
        self.settle();
        assert!(self.backup().checkpoint_is_kept(here));
    }

    fn newest(&mut self) -> Option<u64> {
        let backup = self.backup.as_mut().unwrap();
        backup.read_newest_checkpoint();
        backup.complete(self.now, &mut self.said);
        let newest = self.said.checkpoints.pop().expect("an answer at once")?;
        let number = (1..1000).find(|&number| checkpoint(number) == newest);
        Some(number.expect("what was kept"))
    }
}

#[test]
fn the_newest_one_is_found_and_those_before_go() {
    for durability in [Durability::Buffered, Durability::Flushed] {
        let mut rig = Rig::new(durability, 12);
        assert_eq!(rig.newest(), None);
        for number in 1..=20 {
            rig.keep_settled(number);
            assert_eq!(rig.newest(), Some(number));
            assert!(rig.backup().stats().frames_closed <= 6);
        }
        rig.restart();
        assert_eq!(rig.newest(), Some(20));
        rig.power_loss(|_| 0);
        assert_eq!(rig.newest(), Some(20));
        rig.keep_settled(21);
        assert_eq!(rig.newest(), Some(21));
        assert_eq!(rig.backup().logs().count(), 0, "it is no server's log");
    }
}

#[test]
fn what_is_flushed_is_kept_when_a_sync_has_ended() {
    let mut rig = Rig::new(Durability::Flushed, 12);
    let here = rig.keep(1).unwrap();
    assert!(!rig.backup().checkpoint_is_kept(here));
    assert_eq!(rig.storage().syncs_under_way(), [Scope::All], "at once");
    rig.finish_sync(Scope::All);
    assert!(rig.backup().checkpoint_is_kept(here));
    let mut rig = Rig::new(Durability::Buffered, 12);
    let here = rig.keep(1).unwrap();
    assert!(rig.backup().checkpoint_is_kept(here));
}

#[test]
fn without_room_the_one_before_stays() {
    let mut rig = Rig::new(Durability::Flushed, 6);
    rig.keep_settled(1);
    for id in 1..=2 {
        rig.put_settled(replica(1, id), 0..4000, true);
    }
    assert_eq!(rig.keep(2), Err(Status::Full));
    rig.settle();
    assert_eq!(rig.newest(), Some(1));
    assert_eq!(rig.backup().stats().frames_free, 1, "no part is left");
    rig.free(replica(1, 1));
    rig.free(replica(1, 2));
    rig.settle();
    rig.keep_settled(3);
    rig.restart();
    assert_eq!(rig.newest(), Some(3));
}

#[test]
fn a_rotten_one_is_passed_over() {
    let mut rig = Rig::new(Durability::Flushed, 12);
    rig.keep_settled(1);
    rig.keep_settled(2);
    let last = *rig.backup().replicas.keys().last().unwrap();
    let place = rig.place_of(last);
    rig.storage().rot(place + 40, 1);
    rig.restart();
    assert_eq!(rig.newest(), Some(1));
    rig.keep_settled(3);
    assert_eq!(rig.newest(), Some(3));
}

/// The process dies when so much more was written.
struct Dying {
    storage: MemoryStorage,
    left: Rc<Cell<u32>>,
}

impl Disk for &mut Dying {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => return Err(StorageError("the process is dead".to_owned())),
        }
        self.storage.write(offset, bytes)
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.storage.read(offset, out)
    }
    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.storage.grow(bytes)
    }
    fn sync(&mut self) -> Result<(), StorageError> {
        self.storage.sync()
    }
}

#[test]
fn whenever_the_process_dies_what_was_kept_is_there() {
    for steps in 0.. {
        let mut rig = Rig::new(Durability::Buffered, 12);
        rig.keep_settled(1);
        // Kept, and not synced.
        rig.keep(2).unwrap();
        let mut storage = rig.take_storage();
        storage.process_crash();
        let left = Rc::new(Cell::new(u32::MAX));
        let mut dying = Dying {
            storage,
            left: Rc::clone(&left),
        };
        let mut backup =
            Backup::open(rig.now, rig.config.clone(), Prompt::new(&mut dying)).unwrap();
        left.set(steps);
        let here = backup.keep_checkpoint(&checkpoint(3)).unwrap();
        backup.complete(rig.now, &mut rig.said);
        let kept = backup.checkpoint_is_kept(here);
        drop(backup);
        let mut storage = dying.storage;
        storage.process_crash();
        rig.open(storage);
        let newest = rig.newest();
        match kept {
            true => {
                assert!(steps > 3, "{steps} writes are no checkpoint");
                assert_eq!(newest, Some(3));
                return;
            }
            false => assert_eq!(newest, Some(2), "after {steps} writes"),
        }
    }
}

#[test]
fn no_loss_of_power_takes_what_was_kept() {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for durability in [Durability::Flushed, Durability::Buffered] {
        let mut rig = Rig::new(durability, 16);
        let (mut number, mut safe) = (0, 0);
        let (mut losses, mut kept) = (0, Vec::new());
        for _ in 0..1500 {
            match next(10) {
                0..4 => {
                    number += 1;
                    if let Ok(here) = rig.keep(number) {
                        kept.push((number, here));
                    }
                    // Tests of numbers compare contents: few of them are remembered.
                    if number == 900 {
                        number = 0;
                        rig = Rig::new(durability, 16);
                        (safe, kept) = (0, Vec::new());
                    }
                }
                4..7 => {
                    if let Some(&scope) = rig.storage().syncs_under_way().first() {
                        rig.finish_sync(scope);
                    }
                }
                7 => rig.wait(Duration::from_millis(100)),
                8 => {
                    rig.restart();
                    kept.clear();
                }
                _ => {
                    losses += 1;
                    rig.power_loss(|writes| next(writes as u64 + 1) as usize);
                    let newest = rig.newest().unwrap_or(0);
                    assert!(newest >= safe, "{newest} of {safe}");
                    (safe, kept) = (newest, Vec::new());
                }
            }
            for &(number, here) in &kept {
                let backup = rig.backup();
                let is_promised = match durability {
                    Durability::Flushed => backup.checkpoint_is_kept(here),
                    Durability::Buffered => backup.is_checkpoint_durable(here),
                };
                if is_promised {
                    safe = safe.max(number);
                }
            }
            if let Some(newest) = rig.newest() {
                assert!(newest >= safe);
            }
        }
        assert!(losses > 80);
    }
}

#[test]
fn whose_a_storage_is_shows_before_it_is_opened() {
    let mut rig = Rig::new(Durability::Flushed, 3);
    let mut storage = rig.take_storage();
    assert_eq!(owner(&mut storage), Some(7));
    assert_eq!(owner(&mut MemoryStorage::new(1 << 20)), None);
    assert_eq!(owner(&mut MemoryStorage::new(100)), None);
}
