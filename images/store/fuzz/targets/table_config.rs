//! Tables' configs and server lists, as clients read them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use wire::proto::{ServerList, TableConfig};

fn round_trip<M: Message + Default + PartialEq>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        let written = message.encode_to_vec();
        assert!(M::decode(written.as_slice()).is_ok_and(|again| again == message));
    }
}

fuzz_target!(|data: &[u8]| {
    round_trip::<TableConfig>(data);
    round_trip::<ServerList>(data);
});
