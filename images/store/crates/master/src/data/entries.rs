//! Entries of the log that slots of the hash table point to, and the keys that they are about.

use wire::entry::{Kind, ObjectView, RawEntry, Tombstone};
use wire::hash::key_hash;
use wire::ids::TableId;

/// Where a key lies in the hash space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub table_id: TableId,
    pub key: &'a [u8],
    pub hash: u64,
}

impl<'a> Place<'a> {
    pub fn of(table_id: TableId, key: &'a [u8]) -> Place<'a> {
        Place {
            table_id,
            key,
            hash: key_hash(table_id, key),
        }
    }
}

/// Whether an entry that a slot points to is about this key.
pub(super) fn is_of_key(entry: &RawEntry<'_>, place: &Place<'_>) -> bool {
    match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            object.primary_key == place.key && object.table_id == place.table_id
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            tombstone.key == place.key && tombstone.table_id == place.table_id
        }
    }
}

pub(crate) fn place_of<'a>(entry: &RawEntry<'a>) -> Place<'a> {
    match entry.kind {
        Kind::Object => {
            let object = object_view(entry);
            Place::of(object.table_id, object.primary_key)
        }
        Kind::Tombstone | Kind::SegmentHeader | Kind::RpcResult | Kind::Digest => {
            let tombstone = tombstone_view(entry);
            Place::of(tombstone.table_id, tombstone.key)
        }
    }
}

pub(crate) fn object_view<'a>(entry: &RawEntry<'a>) -> ObjectView<'a> {
    ObjectView::of(entry).expect("the log holds what it wrote")
}

fn tombstone_view<'a>(entry: &RawEntry<'a>) -> Tombstone<'a> {
    let tombstone = entry.decode();
    tombstone.expect("slots point to objects and tombstones")
}
