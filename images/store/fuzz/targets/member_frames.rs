//! The member protocol's framing: any bytes, received in any pieces, give the same messages, or the same end.
#![no_main]

use fuzz::bounded_target;
use transport::member::MemberReader;
use transport::{StreamError, StreamReader};

fn messages(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<StreamError>) {
    let mut reader = MemberReader::default();
    let mut messages = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let space = reader.space();
        assert!(!space.is_empty());
        let count = space.len().min(rest.len()).min(piece.max(1));
        space[..count].copy_from_slice(&rest[..count]);
        reader.received(count);
        rest = &rest[count..];
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => messages.push(frame.payload.to_vec()),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(
            reader.capacity() <= 2 * stream.len() + (1 << 18),
            "memory follows what has come"
        );
    }
    (messages, None)
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else {
        return;
    };
    assert_eq!(messages(stream, usize::MAX), messages(stream, piece.into()));
});
