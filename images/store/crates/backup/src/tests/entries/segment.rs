//! Segments with entries, and what recoveries want of them.

use core::ops::Range;

use base::ids::TableId;
use wire::entry::{
    self, Digest, Entry, Kind, Object, RawEntry, RpcResult, SegmentHeader, Tombstone,
};
use wire::format::FIRST_FORMAT;
use wire::hash::key_hash;
use wire::keys::KeysAndValue;
use wire::member::TabletRange;

use super::LOG;
use crate::tests::SEGMENT_BYTES;

/// Entries one behind the other, as a log writes them.
#[derive(Clone, Default)]
pub(super) struct Segment(pub(super) Vec<u8>);

impl Segment {
    pub(super) fn head() -> Segment {
        let mut segment = Segment::default();
        segment.add(&SegmentHeader {
            cluster_id: 7,
            server_id: LOG,
            segment_id: 1,
            safe_version: 5,
            segment_bytes: SEGMENT_BYTES,
        });
        segment
    }

    /// The range in which it lies.
    pub(super) fn add<'a>(&mut self, entry: &impl Entry<'a>) -> Range<usize> {
        let start = self.0.len();
        self.0.resize(start + entry.entry_bytes(), 0);
        entry::write(entry, FIRST_FORMAT, &mut self.0[start..]);
        start..self.0.len()
    }

    pub(super) fn object(&mut self, table_id: u64, key: &[u8], value_bytes: usize) -> Range<usize> {
        let value = vec![7; value_bytes];
        self.add(&Object {
            table_id: TableId(table_id),
            version: 3,
            expires_ns: None,
            content: KeysAndValue::single(key, &value).unwrap(),
        })
    }

    pub(super) fn tombstone(&mut self, table_id: u64, key: &[u8]) -> Range<usize> {
        self.add(&Tombstone {
            table_id: TableId(table_id),
            version: 3,
            segment_id: 1,
            key,
        })
    }

    pub(super) fn result(&mut self, table_id: u64, key_hash: u64) -> Range<usize> {
        self.add(&RpcResult {
            lease_id: 1,
            rpc_id: 2,
            ack_id: 1,
            table_id: TableId(table_id),
            key_hash,
            response: &[0; 12],
        })
    }

    pub(super) fn digest(&mut self, ids: &[u64]) {
        let ids: Vec<[u8; 8]> = ids.iter().map(|id| id.to_le_bytes()).collect();
        self.add(&Digest::new(&ids));
    }

    /// What a recovery of these tablets wants of it, by looking at everything.
    pub(super) fn of_tablets(&self, tablets: &[TabletRange]) -> Vec<u8> {
        let (mut rest, mut wanted) = (&self.0[..], Vec::new());
        while !rest.is_empty() {
            let raw = RawEntry::read_checked(rest).unwrap();
            rest = &rest[raw.bytes.len()..];
            let place = match raw.kind {
                Kind::SegmentHeader => None,
                Kind::Digest => continue,
                Kind::Object => {
                    let object: Object<'_> = raw.decode().unwrap();
                    let key = object.content.primary_key();
                    Some((object.table_id.0, key_hash(object.table_id, key)))
                }
                Kind::Tombstone => {
                    let tombstone: Tombstone<'_> = raw.decode().unwrap();
                    let hash = key_hash(tombstone.table_id, tombstone.key);
                    Some((tombstone.table_id.0, hash))
                }
                Kind::RpcResult => {
                    let result: RpcResult<'_> = raw.decode().unwrap();
                    Some((result.table_id.0, result.key_hash))
                }
            };
            let is_in = |tablet: &TabletRange, (table_id, hash): (u64, u64)| {
                let hashes = tablet.start_key_hash..=tablet.end_key_hash;
                tablet.table_id == table_id && hashes.contains(&hash)
            };
            if place.is_none_or(|place| tablets.iter().any(|tablet| is_in(tablet, place))) {
                wanted.extend_from_slice(raw.bytes);
            }
        }
        wanted
    }
}
