//! Messages of the member protocol take no more memory than is counted before they are decoded, whatever is in them.
//!
//! Each field of each golden message is repeated, in turn, until the message has 256 KiB; a repeated field that
//! [`Costed::FIELDS`] does not name is found by the bytes that it takes.

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use test_memory::peak_of;
use wire::cost::{self, CostError, Costed};
use wire::member::{MAX_LIST_BYTES, NoHello, ToCoordinator, ToShard};
use wire::proto::{EnumerationIterator, ServerList, TableConfig};

/// A field: where it begins and ends, and its content if it has a length.
struct Found {
    tag: u32,
    wire_type: WireType,
    whole: (usize, usize),
    content: Option<(usize, usize)>,
}

/// The fields of a message, if it is one.
fn fields(encoded: &[u8]) -> Option<Vec<Found>> {
    let mut rest = encoded;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let start = encoded.len() - rest.len();
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        let content = if wire_type == WireType::LengthDelimited {
            let length = decode_varint(&mut rest).ok()? as usize;
            let start = encoded.len() - rest.len();
            rest = rest.get(length..)?;
            Some((start, start + length))
        } else {
            skip_field(wire_type, tag, &mut rest, Default::default()).ok()?;
            None
        };
        found.push(Found {
            tag,
            wire_type,
            whole: (start, encoded.len() - rest.len()),
            content,
        });
    }
    Some(found)
}

fn length_delimited(tag: u32, content: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    encode_key(tag, WireType::LengthDelimited, &mut encoded);
    encode_varint(content.len() as u64, &mut encoded);
    encoded.extend_from_slice(content);
    encoded
}

/// The message with one of its fields, or a field of a field, repeated until it has `bytes` more. Hands each to `hear`.
fn swell(encoded: &[u8], bytes: usize, hear: &mut dyn FnMut(Vec<u8>)) {
    for field in fields(encoded).unwrap_or_default() {
        let (before, after) = (&encoded[..field.whole.0], &encoded[field.whole.1..]);
        let around = |middle: &[u8]| [before, middle, after].concat();
        let mut shortest = Vec::new();
        encode_key(field.tag, field.wire_type, &mut shortest);
        let value_bytes = match field.wire_type {
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            _ => 1,
        };
        shortest.resize(shortest.len() + value_bytes, 0);
        hear(around(&shortest.repeat(bytes / shortest.len())));
        let as_it_is = &encoded[field.whole.0..field.whole.1];
        hear(around(&as_it_is.repeat(bytes / as_it_is.len())));
        let packed = length_delimited(field.tag, &vec![0; bytes]);
        hear(around(&packed));
        if let Some((start, end)) = field.content {
            swell(&encoded[start..end], bytes, &mut |inner| {
                hear(around(&length_delimited(field.tag, &inner)));
            });
        }
    }
}

/// What decoding takes beyond the lists that are counted: texts and bytes as long as they are, and as much again while they grow.
fn assert_bounded<M: Costed>(encoded: &[u8], limit: usize, name: &str) {
    let ((), peak) = peak_of(|| drop(cost::decode::<M>(encoded, limit)));
    // A vector that grows is there twice, the larger one up to twice as large as needed.
    let most = 3 * limit + 2 * encoded.len() + 4096;
    let tags = encoded.iter().take(8).collect::<Vec<_>>();
    assert!(peak <= most, "{name} {tags:x?}: {peak} bytes of {most}");
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let text = pairs.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    text.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits"))
        .collect()
}

/// Each golden message by name; those of shards come first, up to the last kind that a shard sends.
fn golden() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("../../../testdata/formats/1/member-messages.txt").lines();
    let messages = lines.filter(|line| !line.starts_with('#'));
    messages
        .map(|line| line.split_once(' ').expect("a name, and bytes"))
        .map(|(name, hex)| (name, bytes_of(hex)))
        .collect()
}

#[test]
fn whatever_is_repeated_is_counted() {
    const BYTES: usize = 256 << 10;
    const LIMIT: usize = 64 << 10;
    let golden = golden();
    let first_order = golden.iter().position(|(name, _)| *name == "welcome");
    let (of_shards, of_coordinators) = golden.split_at(first_order.expect("there is one"));
    let mut tried = 0;
    for (name, encoded) in of_shards {
        swell(encoded, BYTES, &mut |swollen| {
            tried += 1;
            assert_bounded::<ToCoordinator>(&swollen, LIMIT, name);
        });
    }
    for (name, encoded) in of_coordinators {
        swell(encoded, BYTES, &mut |swollen| {
            tried += 1;
            assert_bounded::<ToShard>(&swollen, LIMIT, name);
        });
    }
    assert!(tried > 600, "{tried}");
    for tag in 1..=7 {
        let many = length_delimited(tag, &[]).repeat(BYTES / 2);
        assert_bounded::<EnumerationIterator>(&many, LIMIT, "iterator");
        assert_bounded::<TableConfig>(&many, LIMIT, "table config");
        assert_bounded::<ServerList>(&many, LIMIT, "server list");
    }
}

#[test]
fn golden_messages_are_decoded_as_without_a_bound() {
    for (name, encoded) in golden() {
        if let Ok(message) = ToCoordinator::decode(&*encoded) {
            let bounded = ToCoordinator::decode_bounded(&encoded);
            assert_eq!(bounded.as_ref(), Ok(&message), "{name}");
            let hello = ToCoordinator::decode_hello(&encoded);
            match name {
                "hello" => assert_eq!(hello, Ok(message)),
                _ => assert_eq!(hello, Err(NoHello), "{name}"),
            }
        }
        if let Ok(message) = ToShard::decode(&*encoded) {
            assert_eq!(ToShard::decode_bounded(&encoded), Ok(message), "{name}");
        }
    }
}

/// The longest frame, full of the shortest replicas: 600 MB of them were decoded.
#[test]
fn an_inventory_of_empty_replicas_is_refused() {
    let replicas = [0x12, 0].repeat(((16 << 20) - 8) / 2);
    let encoded = length_delimited(9, &replicas);
    let (refused, peak) = peak_of(|| ToCoordinator::decode_bounded(&encoded).err());
    assert_eq!(refused, Some(CostError::TooLarge(MAX_LIST_BYTES)));
    assert!(peak < 4096, "{peak}");
    let (is_refused, peak) = peak_of(|| ToCoordinator::decode_hello(&encoded).is_err());
    assert!(is_refused && peak < 4096, "{peak}");
}
