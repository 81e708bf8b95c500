//! Values that tell which write they are from, so that a damaged or foreign one is noticed when it is read.

use wire::keys::KeysAndValue;

use crate::oracles::checker::{Content, Keys, Sight, Value};

/// The bytes of a value of at least 8: its number, then a pattern that depends on it.
pub fn value_bytes(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..length.saturating_sub(8)).map(|at| (number as u8).wrapping_add(at as u8)));
    bytes
}

/// What a value holds; `None` if it is none that is written here. The model knows which numbers of 8 bytes there can be.
pub fn content(bytes: &[u8]) -> Option<Content> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    if bytes.len() == 8 {
        return Some(Content::Number(number));
    }
    (value_bytes(number, bytes.len()) == bytes).then_some(Content::Text(number))
}

/// What a write of this number stores, under one key or several.
pub fn written(number: u64, length: usize, has_more_keys: bool) -> Value {
    Value {
        content: if length == 8 {
            Content::Number(number)
        } else {
            Content::Text(number)
        },
        keys: if has_more_keys {
            Keys::Of(number)
        } else {
            Keys::One
        },
    }
}

/// The keys besides the primary one that the write of this number gives its object, if it gives any. Later ones may be missing,
/// which is to say empty.
pub fn more_keys(number: u64) -> Vec<Vec<u8>> {
    let key = |at: u64| match at > 0 && (number + at).is_multiple_of(3) {
        true => Vec::new(),
        false => format!("{number}/{at}").into_bytes(),
    };
    (0..=number % 4).map(key).collect()
}

/// Reads an object as it travels; `None` if it is not one of `primary_key`, or has keys that no write gave it.
pub fn whole(bytes: &[u8], primary_key: &[u8]) -> Option<Sight> {
    let object = KeysAndValue::parse(bytes).ok()?;
    (object.primary_key() == primary_key).then_some(())?;
    Some(Sight {
        content: Some(content(object.value())?),
        keys: Some(keys(&object)?),
    })
}

/// Whose keys an object has; `None` if no write can have given it these.
pub fn keys(object: &KeysAndValue<'_>) -> Option<Keys> {
    let more: Vec<&[u8]> = object.keys().skip(1).collect();
    let Some(first) = more.first() else {
        return Some(Keys::One);
    };
    let number = str::from_utf8(first).ok()?.split_once('/')?.0;
    let number: u64 = number.parse().ok()?;
    (more_keys(number) == more).then_some(Keys::Of(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_value_is_recognized() {
        let bytes = value_bytes(300, 20);
        assert_eq!(content(&bytes), Some(Content::Text(300)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_ne!(content(&damaged), Some(Content::Text(300)), "byte {at}");
        }
        assert_eq!(content(&bytes[..7]), None);
        assert_eq!(content(&bytes[..8]), Some(Content::Number(300)));
    }

    #[test]
    fn keys_tell_their_write() {
        for number in 0..20 {
            let more = more_keys(number);
            let all: Vec<&[u8]> = [&b"k"[..]]
                .into_iter()
                .chain(more.iter().map(Vec::as_slice))
                .collect();
            let value = value_bytes(number, 30);
            let mut bytes = Vec::new();
            let object = KeysAndValue::with_keys(&all, &value).unwrap();
            object.encode(&mut bytes);
            let sight = whole(&bytes, b"k").unwrap();
            assert_eq!(sight, written(number, 30, true).into());
            assert_eq!(whole(&bytes, b"j"), None);
            // One key lost, or one of another write.
            let object = KeysAndValue::with_keys(&all[..all.len() - 1], &value).unwrap();
            let expected = (all.len() == 2).then_some(Keys::One);
            assert_eq!(keys(&object), expected);
            let mut foreign = all.clone();
            foreign.push(b"1/0");
            let object = KeysAndValue::with_keys(&foreign, &value).unwrap();
            assert_eq!(keys(&object), None);
        }
    }
}
