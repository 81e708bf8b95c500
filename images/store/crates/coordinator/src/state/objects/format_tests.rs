use super::*;

const CLUSTER: u64 = 0x1122_3344_5566_7788;

fn id(number: u64) -> ChunkId {
    ChunkId {
        term: 3,
        nonce: 0xfedc_ba98_7654_3210,
        number,
    }
}

fn put(key: &str, value: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.into(), Some(value.into()))
}

fn batch(entries: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in entries {
        batch.put(key, value);
    }
    batch
}

/// A root, and the two chunks of its one run.
fn sample() -> (Root, [Vec<u8>; 2]) {
    let run = batch(vec![put("a", "1"), put("b", "two"), put("c", "")]);
    let bytes = run.to_changes().encode_to_vec();
    let (front, back) = bytes.split_at(8);
    let (first, first_bytes) = encode_chunk(CLUSTER, id(1), front);
    let (second, second_bytes) = encode_chunk(CLUSTER, id(300), back);
    let root = Root {
        cluster_id: CLUSTER,
        position: Position {
            term: 4,
            nonce: 0x0102_0304_0506_0708,
            sequence: 1000,
        },
        past: vec![
            Leadership {
                term: 2,
                nonce: 5,
                last_sequence: 17,
            },
            Leadership {
                term: 3,
                nonce: 0xfedc_ba98_7654_3210,
                last_sequence: 999,
            },
        ],
        leader: "box-coordinator-1".to_owned(),
        runs: vec![Run {
            chunks: vec![first, second],
        }],
        tail: batch(vec![put("a", "2"), ("b".into(), None)]),
    };
    (root, [first_bytes, second_bytes])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn format_1_is_as_it_was() {
    let golden = include_str!("../../../../../testdata/formats/1/coordinator-objects.txt");
    let (root, chunks) = sample();
    let mut found = vec![format!("root {}", hex(&root.encode()))];
    for (chunk, bytes) in root.chunks().zip(&chunks) {
        found.push(format!("{} {}", chunk.id, hex(bytes)));
    }
    let lines = golden.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.collect::<Vec<_>>(), found);
}

#[test]
fn what_was_written_is_read() {
    let (root, chunks) = sample();
    assert_eq!(Root::decode(&root.encode()), Ok(root.clone()));
    let payloads = root.chunks().zip(&chunks);
    let payloads: Vec<&[u8]> = payloads
        .map(|(chunk, bytes)| decode_chunk(CLUSTER, chunk, bytes).unwrap())
        .collect();
    let changes = Changes::decode(payloads.concat().as_slice()).unwrap();
    let expected = batch(vec![put("a", "1"), put("b", "two"), put("c", "")]);
    assert_eq!(Batch::from(changes), expected);
    let lengths: Vec<usize> = chunks
        .iter()
        .map(|bytes| bytes.len() - CHUNK_HEADER_BYTES)
        .collect();
    let told: Vec<usize> = root.chunks().map(|chunk| chunk.bytes as usize).collect();
    assert_eq!(lengths, told);
}

#[test]
fn every_change_of_a_bit_and_every_cut_is_noticed() {
    let (root, [chunk, _]) = sample();
    let reference = root.runs[0].chunks[0];
    let check = |root: &[u8], chunk: &[u8]| {
        for text in [
            Root::decode(root).map(drop).unwrap_err(),
            decode_chunk(CLUSTER, &reference, chunk)
                .map(drop)
                .unwrap_err(),
        ] {
            assert!(
                text.contains("is damaged: put all objects of one backup")
                    || text.contains("is not a coordinator's object"),
                "{text}"
            );
        }
    };
    let root = root.encode();
    for at in 0..root.len().max(chunk.len()) {
        let cut = |bytes: &[u8]| bytes[..at.min(bytes.len() - 1)].to_vec();
        check(&cut(&root), &cut(&chunk));
        for bit in 0..8 {
            let flip = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                bytes
            };
            check(&flip(&root), &flip(&chunk));
        }
    }
}

#[test]
fn a_chunk_is_only_the_one_that_the_root_means() {
    let (root, chunks) = sample();
    let [first, second] = [root.runs[0].chunks[0], root.runs[0].chunks[1]];
    let others = [
        (CLUSTER, second, &chunks[0]),
        (CLUSTER + 1, first, &chunks[0]),
        (CLUSTER, ChunkRef { bytes: 7, ..first }, &chunks[0]),
        (CLUSTER, ChunkRef { crc: 7, ..first }, &chunks[0]),
    ];
    for (cluster, reference, bytes) in others {
        let text = decode_chunk(cluster, &reference, bytes).unwrap_err();
        assert!(
            text.contains("holds something else than what the root means"),
            "{text}"
        );
    }
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let (root, [mut chunk, _]) = sample();
    let mut bytes = root.encode();
    for bytes in [&mut bytes, &mut chunk] {
        bytes[12] = 2;
        sign(bytes);
    }
    let texts = [
        Root::decode(&bytes).unwrap_err(),
        decode_chunk(CLUSTER, &root.runs[0].chunks[0], &chunk)
            .map(drop)
            .unwrap_err(),
    ];
    for text in texts {
        assert!(
            text.contains("is of format 2, and this build reads format 1"),
            "{text}"
        );
    }
}

#[test]
fn impossible_roots_are_refused() {
    type Change = fn(&mut Root);
    let changes: [Change; 8] = [
        |root| root.position.term = 3,
        |root| root.position.sequence = 999,
        |root| root.position.sequence = u64::MAX,
        |root| root.position.term = u64::MAX,
        |root| root.past[0].term = 0,
        |root| root.past[0].last_sequence = 0,
        |root| root.past.swap(0, 1),
        |root| root.runs[0].chunks[1].id.term = 5,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut root = sample().0;
        change(&mut root);
        let text = Root::decode(&root.encode()).unwrap_err();
        assert!(text.contains("damaged"), "{number}: {text}");
    }
}

#[test]
fn a_chunks_name_is_read_as_it_is_written_and_no_other() {
    for id in [
        id(1),
        id(u64::MAX),
        ChunkId {
            term: u64::MAX,
            nonce: 0,
            number: 0,
        },
    ] {
        let name = id.to_string();
        assert!(name.len() <= 64, "{name}");
        assert_eq!(name.parse(), Ok(id));
    }
    for name in [
        "",
        "root",
        "chunk-",
        "chunk-1-2-3",
        "chunk-1-0000000000000002-3-4",
        "chunk-1-0000000000000002-03",
        "chunk-1-0000000000000002-+3",
        "chunk-1-000000000000000A-3",
        "chunk-1-0000000000000002",
        "chunk-1-0000000000000002-18446744073709551616",
    ] {
        assert!(name.parse::<ChunkId>().is_err(), "{name}");
    }
}
