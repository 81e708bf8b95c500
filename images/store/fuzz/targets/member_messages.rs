//! Messages of the member protocol: what can be read is written back and read again as the same.
#![no_main]

use fuzz::bounded_target;
use wire::cost::{Costed, decode};
use wire::member::{MAX_LIST_BYTES, ToCoordinator, ToShard};

fn round_trip<M: Costed + PartialEq>(data: &[u8]) {
    if let Ok(message) = decode::<M>(data, MAX_LIST_BYTES.min(4 * data.len())) {
        let written = message.encode_to_vec();
        assert_eq!(written.len(), message.encoded_len());
        assert!(M::decode(written.as_slice()).is_ok_and(|again| again == message));
    }
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    // As coordinator and shards do.
    let _ = ToCoordinator::decode_bounded(data);
    let _ = ToShard::decode_bounded(data);
    let _ = ToCoordinator::decode_hello(data);
    round_trip::<ToCoordinator>(data);
    round_trip::<ToShard>(data);
});
