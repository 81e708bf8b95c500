//! Round trips, damage, and the golden bytes of format 1.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::format::FIRST_FORMAT;
use crate::keys::KeysAndValue;

fn written<'a>(entry: &impl Entry<'a>) -> Vec<u8> {
    let mut out = vec![0xAA; entry.entry_bytes()];
    let bytes = write(entry, FIRST_FORMAT, &mut out);
    assert_eq!(bytes, out.len());
    out
}

/// Checks that `entry` reads back as itself, and that neither a cut nor a flipped bit goes unnoticed.
macro_rules! prop_round_trips {
    ($type:ident, $entry:expr, $bit:expr) => {{
        let entry = $entry;
        let mut bytes = written(&entry);
        let raw = RawEntry::read_checked(&bytes).unwrap();
        prop_assert_eq!(raw.bytes.len() % ALIGNMENT_BYTES, 0);
        prop_assert_eq!(raw.decode::<$type>(), Ok(entry));
        let cut = RawEntry::read_checked(&bytes[..bytes.len() - 1]);
        prop_assert_eq!(cut, Err(EntryError::Truncated));
        let covered = 8 * (HEADER_BYTES + entry.body_bytes());
        let bit = $bit.index(covered);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(
            RawEntry::read_checked(&bytes).is_err(),
            "bit {} flipped",
            bit
        );
    }};
}

