//! The client protocol's framing: any bytes, received in any pieces, give the same frames, in bounded memory.
#![no_main]

use fuzz::bounded_target;
use transport::StreamReader;
use transport::rpc::{RpcReader, TRANSPORT_HEADER_BYTES};
use wire::rpc::MAX_RPC_BYTES;

/// Nonce, payload and announced length of every frame.
fn frames(stream: &[u8], mut piece: impl FnMut() -> usize) -> Vec<(u64, Vec<u8>, usize)> {
    let mut reader = RpcReader::default();
    let mut frames = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let space = reader.space();
        assert!(!space.is_empty());
        let count = space.len().min(rest.len()).min(piece().max(1));
        space[..count].copy_from_slice(&rest[..count]);
        reader.received(count);
        rest = &rest[count..];
        while let Some(frame) = reader.next_frame().expect("this framing has no errors") {
            assert_eq!(
                frame.payload.len(),
                frame.announced_bytes.min(MAX_RPC_BYTES)
            );
            frames.push((frame.nonce, frame.payload.to_vec(), frame.announced_bytes));
        }
        assert!(
            reader.capacity() <= 2 * stream.len() + (1 << 18),
            "memory follows what has come"
        );
    }
    frames
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let Some((&[first, second], stream)) = data.split_first_chunk::<2>() else {
        return;
    };
    let whole = frames(stream, || usize::MAX);
    let mut turn = 0usize;
    let pieces = frames(stream, || {
        turn += 1;
        if turn.is_multiple_of(2) {
            usize::from(first)
        } else {
            usize::from(second)
        }
    });
    assert_eq!(whole, pieces);
    let bytes: usize = whole
        .iter()
        .map(|(_, payload, _)| TRANSPORT_HEADER_BYTES + payload.len())
        .sum();
    assert!(bytes <= stream.len());
});
