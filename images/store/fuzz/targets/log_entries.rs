//! Log entries: a scan over any bytes ends; an entry whose body can be read is written back as the same body.
#![no_main]

use fuzz::bounded_target;
use wire::entry::{
    Digest, Entry, Kind, Object, RawEntry, RpcResult, SegmentHeader, Tombstone, write,
};
use wire::format::FIRST_FORMAT;

fn round_trip<'a, E: Entry<'a>>(raw: &RawEntry<'a>) {
    let Ok(entry) = raw.decode::<E>() else { return };
    let mut written = vec![0; entry.entry_bytes()];
    assert_eq!(write(&entry, FIRST_FORMAT, &mut written), written.len());
    let again = RawEntry::read_checked(&written).expect("what was written is an entry");
    assert_eq!((again.kind, again.format), (raw.kind, raw.format));
    assert_eq!(again.body, raw.body);
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let mut rest = data;
    // Unchecked, so that the bodies are reached: nobody guesses checksums.
    while let Ok(raw) = RawEntry::read(rest) {
        let checked = RawEntry::read_checked(rest);
        assert!(checked.is_err() || checked == Ok(raw));
        match raw.kind {
            Kind::SegmentHeader => round_trip::<SegmentHeader>(&raw),
            Kind::Object => round_trip::<Object<'_>>(&raw),
            Kind::Tombstone => round_trip::<Tombstone<'_>>(&raw),
            Kind::RpcResult => round_trip::<RpcResult<'_>>(&raw),
            Kind::Digest => round_trip::<Digest<'_>>(&raw),
        }
        assert!(!raw.bytes.is_empty());
        rest = &rest[raw.bytes.len()..];
    }
});
