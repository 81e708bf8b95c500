//! What messages may take in memory, decoded: [`crate::cost`]. Every repeated field is listed here.

use super::*;
use crate::cost::{self, CostError, Costed, Field};

/// Longest first frame of a shard: nobody has said yet who it is. A [`Hello`] with texts of the longest lengths takes half.
pub const MAX_HELLO_FRAME_BYTES: usize = 4 << 10;
/// Memory of all lists of one message, decoded. The inventory of a log of 100,000 segments takes less, and so does a welcome
/// with 300,000 tablets.
pub const MAX_LIST_BYTES: usize = 8 << 20;

impl Costed for ToCoordinator {
    const FIELDS: &'static [Field] = &[
        Field::one(
            2,
            &[
                Field::one(10, &[Field::many::<CopiesAt>(2, &[])]),
                Field::many::<TabletLoad>(11, &[]),
                Field::many::<PortReport>(14, &[Field::many::<PortPing>(11, &[])]),
            ],
        ),
        Field::one(8, &[Field::fixed(1)]),
        Field::one(9, &[Field::many::<ReplicaFound>(2, &[Field::varints(7)])]),
    ];
}

impl Costed for ToShard {
    const FIELDS: &'static [Field] = &[
        Field::one(1, &[Field::many::<TabletRange>(5, &[]), Field::varints(7)]),
        Field::one(10, &[Field::many::<Backup>(1, &[])]),
        Field::one(13, &[Field::fixed(1)]),
        Field::one(
            14,
            &[
                Field::many::<TabletRange>(2, &[]),
                Field::many::<SegmentSource>(3, &[Field::fixed(3)]),
            ],
        ),
    ];
}

impl ToCoordinator {
    /// Decodes what a shard sends after its [`Hello`].
    ///
    /// # Errors
    /// Malformed, or larger than [`MAX_LIST_BYTES`].
    pub fn decode_bounded(encoded: &[u8]) -> Result<ToCoordinator, CostError> {
        cost::decode(encoded, MAX_LIST_BYTES)
    }

    /// Decodes the first message of a shard, which is a [`Hello`]; no other kind is decoded, nor a longer one.
    ///
    /// # Errors
    /// Malformed, or something else.
    pub fn decode_hello(encoded: &[u8]) -> Result<ToCoordinator, NoHello> {
        // The key of the field `hello`; all else that a hello may have is in it.
        const HELLO_KEY: u8 = 1 << 3 | 2;
        if encoded.len() > MAX_HELLO_FRAME_BYTES || encoded.first() != Some(&HELLO_KEY) {
            return Err(NoHello);
        }
        let message = cost::decode::<ToCoordinator>(encoded, 0).map_err(|_| NoHello)?;
        match message.kind {
            Some(shard::Kind::Hello(_)) => Ok(message),
            _ => Err(NoHello),
        }
    }
}

impl ToShard {
    /// Decodes what the coordinator sends.
    ///
    /// # Errors
    /// Malformed, or larger than [`MAX_LIST_BYTES`].
    pub fn decode_bounded(encoded: &[u8]) -> Result<ToShard, CostError> {
        cost::decode(encoded, MAX_LIST_BYTES)
    }
}

/// The first message of a connection is no [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHello;

impl core::fmt::Display for NoHello {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "its first message is not a Hello of at most {MAX_HELLO_FRAME_BYTES} bytes"
        )
    }
}

impl std::error::Error for NoHello {}
