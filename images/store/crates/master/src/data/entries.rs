//! Entries of the log that slots of the hash table point to, and the keys that they are about.

use base::ids::TableId;
use log::{Reference, Slot};
use wire::entry::{Kind, ObjectView, RawEntry, Tombstone};
use wire::hash::key_hash;

/// Where a key lies in the hash space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedKey<'a> {
    pub table_id: TableId,
    pub key: &'a [u8],
    pub hash: u64,
}

impl<'a> HashedKey<'a> {
    pub fn of(table_id: TableId, key: &'a [u8]) -> HashedKey<'a> {
        HashedKey {
            table_id,
            key,
            hash: key_hash(table_id, key),
        }
    }
}

/// What a key's slot points to. The slot is a hint: it moves when the hash table changes, the entry does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub entry: Reference,
    pub slot: Slot,
}

/// What the newest entry of a key says.
#[derive(Clone, Copy)]
pub(super) enum Newest {
    Object {
        version: u64,
    },
    /// It is a tombstone.
    Removed,
}

/// Of an entry that a slot points to: what it says of this key; `None` if it is about another.
#[inline]
pub(super) fn newest_of_key(entry: &RawEntry<'_>, place: &HashedKey<'_>) -> Option<Newest> {
    let (key, table_id, newest) = match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            let version = object.version;
            let newest = Newest::Object { version };
            (object.primary_key, object.table_id, newest)
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            (tombstone.key, tombstone.table_id, Newest::Removed)
        }
    };
    (key == place.key && table_id == place.table_id).then_some(newest)
}

pub(crate) fn place_of<'a>(entry: &RawEntry<'a>) -> HashedKey<'a> {
    match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            HashedKey::of(object.table_id, object.primary_key)
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            HashedKey::of(tombstone.table_id, tombstone.key)
        }
    }
}

#[inline]
pub(crate) fn object_view<'a>(entry: &RawEntry<'a>) -> ObjectView<'a> {
    ObjectView::of(entry).expect("the log holds what it wrote")
}

fn tombstone_view<'a>(entry: &RawEntry<'a>) -> Tombstone<'a> {
    let tombstone = entry.decode();
    tombstone.expect("slots point to objects and tombstones")
}
