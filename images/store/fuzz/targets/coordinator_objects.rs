//! Objects of an API server with anything in them: reading them ends, what is read is written as the same again, and a leadership that finds them
//! ends with a text or leads with what they say.
#![no_main]

use base::time::Time;
use coordinator::state::objects::format::{ChunkId, Root, Run, decode_chunk, encode_chunk};
use coordinator::state::objects::{
    Batch, Keeper, KeeperEffect, Name, ObjectResponse, Position, Request, Settings, Tuning, Version,
};
use coordinator::state::{Changes, Pair};
use fuzz::bounded_target;
use prost::Message;

const CLUSTER: u64 = 7;

/// A root with one run, and the run's only chunk.
fn objects(run: &[u8], tail: Batch) -> (Root, Vec<u8>) {
    let id = ChunkId {
        term: 1,
        nonce: 2,
        number: 3,
    };
    let (reference, chunk) = encode_chunk(CLUSTER, id, run);
    let root = Root {
        cluster_id: CLUSTER,
        position: Position {
            term: 1,
            nonce: 2,
            sequence: 4,
        },
        past: Vec::new(),
        leader: "fuzz".to_owned(),
        runs: vec![Run {
            chunks: vec![reference],
        }],
        tail,
    };
    (root, chunk)
}

/// Takes over from what is there; everything that is written succeeds.
fn lead(root: &[u8], chunk: &[u8]) {
    let mut keeper = Keeper::new(Settings {
        nonce: 9,
        leader: "next".to_owned(),
        new_cluster_id: 1,
        awaits_seed: false,
        tuning: Tuning::default(),
    });
    keeper.start(Time(1));
    let version = Version("1".to_owned());
    let (mut committed, mut requests) = (false, 0);
    while let Some(effect) = keeper.take_effect() {
        requests += 1;
        assert!(requests < 10_000, "it ends");
        match effect {
            KeeperEffect::Request(id, request) => {
                let answer = match request {
                    Request::Get(Name::Root) => {
                        ObjectResponse::Found(version.clone(), root.to_vec())
                    }
                    Request::Get(Name::Chunk(_)) => {
                        ObjectResponse::Found(version.clone(), chunk.to_vec())
                    }
                    Request::List { .. } => ObjectResponse::Listed(Vec::new()),
                    _ => ObjectResponse::Done(version.clone()),
                };
                keeper.answered(Time(1), id, answer);
            }
            KeeperEffect::Loaded { pairs, .. } => {
                let changes = Changes {
                    puts: pairs.into_iter().take(3).collect(),
                    deletes: vec![b"gone".to_vec()],
                };
                assert_eq!(keeper.commit(Time(1), changes), 1);
            }
            KeeperEffect::Committed(number) => committed = number == 1,
            KeeperEffect::Empty => unreachable!("it was not asked to wait for a seed"),
            KeeperEffect::Ended(_, text) => return assert!(!text.is_empty()),
        }
    }
    assert!(committed, "it leads, or says why not");
}

bounded_target!(fuzz::Bound::STATE, |data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    let pair = Pair {
        key: b"key".to_vec(),
        value: b"value".to_vec(),
    };
    let changes = Changes {
        puts: vec![pair],
        deletes: vec![b"none".to_vec()],
    };
    let run = changes.encode_to_vec();
    let (root, chunk) = objects(&run, Batch::from(changes));
    let (root, chunk) = match mode % 4 {
        // Any bytes.
        0 => (data.to_vec(), chunk),
        1 => (root.encode(), data.to_vec()),
        // A payload of any bytes, with a header that fits it.
        2 => {
            let mut bytes = root.encode()[..24].to_vec();
            bytes.extend_from_slice(data);
            let crc = crc32c::crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            (bytes, chunk)
        }
        _ => {
            let (root, chunk) = objects(data, Batch::default());
            (root.encode(), chunk)
        }
    };
    if let Ok(decoded) = Root::decode(&root) {
        assert_eq!(Root::decode(&decoded.encode()).as_ref(), Ok(&decoded));
        for reference in decoded.chunks() {
            let name = reference.id.to_string();
            assert_eq!(name.parse(), Ok(reference.id));
            if let Ok(payload) = decode_chunk(decoded.cluster_id, reference, &chunk) {
                let again = encode_chunk(decoded.cluster_id, reference.id, payload);
                assert_eq!(again, (*reference, chunk.clone()));
            }
        }
    }
    lead(&root, &chunk);
});
