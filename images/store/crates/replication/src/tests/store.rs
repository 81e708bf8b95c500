//! The least store that a log can serve.

use std::collections::BTreeMap;

use base::ids::TableId;
use log::{Admission, Cleaning, Config, Durability, Keeps, Log, Origin, Reference};
use wire::entry::{Object, ObjectView, RpcResult, Tombstone};
use wire::keys::KeysAndValue;

use super::world::LOG;

const TABLE: TableId = TableId(1);

/// Keys are single bytes.
pub struct Store {
    pub log: Log,
    live: Live,
}

#[derive(Default)]
struct Live {
    objects: BTreeMap<u8, (Reference, u64)>,
}

impl Keeps<ObjectView<'_>> for Live {
    fn is_live(&self, object: &ObjectView<'_>, at: Reference) -> bool {
        self.objects
            .get(&object.primary_key[0])
            .is_some_and(|known| known.0 == at)
    }
    fn moved(&mut self, object: &ObjectView<'_>, _from: Reference, to: Reference) {
        self.objects
            .insert(object.primary_key[0], (to, object.version));
    }
}

impl Keeps<RpcResult<'_>> for Live {
    fn is_live(&self, _: &RpcResult<'_>, _: Reference) -> bool {
        false
    }
    fn moved(&mut self, _: &RpcResult<'_>, _: Reference, _: Reference) {}
}

impl Store {
    pub fn new() -> Store {
        let config = Config {
            segment_bytes: 4096,
            segment_count: 24,
            durability: Durability::External,
        };
        let origin = Origin {
            cluster_id: 1,
            server_id: LOG,
        };
        Store {
            log: Log::new(config, origin).unwrap(),
            live: Live::default(),
        }
    }

    pub fn write(&mut self, key: u8, bytes: usize) {
        let value = vec![key; bytes];
        let name = [key];
        let content = KeysAndValue::single(&name, &value).unwrap();
        let size = Object::entry_bytes_of(content.encoded_bytes());
        let old = self.live.objects.get(&key).copied();
        let dying = old.map_or(0, |(at, _)| self.log.entry(at).bytes.len());
        let room = size + Tombstone::entry_bytes_of(1);
        let log = &mut self.log;
        if log
            .prepare(room, size as i64 - dying as i64, Admission::Write)
            .is_err()
        {
            self.clean(8192);
            return;
        }
        let version = old.map_or_else(|| log.take_safe_version(), |(_, version)| version + 1);
        let at = log.append(&Object {
            table_id: TABLE,
            version,
            expires_ns: None,
            content,
        });
        if let Some((dead, version)) = old {
            if log.needs_tombstone(dead) {
                log.append_tombstone(TABLE, version, &[key], dead);
            }
            log.kill(dead);
        }
        self.live.objects.insert(key, (at, version));
    }

    pub fn remove(&mut self, key: u8) {
        let log = &mut self.log;
        let Some(&(dead, version)) = self.live.objects.get(&key) else {
            return;
        };
        if log
            .prepare(Tombstone::entry_bytes_of(1), 0, Admission::Remove)
            .is_err()
        {
            self.clean(8192);
            return;
        }
        log.append_tombstone(TABLE, version, &[key], dead);
        log.kill(dead);
        log.raise_safe_version(version + 1);
        self.live.objects.remove(&key);
    }

    pub fn clean(&mut self, budget: usize) {
        let Store { log, live } = self;
        let _: Cleaning = log.clean(live, budget);
    }

    /// Ids of the segments in memory.
    pub fn segments(&self) -> Vec<u64> {
        (1..)
            .take_while(|id| *id <= self.log.newest_segment_id())
            .filter(|id| self.log.segment(*id).is_some())
            .collect()
    }
}
