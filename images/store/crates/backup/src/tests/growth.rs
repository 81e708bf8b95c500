//! A storage gets more frames, and never fewer.

use super::*;
use crate::layout::HEAD_BYTES;

/// Dies in the middle: after so many more writes and syncs nothing works any more.
struct Dying {
    storage: MemoryStorage,
    left: u32,
}

impl Dying {
    fn step(&mut self) -> Result<(), StorageError> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| StorageError("the process is dead".to_owned()))?;
        Ok(())
    }
}

impl Disk for &mut Dying {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.step()?;
        self.storage.write(offset, bytes)
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.storage.read(offset, out)
    }
    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.step()?;
        self.storage.grow(bytes)
    }
    fn sync(&mut self) -> Result<(), StorageError> {
        self.step()?;
        self.storage.sync()
    }
}

/// Two full frames.
fn full() -> Rig {
    let mut rig = Rig::new(Durability::Flushed, 2);
    for id in 1..=2 {
        rig.put_settled(replica(1, id), 0..4000, true);
    }
    assert_eq!(rig.put_now(replica(1, 3), 0..100, true).0, Status::Full);
    rig
}

fn reopen(rig: &mut Rig, frame_count: u32) {
    rig.config.frame_count = frame_count;
    rig.restart();
    rig.tick();
}

#[test]
fn more_frames_are_made_behind_those_that_are_there() {
    let mut rig = full();
    reopen(&mut rig, 4);
    assert!(rig.has_reported(&BackupEvent::Grown {
        found: 2,
        wanted: 4
    }));
    rig.put_settled(replica(1, 3), 0..4000, true);
    rig.put_settled(replica(1, 4), 0..4000, true);
    rig.power_loss(|_| 0);
    for id in 1..=4 {
        rig.assert_holds(replica(1, id), 4000);
    }
    assert_eq!(rig.put_now(replica(1, 5), 0..100, true).0, Status::Full);
}

#[test]
fn it_never_gets_fewer() {
    let mut rig = full();
    reopen(&mut rig, 1);
    assert!(rig.has_reported(&BackupEvent::FramesKept {
        found: 2,
        wanted: 1
    }));
    assert_eq!(rig.backup().config().frame_count, 2);
    for id in 1..=2 {
        rig.assert_holds(replica(1, id), 4000);
    }
}

#[test]
fn without_room_it_goes_on_with_what_it_has() {
    let mut rig = full();
    rig.storage().faults.growth = Some("the disk is full".to_owned());
    reopen(&mut rig, 4);
    assert!(rig.has_reported(&BackupEvent::CannotGrow {
        found: 2,
        wanted: 4,
        error: StorageError("the disk is full".to_owned())
    }));
    assert_eq!(rig.backup().config().frame_count, 2);
    rig.assert_holds(replica(1, 2), 4000);
    rig.storage().faults.growth = None;
    reopen(&mut rig, 4);
    rig.put_settled(replica(1, 3), 0..4000, true);
}

#[test]
fn what_lies_behind_the_end_is_no_replica() {
    let mut rig = full();
    // What a device, or an attempt that was interrupted, may have there: a frame that looks like one of this storage.
    let bytes = rig.take_storage().bytes().to_vec();
    let frame = (bytes.len() - HEAD_BYTES) / 2;
    let last = bytes[bytes.len() - frame..].to_vec();
    let mut longer = bytes;
    longer.extend(last);
    rig.open(MemoryStorage::with(longer));
    reopen(&mut rig, 3);
    assert_eq!(rig.backup().stats().frames_free, 1);
    rig.assert_holds(replica(1, 2), 4000);
}

#[test]
fn a_crash_in_the_middle_loses_nothing() {
    let mut is_over = false;
    for steps in 0.. {
        for lost in [false, true] {
            let mut rig = full();
            let mut storage = rig.take_storage();
            storage.process_crash();
            rig.config.frame_count = 4;
            let mut dying = Dying {
                storage,
                left: steps,
            };
            // Kept outside of the backup, which an error drops.
            let opened = Backup::open(rig.now, rig.config.clone(), Prompt::new(&mut dying));
            is_over = opened.is_ok();
            drop(opened);
            let mut storage = dying.storage;
            storage.process_crash();
            if lost {
                storage.power_loss(|writes| writes / 2);
                rig.config.boot_id[0] += 1;
            }
            // By a process that asks for as few as before, and one that goes on.
            for frame_count in [2, 4] {
                rig.config.frame_count = frame_count;
                rig.open(storage);
                for id in 1..=2 {
                    rig.assert_holds(replica(1, id), 4000);
                }
                storage = rig.take_storage();
                storage.process_crash();
            }
            rig.open(storage);
            rig.put_settled(replica(1, 3), 0..4000, true);
        }
        if is_over {
            assert!(steps > 4, "{steps} steps are no growth");
            return;
        }
    }
}

#[test]
fn one_that_was_cut_short_is_refused() {
    let bytes = full().storage().bytes().to_vec();
    let cut = MemoryStorage::with(bytes[..bytes.len() - 1].to_vec());
    let asked = Config {
        frame_count: 1,
        ..full().backup().config().clone()
    };
    let Err(error) = Backup::open(Time::ZERO, asked, cut) else {
        panic!("opened with a frame that is not there");
    };
    let text = error.to_string();
    assert!(
        text.contains("should have 2 frames, and the last one cannot be read"),
        "{text}"
    );
}
