//! Messages between masters and backups: what can be read is written back as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::peer::{Answer, Data, Request};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = Request::decode(data) {
        let written = match request {
            Request::Append(append) => {
                assert_eq!(
                    append.end() as usize,
                    append.offset as usize + append.data.len()
                );
                [&append.fixed_bytes()[..], append.data].concat()
            }
            Request::KeepAlive(keep_alive) => keep_alive.to_bytes().to_vec(),
            Request::Free(free) => free.to_bytes().to_vec(),
            Request::Read(read) => read.to_bytes().to_vec(),
        };
        assert_eq!(written, data);
    }
    if let Ok(answer) = Answer::decode(data) {
        assert_eq!(answer.to_bytes(), data);
    }
    if let Ok(message) = Data::decode(data) {
        let written = [&Data::fixed_bytes(message.status)[..], message.data].concat();
        assert_eq!(written, data);
    }
});
