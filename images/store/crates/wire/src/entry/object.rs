//! Objects in the log.

use super::{Entry, EntryError, HEADER_BYTES, Kind, RawEntry, padded, put_words, words};
use crate::keys::KeysAndValue;
use base::bugs::{Bug, is_planted};
use base::ids::TableId;

/// An object.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 | table id |
/// | 8 | 8 | version |
/// | 16 | rest | keys and value, as in [`crate::keys`] |
///
/// In format 2 the version comes first, and its highest bit says whether the object expires. If it does, the time follows the table id. An object
/// that does not expire is as long as before, and misread by whoever does not look at the format.
///
/// | offset in body | size | field |
/// |---|---|---|
/// | 0 | 8 | version, and the highest bit |
/// | 8 | 8 | table id |
/// | 16 | 0 or 8 | cluster time at which the object expires, ns |
/// | 16 or 24 | rest | keys and value |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    pub table_id: TableId,
    pub version: u64,
    /// Cluster time, ns. Format 1 has no place for it.
    pub expires_ns: Option<u64>,
    pub content: KeysAndValue<'a>,
}

/// In format 2: an expiry follows.
const EXPIRES: u64 = 1 << 63;

impl<'a> Object<'a> {
    /// The length in the log of an object that does not expire, and whose keys and value take `content_bytes`. Of an object that is there already,
    /// [`Entry::entry_bytes`] says it.
    pub const fn entry_bytes_of(content_bytes: usize) -> usize {
        padded(HEADER_BYTES + 16 + content_bytes)
    }
}

impl<'a> Entry<'a> for Object<'a> {
    const KIND: Kind = Kind::Object;

    fn body_bytes(&self) -> usize {
        16 + self.expires_ns.map_or(0, |_| 8) + self.content.encoded_bytes()
    }

    fn write_body(&self, store: u32, out: &mut [u8]) {
        let (table_id, version) = (self.table_id.0, self.version);
        let rest = match (Self::KIND.format_in(store), self.expires_ns) {
            (1, None) => put_words(out, [table_id, version]),
            (1, Some(_)) => panic!("no object expires in format {store}"),
            (_, expires_ns) => {
                assert!(version < EXPIRES, "versions have 63 bits");
                match expires_ns {
                    None => put_words(out, [version, table_id]),
                    Some(expires_ns) => put_words(out, [version | EXPIRES, table_id, expires_ns]),
                }
            }
        };
        self.content.write_to(rest);
    }

    fn read_body(format: u8, body: &'a [u8]) -> Result<Self, EntryError> {
        let (head, rest) = ObjectHead::read(format, body)?;
        let content = KeysAndValue::parse(rest).map_err(|_| EntryError::Malformed(Kind::Object))?;
        Ok(Object {
            table_id: head.table_id,
            version: head.version,
            expires_ns: head.expires_ns,
            content,
        })
    }
}

/// What stands before an object's keys.
struct ObjectHead {
    table_id: TableId,
    version: u64,
    expires_ns: Option<u64>,
}

impl ObjectHead {
    #[inline]
    fn read(format: u8, body: &[u8]) -> Result<(ObjectHead, &[u8]), EntryError> {
        let format = match is_planted(Bug::IgnoreObjectFormat) {
            true => 1,
            false => format,
        };
        let ([first, second], rest) = words(body, Kind::Object)?;
        let (table_id, version) = match format {
            1 => (first, second),
            _ => (second, first),
        };
        let head = |version, expires_ns| ObjectHead {
            table_id: TableId(table_id),
            version,
            expires_ns,
        };
        if format == 1 || version < EXPIRES {
            return Ok((head(version, None), rest));
        }
        let ([expires_ns], rest) = words(rest, Kind::Object)?;
        Ok((head(version & !EXPIRES, Some(expires_ns)), rest))
    }
}

/// What a reader wants of an object, found without checking what was checked when the object was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectView<'a> {
    pub table_id: TableId,
    pub version: u64,
    pub expires_ns: Option<u64>,
    pub primary_key: &'a [u8],
    pub value: &'a [u8],
    /// Keys and value, as they travel.
    pub content: &'a [u8],
}

impl<'a> ObjectView<'a> {
    #[inline]
    pub fn of(entry: &RawEntry<'a>) -> Result<ObjectView<'a>, EntryError> {
        if entry.kind != Kind::Object {
            return Err(EntryError::WrongKind(entry.kind));
        }
        let (head, rest) = ObjectHead::read(entry.format, entry.body)?;
        let (primary_key, value) =
            KeysAndValue::primary_and_value(rest).ok_or(EntryError::Malformed(Kind::Object))?;
        Ok(ObjectView {
            table_id: head.table_id,
            version: head.version,
            expires_ns: head.expires_ns,
            primary_key,
            value,
            content: rest,
        })
    }

    /// The content without the value: how the keys lie, and they.
    pub fn keys(&self) -> &'a [u8] {
        &self.content[..self.content.len() - self.value.len()]
    }
}