proptest! {
    #[test]
    fn entries_round_trip(
        a: u64, b: u64, c: u64, d: u64, e: u64, small: u32,
        key in vec(any::<u8>(), 1..70),
        value in vec(any::<u8>(), 4..70),
        bit: proptest::sample::Index,
    ) {
        let table_id = TableId(a);
        let content = KeysAndValue::single(&key, &value).unwrap();
        prop_round_trips!(Object, Object { table_id, version: b, expires_ns: None, content }, bit);
        prop_round_trips!(
            Tombstone,
            Tombstone { table_id, version: b, segment_id: c, key: &key },
            bit
        );
        prop_round_trips!(
            RpcResult,
            RpcResult { lease_id: b, rpc_id: c, ack_id: d, table_id, key_hash: e, response: &value },
            bit
        );
        let mut ids = [a, b, c];
        ids.sort_unstable();
        if ids[0] < ids[1] && ids[1] < ids[2] {
            let ids = ids.map(u64::to_le_bytes);
            prop_round_trips!(Digest, Digest::new(&ids), bit);
        }
        prop_round_trips!(
            SegmentHeader,
            SegmentHeader {
                cluster_id: a, server_id: ServerId(b), segment_id: c, safe_version: d, segment_bytes: small,
            },
            bit
        );
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(
        mut bytes in vec(any::<u8>(), 0..100),
        kind in 0u8..8,
        right_checksum: bool,
    ) {
        if bytes.len() > HEADER_BYTES {
            let body_bytes = bytes.len() - HEADER_BYTES;
            bytes[4..8].copy_from_slice(&[body_bytes as u8, 0, 0, kind | 1 << KIND_BITS]);
            if right_checksum {
                let checksum = crc32c::crc32c(&bytes[4..]);
                bytes[..4].copy_from_slice(&checksum.to_le_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        }
        for raw in [RawEntry::read(&bytes), RawEntry::read_checked(&bytes)].into_iter().flatten() {
            let _ = raw.decode::<SegmentHeader>();
            let _ = raw.decode::<Object>();
            let _ = raw.decode::<Tombstone>();
            let _ = raw.decode::<RpcResult>();
            let _ = ObjectView::of(&raw);
        }
    }
}

#[test]
fn unknown_kinds_and_formats_are_errors() {
    let whole = written(&Tombstone {
        table_id: TableId(1),
        version: 2,
        segment_id: 3,
        key: b"k",
    });
    let retagged = |tag: u8| {
        let mut bytes = whole.clone();
        bytes[7] = tag;
        let end = HEADER_BYTES + 25;
        let checksum = crc32c::crc32c(&bytes[4..end]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        RawEntry::read_checked(&bytes).map(|raw| raw.kind)
    };
    assert_eq!(retagged(3 | 1 << 5), Ok(Kind::Tombstone));
    assert_eq!(retagged(31 | 1 << 5), Err(EntryError::UnknownKind(31)));
    let newer = EntryError::UnknownFormat {
        kind: Kind::Tombstone,
        format: 7,
    };
    assert_eq!(retagged(3 | 7 << 5), Err(newer));
    let mut damaged = whole.clone();
    damaged[7] = 9;
    assert_eq!(RawEntry::read_checked(&damaged), Err(EntryError::Checksum));
}

/// Files that old versions wrote stay readable: these bytes never change.
#[test]
fn format_1_is_as_it_was() {
    let object = Object {
        table_id: TableId(0x1_0000_0002),
        version: 3,
        expires_ns: None,
        content: KeysAndValue::single(b"key", b"value").unwrap(),
    };
    let tombstone = Tombstone {
        table_id: TableId(0x1_0000_0002),
        version: 3,
        segment_id: 4,
        key: b"key",
    };
    let result = RpcResult {
        lease_id: 5,
        rpc_id: 6,
        ack_id: 4,
        table_id: TableId(0x1_0000_0002),
        key_hash: 0x0123_4567_89ab_cdef,
        response: &[0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
    };
    let header = SegmentHeader {
        cluster_id: 0x1122_3344_5566_7788,
        server_id: ServerId::new(9, 1),
        segment_id: 4,
        safe_version: 1 << 40 | 1,
        segment_bytes: 8 << 20,
    };
    let ids = [1u64, 3, 0x0102_0304_0506_0708].map(u64::to_le_bytes);
    let digest = Digest::new(&ids);
    let golden = include_str!("../../../../testdata/formats/1/log-entries.txt");
    let lines: Vec<_> = golden
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let expected = [
        ("segment-header", written(&header)),
        ("object", written(&object)),
        ("tombstone", written(&tombstone)),
        ("rpc-result", written(&result)),
        ("digest", written(&digest)),
    ];
    assert_eq!(lines.len(), expected.len());
    for (line, (name, bytes)) in lines.iter().zip(expected) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(*line, format!("{name} {hex}"));
        RawEntry::read_checked(&bytes).unwrap();
    }
}

#[test]
fn a_digest_whose_ids_do_not_grow_or_are_cut_is_malformed() {
    let read = |body: &[u8]| Digest::read_body(1, body).map(|digest| digest.segment_ids().count());
    let malformed = Err(EntryError::Malformed(Kind::Digest));
    assert_eq!(read(&[]), Ok(0));
    assert_eq!(
        read(&[2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        Ok(2)
    );
    assert_eq!(
        read(&[3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        malformed
    );
    assert_eq!(read(&[2, 0, 0, 0, 0, 0, 0]), malformed);
}

#[cfg(feature = "next-format")]
#[test]
fn the_next_format_lies_otherwise_and_is_refused_by_who_does_not_know_it() {
    use crate::format::Formats;
    use base::layout::NEXT_FORMAT;

    let header = SegmentHeader {
        cluster_id: 1,
        server_id: ServerId::new(9, 1),
        segment_id: 4,
        safe_version: 5,
        segment_bytes: 8 << 20,
    };
    let tombstone = Tombstone {
        table_id: TableId(1),
        version: 2,
        segment_id: 3,
        key: b"k",
    };
    let object = Object {
        table_id: TableId(1),
        version: 3,
        expires_ns: None,
        content: KeysAndValue::single(b"key", b"value").unwrap(),
    };
    let (mut next, mut first) = ([0; 256], [0; 256]);
    let mut at = 0;
    at += write(&header, NEXT_FORMAT, &mut next[at..]);
    at += write(&tombstone, NEXT_FORMAT, &mut next[at..]);
    at += write(&object, NEXT_FORMAT, &mut next[at..]);
    let mut end = write(&header, FIRST_FORMAT, &mut first);
    end += write(&tombstone, FIRST_FORMAT, &mut first[end..]);
    end += write(&object, FIRST_FORMAT, &mut first[end..]);
    assert_eq!(at, end, "formats differ in layout only");
    let read = |mut bytes: &[u8], formats: Formats| {
        let mut kinds = Vec::new();
        while !bytes.is_empty() {
            let raw = RawEntry::read_checked(bytes)?;
            formats.check(&raw)?;
            match raw.kind {
                Kind::SegmentHeader => assert_eq!(raw.decode(), Ok(header)),
                Kind::Tombstone => assert_eq!(raw.decode(), Ok(tombstone)),
                _ => assert_eq!(raw.decode(), Ok(object)),
            }
            kinds.push((raw.kind, raw.format));
            bytes = &bytes[raw.bytes.len()..];
        }
        Ok::<_, EntryError>(kinds)
    };
    let kinds = [Kind::SegmentHeader, Kind::Tombstone, Kind::Object];
    let of = |formats: [u8; 3]| kinds.into_iter().zip(formats).collect::<Vec<_>>();
    assert_eq!(read(&first[..end], Formats::NEXT), Ok(of([1, 1, 1])));
    assert_eq!(read(&next[..at], Formats::NEXT), Ok(of([2, 2, 2])));
    assert_eq!(read(&first[..end], Formats::CURRENT), Ok(of([1, 1, 1])));
    let unknown = EntryError::UnknownFormat {
        kind: Kind::SegmentHeader,
        format: 2,
    };
    assert_eq!(read(&next[..at], Formats::CURRENT), Err(unknown));
}

#[cfg(feature = "next-format")]
proptest! {
    /// Whether an object of format 2 expires changes nothing else of what readers see.
    #[test]
    fn objects_of_format_2_may_expire(
        table_id: u64, version in 0..1_u64 << 63, expires_ns: Option<u64>,
        key in vec(any::<u8>(), 1..70),
        value in vec(any::<u8>(), 0..70),
    ) {
        let object = Object {
            table_id: TableId(table_id),
            version,
            expires_ns,
            content: KeysAndValue::single(&key, &value).unwrap(),
        };
        let mut bytes = vec![0xAA; object.entry_bytes()];
        let length = write(&object, base::layout::NEXT_FORMAT, &mut bytes);
        prop_assert_eq!(length, bytes.len());
        let raw = RawEntry::read_checked(&bytes).unwrap();
        prop_assert_eq!(raw.format, 2);
        prop_assert_eq!(raw.decode(), Ok(object));
        let view = ObjectView::of(&raw).unwrap();
        let seen = (view.table_id, view.version, view.expires_ns, view.primary_key, view.value);
        prop_assert_eq!(seen, (object.table_id, version, expires_ns, &key[..], &value[..]));
        // A reader that does not look at the format sees another object.
        let misread = RawEntry { format: 1, ..raw };
        let misread = ObjectView::of(&misread);
        let same = misread.is_ok_and(|view| (view.table_id, view.version) == (object.table_id, version));
        prop_assert!(!same || table_id == version);
    }
}

#[cfg(feature = "next-format")]
#[test]
#[should_panic(expected = "no object expires in format 1")]
fn an_expiry_is_not_lost_in_a_format_without_one() {
    let object = Object {
        table_id: TableId(1),
        version: 1,
        expires_ns: Some(7),
        content: KeysAndValue::single(b"key", b"value").unwrap(),
    };
    write(&object, FIRST_FORMAT, &mut [0; 256]);
}
