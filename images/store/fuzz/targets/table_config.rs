//! Tables' configs and server lists, as clients read them.
#![no_main]

use fuzz::bounded_target;
use wire::cost::{Costed, decode};
use wire::proto::{ServerList, TableConfig};

/// Of the tablets of a config, or the servers of a list.
const MAX_LIST_BYTES: usize = 8 << 20;

fn round_trip<M: Costed + PartialEq>(data: &[u8]) {
    if let Ok(message) = decode::<M>(data, MAX_LIST_BYTES.min(4 * data.len())) {
        let written = message.encode_to_vec();
        assert!(M::decode(written.as_slice()).is_ok_and(|again| again == message));
    }
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    round_trip::<TableConfig>(data);
    round_trip::<ServerList>(data);
});
