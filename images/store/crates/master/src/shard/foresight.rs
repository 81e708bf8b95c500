//! Requests that came in one burst wait for memory together, not one after the other.
//!
//! What a read costs is two cache misses: one of the hash table, one of the log. Multi-ops fetch ahead for all their parts (`multi.rs`); this does
//! the same for requests that have nothing in common but that they came at the same moment.

use wire::opcode::{Opcode, Service};
use wire::rpc;

use crate::data::HashedKey;
use crate::shard::Shard;
use crate::shard::codec::place_of;

/// Requests that are fetched for at a time: as many as a driver of datagrams takes at once.
const MAX_REQUESTS: usize = 32;

impl Shard {
    /// Has the processor fetch what these requests will need, if they are what they look like. Changes nothing.
    pub fn foresee<'a>(&self, requests: impl Iterator<Item = &'a [u8]>) {
        let mut hashes = [0; MAX_REQUESTS];
        let mut count = 0;
        for HashedKey { hash, .. } in requests.filter_map(place).take(MAX_REQUESTS) {
            self.store.keeper.index.prefetch(hash);
            hashes[count] = hash;
            count += 1;
        }
        // By now the first buckets are here.
        for &hash in &hashes[..count] {
            if let Some(at) = self.store.keeper.index.candidate(hash) {
                self.store.log.prefetch(at);
            }
        }
    }
}

/// Of the object that a request is about, where it is about one.
fn place(request: &[u8]) -> Option<HashedKey<'_>> {
    let header = rpc::header(request).ok()?;
    if Service::from_u16(header.service) != Some(Service::Master) {
        return None;
    }
    place_of(Opcode::from_u16(header.opcode)?, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ids::TableId;
    use wire::rpc::{ReadRequest, RejectRules};

    #[test]
    fn the_key_of_what_is_about_one_object_is_found_and_nothing_else_is_an_error() {
        let key = Some((TableId(7), &b"key"[..]));
        let read = ReadRequest {
            table_id: TableId(7),
            rules: RejectRules::default(),
            key: b"key",
        };
        let mut bytes = Vec::new();
        read.encode(&mut bytes);
        assert_eq!(place(&bytes).map(|place| (place.table_id, place.key)), key);
        for length in 0..bytes.len() {
            assert!(place(&bytes[..length]).is_none(), "cut to {length}");
        }
        let mut bytes = Vec::new();
        read.encode_for_keys_and_value(&mut bytes);
        assert_eq!(place(&bytes).map(|place| (place.table_id, place.key)), key);
        assert!(place(&[0xff; 100]).is_none());
    }
}
