//! Messages between masters and backups: what can be read is written back as the same bytes.
#![no_main]

use fuzz::bounded_target;
use wire::member::TabletRange;
use wire::peer::{Answer, Data, Entries, Listing, Migrating, ReadEntries, Request};

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
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
            Request::ReadEntries(read) => {
                let tablets: Vec<TabletRange> = read.tablets.tablets().collect();
                assert!(tablets.is_sorted());
                let mut written = Vec::new();
                ReadEntries::encode(
                    read.replica,
                    read.offset,
                    read.bytes,
                    &tablets,
                    &mut written,
                );
                written
            }
            Request::List(list) => list.to_bytes().to_vec(),
            Request::MigrateRead(read) => read.to_bytes().to_vec(),
        };
        assert_eq!(written, data);
    }
    if let Ok(answer) = Answer::decode(data) {
        assert_eq!(answer.to_bytes(), data);
    }
    if let Ok(message) = Entries::decode(data) {
        let fixed = Entries::fixed_bytes(message.status, message.next_offset);
        assert_eq!([&fixed[..], message.data].concat(), data);
    }
    if let Ok(message) = Migrating::decode(data) {
        assert_eq!([&message.fixed_bytes()[..], message.data].concat(), data);
    }
    if let Ok(listing) = Listing::decode(data) {
        let mut written = Vec::new();
        listing.encode(&mut written);
        assert_eq!(Listing::decode(&written), Ok(listing));
    }
    if let Ok(message) = Data::decode(data) {
        let written = [&Data::fixed_bytes(message.status)[..], message.data].concat();
        assert_eq!(written, data);
    }
});
