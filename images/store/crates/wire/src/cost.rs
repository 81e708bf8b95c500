//! The memory that a protobuf message takes once it is decoded, counted on its encoded bytes. Nothing is decoded for that.
//!
//! An element of a repeated field may be two bytes in a frame and a hundred in memory. Whoever decodes what came from outside
//! counts first, and refuses what is too large: [`decode`] does both.

use core::fmt;

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

/// A field that can make a message larger in memory than it is encoded. Strings and bytes cannot, and are not listed.
pub struct Field {
    pub tag: u32,
    /// Memory of one element of a repeated field; 0 for a field that is there once at most.
    pub element_bytes: usize,
    pub content: Content,
}

pub enum Content {
    /// A message with these fields.
    Message(&'static [Field]),
    /// Numbers of variable length, packed or not.
    Varints,
    /// Numbers of fixed length, packed or not: these take as much memory as they are long.
    Fixed,
}

impl Field {
    /// A message that is there once at most.
    pub const fn one(tag: u32, fields: &'static [Field]) -> Field {
        Field {
            tag,
            element_bytes: 0,
            content: Content::Message(fields),
        }
    }

    /// Any number of messages of type `M`.
    pub const fn many<M>(tag: u32, fields: &'static [Field]) -> Field {
        Field {
            tag,
            element_bytes: size_of::<M>(),
            content: Content::Message(fields),
        }
    }

    /// Any number of `uint64`.
    pub const fn varints(tag: u32) -> Field {
        Field {
            tag,
            element_bytes: size_of::<u64>(),
            content: Content::Varints,
        }
    }

    /// Any number of `fixed64`.
    pub const fn fixed(tag: u32) -> Field {
        Field {
            tag,
            element_bytes: size_of::<u64>(),
            content: Content::Fixed,
        }
    }
}

/// A message whose repeated fields are known. The test of `tests/cost.rs` finds one that was forgotten.
pub trait Costed: Message + Default {
    const FIELDS: &'static [Field];
}

/// Why a message was not decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum CostError {
    Malformed(DecodeError),
    /// Decoded, its repeated fields would take more than this many bytes.
    TooLarge(usize),
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostError::Malformed(error) => error.fmt(f),
            CostError::TooLarge(limit) => {
                write!(f, "decoded, its lists would take more than {limit} bytes")
            }
        }
    }
}

impl std::error::Error for CostError {}

impl From<DecodeError> for CostError {
    fn from(error: DecodeError) -> CostError {
        CostError::Malformed(error)
    }
}

/// Decodes a message whose repeated fields take at most `limit` bytes of memory.
///
/// # Errors
/// The message is malformed, or takes more: then nothing was decoded.
pub fn decode<M: Costed>(encoded: &[u8], limit: usize) -> Result<M, CostError> {
    list_bytes(M::FIELDS, encoded, limit)?;
    Ok(M::decode(encoded)?)
}

/// Memory of the repeated fields of a message, decoded.
///
/// # Errors
/// The message is malformed, or takes more than `limit`.
pub fn list_bytes(fields: &[Field], encoded: &[u8], limit: usize) -> Result<usize, CostError> {
    let mut count = Count { bytes: 0, limit };
    count.message(fields, encoded)?;
    Ok(count.bytes)
}

struct Count {
    bytes: usize,
    limit: usize,
}

impl Count {
    fn message(&mut self, fields: &[Field], mut encoded: &[u8]) -> Result<(), CostError> {
        while !encoded.is_empty() {
            let (tag, wire_type) = decode_key(&mut encoded)?;
            let Some(field) = fields.iter().find(|field| field.tag == tag) else {
                skip_field(wire_type, tag, &mut encoded, DecodeContext::default())?;
                continue;
            };
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut encoded, DecodeContext::default())?;
                self.add(field.element_bytes)?;
                continue;
            }
            let body = length_delimited(&mut encoded)?;
            match field.content {
                Content::Message(fields) => {
                    self.add(field.element_bytes)?;
                    self.message(fields, body)?;
                }
                // The last byte of each has the highest bit clear.
                Content::Varints => {
                    let count = body.iter().filter(|byte| **byte < 0x80).count();
                    self.add(count.saturating_mul(field.element_bytes))?;
                }
                Content::Fixed => self.add(body.len())?,
            }
        }
        Ok(())
    }

    fn add(&mut self, bytes: usize) -> Result<(), CostError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limit {
            true => Err(CostError::TooLarge(self.limit)),
            false => Ok(()),
        }
    }
}

fn length_delimited<'a>(encoded: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let length = decode_varint(encoded)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some((body, _)) = encoded.split_at_checked(length) else {
        #[expect(deprecated, reason = "there is no other way to make one")]
        return Err(DecodeError::new("a field is longer than its message"));
    };
    encoded.advance(length);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::many::<[u64; 10]>(1, &[Field::varints(7)]),
        Field::fixed(2),
        Field::one(3, &[Field::many::<u64>(1, &[])]),
    ];

    fn cost(encoded: &[u8]) -> Result<usize, CostError> {
        list_bytes(FIELDS, encoded, 1000)
    }

    #[test]
    fn every_element_counts() {
        assert_eq!(cost(&[]), Ok(0));
        assert_eq!(cost(&[0x0a, 0, 0x0a, 0]), Ok(160));
        assert_eq!(cost(&[0x0a, 5, 0x3a, 3, 0x80, 1, 0]), Ok(80 + 16));
        assert_eq!(cost(&[0x0a, 4, 0x38, 1, 0x38, 2]), Ok(80 + 16));
        assert_eq!(cost(&[0x11, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(8));
        assert_eq!(cost(&[0x12, 8, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(8));
        assert_eq!(cost(&[0x1a, 4, 0x0a, 0, 0x0a, 0]), Ok(16));
        let unknown = [0x22, 2, 0x0a, 0];
        assert_eq!(cost(&unknown), Ok(0));
    }

    #[test]
    fn what_is_too_large_is_refused_and_what_is_malformed_too() {
        assert_eq!(cost(&[0x0a, 0].repeat(12)), Ok(960));
        let too_many = cost(&[0x0a, 0].repeat(13));
        assert_eq!(too_many, Err(CostError::TooLarge(1000)));
        let nested = [&[0x1a, 252, 1][..], &[0x0a, 0].repeat(126)].concat();
        assert_eq!(cost(&nested), Err(CostError::TooLarge(1000)));
        for malformed in [&[0x0a][..], &[0x0a, 1], &[0x12, 0xff], &[0x0a, 1, 0x38]] {
            let refused = cost(malformed);
            assert!(
                matches!(refused, Err(CostError::Malformed(_))),
                "{malformed:?}"
            );
        }
    }
}
