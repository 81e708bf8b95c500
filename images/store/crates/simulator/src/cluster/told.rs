//! Watches what backups tell recoveries: it may be replayed, noted and shown at once, so the loss of power must not take it, unless writes are only
//! buffered.

use backup::testing::{Faults, MemoryStorage};
use backup::{Backup, BackupEffects, BackupEvent, Durability, Inventory, ReplicaInfo, State};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::member::{LogInventory, ReplicaFound};
use wire::peer::{Answer, SERVING_PROMISE, Status};

/// What a backup says that is opened to look.
#[derive(Default)]
struct Said(Vec<ReplicaInfo>);

impl BackupEffects for Said {
    fn answer(&mut self, _: ReplyTo, _: Answer) {}
    fn data(&mut self, _: ReplyTo, _: Status, _: &[u8]) {}
    fn entries(&mut self, _: ReplyTo, _: Status, _: u32, _: &[u8]) {}
    fn checkpoint(&mut self, _: Option<Vec<u8>>) {}
    fn report(&mut self, _: BackupEvent) {}
    fn released(&mut self, inventory: Inventory) {
        self.0 = inventory.replicas;
    }
}

/// Lets a copy of the storage lose all that it can lose, and looks for what was told. Says what is missing.
pub fn outlives_power(backup: &Backup<MemoryStorage>, told: &LogInventory) -> Result<(), String> {
    let mut config = backup.config().clone();
    // Of what rots together with a loss of power other copies are left.
    if config.durability == Durability::Buffered || backup.storage().is_rotten {
        return Ok(());
    }
    // Another kernel.
    config.boot_id[15] ^= 1;
    let mut storage = backup.storage().clone();
    storage.faults = Faults::default();
    storage.is_late = false;
    storage.power_loss(|_| 0);
    let log = ServerId(told.log);
    let mut said = Said::default();
    let mut opened =
        Backup::open(Time::ZERO, config, storage).map_err(|error| error.to_string())?;
    let now = Time::ZERO + 2 * SERVING_PROMISE;
    opened.begin_recovery(now, log, &mut said);
    opened.complete(now, &mut said);
    let is_there = |replica: &ReplicaFound| said.0.iter().any(|one| is_same(one, replica));
    let mut sound = told
        .replicas
        .iter()
        .filter(|replica| replica.damage.is_empty());
    match sound.find(|replica| !is_there(replica)) {
        None => Ok(()),
        Some(lost) => Err(format!(
            "tells a recovery of what the loss of power can take: {} bytes of segment {} of the log of server {log}",
            lost.bytes, lost.segment_id
        )),
    }
}

fn is_same(one: &ReplicaInfo, other: &ReplicaFound) -> bool {
    let is_open = one.state == State::Open;
    let sound = (one.segment_id, is_open, one.bytes, one.crc);
    one.damage.is_none() && sound == (other.segment_id, other.is_open, other.bytes, other.crc)
}
