//! Messages of the member protocol: what can be read is written back and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use wire::member::{ToCoordinator, ToShard};

fn round_trip<M: Message + Default + PartialEq>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        let written = message.encode_to_vec();
        assert_eq!(written.len(), message.encoded_len());
        assert!(M::decode(written.as_slice()).is_ok_and(|again| again == message));
    }
}

fuzz_target!(|data: &[u8]| {
    round_trip::<ToCoordinator>(data);
    round_trip::<ToShard>(data);
});
