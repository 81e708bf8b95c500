//! What of the leases is durable.

use std::collections::{BTreeMap, BTreeSet};

use super::Leases;
use crate::journaled::Journaled;
use crate::records::{self, Key, Record};
use crate::resource::Resource;

fn lease_record((&id, &expiration_ns): (&u64, &u64)) -> Record {
    Record::Lease(records::Lease { id, expiration_ns })
}

impl Resource for Leases {
    /// One that has ended must not come back; one that was prolonged ends later anyway in a store that is made again.
    fn is_worth_a_checkpoint(&self) -> bool {
        let mut changed = self.expirations.changed();
        changed.any(|id| self.expirations.get(id).is_none())
    }

    fn take_changed(&mut self) -> BTreeSet<Key> {
        let changed = self.expirations.take_changed().into_iter();
        changed.map(Key::Lease).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Lease(id) => {
                let expiration_ns = self.expirations.get(id)?;
                Some(lease_record((id, expiration_ns)))
            }
            _ => None,
        }
    }

    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        Box::new(self.expirations.iter().map(lease_record))
    }

    fn audit(&self) -> Result<(), String> {
        let noted = self.expirations.iter();
        let mut noted = noted.map(|(&id, &expiration)| (expiration, id));
        let is_same = self.by_expiration.len() == self.expirations.len();
        match is_same && noted.all(|one| self.by_expiration.contains(&one)) {
            true => Ok(()),
            false => Err("leases end at other times than noted".to_owned()),
        }
    }
}

impl Leases {
    pub fn next_id(&self) -> u64 {
        self.next_id
    }
    pub fn shift_ns(&self) -> u64 {
        self.shift_ns
    }

    /// So many ids are never given out.
    pub fn leave_out(&mut self, ids: u64) {
        self.next_id = self.next_id.saturating_add(ids);
    }

    /// The state may be an older one: cluster time goes on `time_ns` further, and leases end `longer_ns` after that. The latter is no shift: that
    /// one is never more than cluster time.
    pub fn begin_again(&mut self, time_ns: u64, longer_ns: u64) {
        self.shift_ns = self.shift_ns.saturating_add(time_ns);
        self.expirations.change_each(|expiration| {
            *expiration = expiration.saturating_add(longer_ns);
            true
        });
        let ordered = self.expirations.iter();
        self.by_expiration = ordered.map(|(&id, &expiration)| (expiration, id)).collect();
    }

    /// As they were noted, each ending `shift_ns` later than noted.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn restore(
        limit: usize,
        meta: &records::Meta,
        shift_ns: u64,
        leases: Vec<records::Lease>,
    ) -> Result<Leases, String> {
        let mut restored = Leases::new(meta.next_lease_id, limit);
        restored.shift_ns = shift_ns;
        let mut expirations = BTreeMap::new();
        for lease in leases {
            if lease.id >= meta.next_lease_id {
                return Err(format!(
                    "client lease {:#x} cannot have been given out: the next one is {:#x}",
                    lease.id, meta.next_lease_id
                ));
            }
            expirations.insert(lease.id, lease.expiration_ns);
            restored
                .by_expiration
                .insert((lease.expiration_ns, lease.id));
        }
        restored.expirations = Journaled::noted(expirations);
        Ok(restored)
    }
}
