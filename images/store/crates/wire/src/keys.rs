//! Keys and value of an object as they travel and as they lie in the log: number of keys (u8), cumulative key lengths (u16
//! each), the keys, the value.

use core::fmt;

use crate::status::Status;

/// Largest total length of an object's keys.
pub const MAX_KEY_BYTES: usize = 65_535;

/// An object's keys and value, checked: at least one key, the first of them not empty, lengths that add up.
#[derive(Clone, Copy)]
pub struct KeysAndValue<'a> {
    form: Form<'a>,
    primary_key: &'a [u8],
    value: &'a [u8],
}

/// Equal when they would be equal on the wire.
impl PartialEq for KeysAndValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.keys().eq(other.keys()) && self.value == other.value
    }
}

impl Eq for KeysAndValue<'_> {}

impl fmt::Debug for KeysAndValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysAndValue")
            .field("primary_key", &self.primary_key.escape_ascii().to_string())
            .field("keys", &self.key_count())
            .field("value_bytes", &self.value.len())
            .finish()
    }
}

#[derive(Clone, Copy)]
enum Form<'a> {
    /// All of it, as it came.
    Encoded(&'a [u8]),
    /// One key and a value that lie apart.
    Single,
    /// Several keys, the primary one first, and a value that lie apart.
    Apart(&'a [&'a [u8]]),
}

/// Keys that no object can have: the first one empty, or all together longer than [`MAX_KEY_BYTES`], or more than
/// [`KeysAndValue::MAX_KEYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadKeyLength(pub usize);

impl fmt::Display for BadKeyLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an object has 1 to {} keys of together 1 to {MAX_KEY_BYTES} bytes, the first one not empty; these have {}",
            KeysAndValue::MAX_KEYS,
            self.0
        )
    }
}

impl core::error::Error for BadKeyLength {}

impl<'a> KeysAndValue<'a> {
    /// Bytes before the key of an object that has only one.
    pub const SINGLE_KEY_HEADER_BYTES: usize = 3;

    pub const MAX_KEYS: usize = 255;

    /// An object with several keys, the primary one first; a secondary key that is empty is a missing one.
    pub fn with_keys(
        keys: &'a [&'a [u8]],
        value: &'a [u8],
    ) -> Result<KeysAndValue<'a>, BadKeyLength> {
        let total = keys.iter().map(|key| key.len()).sum();
        match keys.split_first() {
            Some((primary, _))
                if !primary.is_empty()
                    && keys.len() <= Self::MAX_KEYS
                    && total <= MAX_KEY_BYTES =>
            {
                Ok(KeysAndValue {
                    form: Form::Apart(keys),
                    primary_key: primary,
                    value,
                })
            }
            _ => Err(BadKeyLength(total)),
        }
    }

    /// An object with one key.
    pub fn single(key: &'a [u8], value: &'a [u8]) -> Result<KeysAndValue<'a>, BadKeyLength> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(BadKeyLength(key.len()));
        }
        Ok(KeysAndValue {
            form: Form::Single,
            primary_key: key,
            value,
        })
    }

    /// Reads an object; all of `bytes` belongs to it. Anything that does not add up is [`Status::RequestFormatError`].
    pub fn parse(bytes: &'a [u8]) -> Result<KeysAndValue<'a>, Status> {
        Self::split(bytes).ok_or(Status::RequestFormatError)
    }

    fn split(bytes: &'a [u8]) -> Option<KeysAndValue<'a>> {
        let (&count, rest) = bytes.split_first()?;
        let (lengths, rest) = rest.split_at_checked(2 * usize::from(count))?;
        let mut previous = 0;
        for length in lengths.as_chunks::<2>().0 {
            let length = u16::from_le_bytes(*length);
            if length < previous {
                return None;
            }
            previous = length;
        }
        let primary = u16::from_le_bytes(*lengths.first_chunk::<2>()?);
        if primary == 0 {
            return None;
        }
        let (keys, value) = rest.split_at_checked(usize::from(previous))?;
        Some(KeysAndValue {
            form: Form::Encoded(bytes),
            primary_key: &keys[..usize::from(primary)],
            value,
        })
    }

    /// The primary key and the value of an object that was checked when it was written. The fast way for a reader that
    /// trusts its memory; `None` if the lengths run past the end all the same.
    pub fn primary_and_value(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let count = usize::from(*bytes.first()?);
        let lengths = bytes.get(1..1 + 2 * count)?;
        let primary = usize::from(u16::from_le_bytes(*lengths.first_chunk::<2>()?));
        let total = usize::from(u16::from_le_bytes(*lengths.last_chunk::<2>()?));
        let keys_start = 1 + 2 * count;
        Some((
            bytes.get(keys_start..keys_start + primary)?,
            bytes.get(keys_start + total..)?,
        ))
    }

    pub fn primary_key(&self) -> &'a [u8] {
        self.primary_key
    }

    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    pub fn key_count(&self) -> usize {
        match self.form {
            Form::Encoded(bytes) => usize::from(bytes[0]),
            Form::Single => 1,
            Form::Apart(keys) => keys.len(),
        }
    }

    /// All keys, primary first; a missing secondary key is empty.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (lengths, keys): (&'a [u8], &'a [u8]) = match self.form {
            Form::Encoded(bytes) => bytes[1..].split_at(2 * usize::from(bytes[0])),
            Form::Single | Form::Apart(_) => (&[], &[]),
        };
        let single = matches!(self.form, Form::Single).then_some(self.primary_key);
        let apart: &'a [&'a [u8]] = match self.form {
            Form::Apart(keys) => keys,
            _ => &[],
        };
        let mut start = 0;
        let encoded = lengths.as_chunks::<2>().0.iter().map(move |end| {
            let end = usize::from(u16::from_le_bytes(*end));
            let key = &keys[start..end];
            start = end;
            key
        });
        single
            .into_iter()
            .chain(apart.iter().copied())
            .chain(encoded)
    }

    /// Bytes on the wire.
    pub fn encoded_bytes(&self) -> usize {
        match self.form {
            Form::Encoded(bytes) => bytes.len(),
            Form::Single => {
                Self::SINGLE_KEY_HEADER_BYTES + self.primary_key.len() + self.value.len()
            }
            Form::Apart(keys) => {
                let key_bytes: usize = keys.iter().map(|key| key.len()).sum();
                1 + 2 * keys.len() + key_bytes + self.value.len()
            }
        }
    }

    /// # Panics
    /// If the object has 4 GiB or more.
    pub(crate) fn length_u32(&self) -> u32 {
        u32::try_from(self.encoded_bytes()).expect("longer than any RPC")
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Encoded(bytes) => out.extend_from_slice(bytes),
            Form::Single => {
                out.extend_from_slice(&self.single_key_header());
                out.extend_from_slice(self.primary_key);
                out.extend_from_slice(self.value);
            }
            Form::Apart(keys) => {
                out.push(keys.len() as u8);
                out.extend(cumulative_lengths(keys).flatten());
                keys.iter().for_each(|key| out.extend_from_slice(key));
                out.extend_from_slice(self.value);
            }
        }
    }

    /// Writes the object into `out`, which has exactly [`Self::encoded_bytes`].
    pub fn write_to(&self, out: &mut [u8]) {
        match self.form {
            Form::Encoded(bytes) => out.copy_from_slice(bytes),
            Form::Single => {
                let (header, rest) = out.split_at_mut(Self::SINGLE_KEY_HEADER_BYTES);
                let (key, value) = rest.split_at_mut(self.primary_key.len());
                header.copy_from_slice(&self.single_key_header());
                key.copy_from_slice(self.primary_key);
                value.copy_from_slice(self.value);
            }
            Form::Apart(keys) => {
                let (count, rest) = out.split_at_mut(1);
                count[0] = keys.len() as u8;
                let (lengths, mut rest) = rest.split_at_mut(2 * keys.len());
                for (place, length) in lengths
                    .as_chunks_mut()
                    .0
                    .iter_mut()
                    .zip(cumulative_lengths(keys))
                {
                    *place = length;
                }
                for key in keys {
                    let (place, behind) = rest.split_at_mut(key.len());
                    place.copy_from_slice(key);
                    rest = behind;
                }
                rest.copy_from_slice(self.value);
            }
        }
    }

    fn single_key_header(&self) -> [u8; 3] {
        // `single` holds the key to 65535 bytes.
        let [low, high] = (self.primary_key.len() as u16).to_le_bytes();
        [1, low, high]
    }
}

/// Where each key ends, as on the wire; `with_keys` holds their sum to 65535.
fn cumulative_lengths<'a>(keys: &'a [&'a [u8]]) -> impl Iterator<Item = [u8; 2]> + use<'a> {
    keys.iter().scan(0, |end, key| {
        *end += key.len();
        Some((*end as u16).to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_an_object_with_two_keys() {
        let bytes = b"\x02\x03\x00\x06\x00pk1seciv";
        let object = KeysAndValue::parse(bytes).unwrap();
        assert_eq!(object.primary_key(), b"pk1");
        assert_eq!(object.value(), b"iv");
        let keys: Vec<_> = object.keys().collect();
        assert_eq!(keys, [&b"pk1"[..], b"sec"]);
        assert_eq!(
            KeysAndValue::primary_and_value(bytes),
            Some((&b"pk1"[..], &b"iv"[..]))
        );
    }

    #[test]
    fn a_single_key_is_laid_out_as_on_the_wire() {
        let object = KeysAndValue::single(b"abc", b"hello").unwrap();
        let mut bytes = Vec::new();
        object.encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x03\x00abchello");
        assert_eq!(KeysAndValue::parse(&bytes), Ok(object));
        let mut copy = vec![0; object.encoded_bytes()];
        object.write_to(&mut copy);
        assert_eq!(copy, bytes);
    }

    #[test]
    fn refuses_what_does_not_add_up() {
        let bad: &[&[u8]] = &[
            b"",
            b"\x00",
            b"\x00\x01\x00a",
            b"\x01\x00\x00",
            b"\x01\x02\x00a",
            b"\x02\x02\x00\x01\x00ab",
            b"\x02\x00\x00\x01\x00a",
            b"\xff\x01",
        ];
        for bytes in bad {
            assert_eq!(
                KeysAndValue::parse(bytes),
                Err(Status::RequestFormatError),
                "{bytes:?}"
            );
        }
        assert_eq!(KeysAndValue::single(b"", b"v"), Err(BadKeyLength(0)));
        assert_eq!(KeysAndValue::with_keys(&[], b"v"), Err(BadKeyLength(0)));
        assert_eq!(
            KeysAndValue::with_keys(&[&b""[..], b"a"], b"v"),
            Err(BadKeyLength(1))
        );
        assert_eq!(
            KeysAndValue::with_keys(&[&b"a"[..]; 256], b"v"),
            Err(BadKeyLength(256))
        );
        let long = vec![0; MAX_KEY_BYTES + 1];
        assert_eq!(
            KeysAndValue::with_keys(&[&b"a"[..], &long[..MAX_KEY_BYTES]], b""),
            Err(BadKeyLength(MAX_KEY_BYTES + 1))
        );
        assert_eq!(
            KeysAndValue::single(&long, b""),
            Err(BadKeyLength(MAX_KEY_BYTES + 1))
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_every_byte(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(object) = KeysAndValue::parse(&bytes) {
                let keys: usize = object.keys().map(<[u8]>::len).sum();
                prop_assert_eq!(object.keys().count(), object.key_count());
                prop_assert_eq!(1 + 2 * object.key_count() + keys + object.value().len(), bytes.len());
                prop_assert_eq!(
                    KeysAndValue::primary_and_value(&bytes),
                    Some((object.primary_key(), object.value()))
                );
            }
            let _ = KeysAndValue::primary_and_value(&bytes);
        }

        #[test]
        fn several_keys_round_trip(
            primary in proptest::collection::vec(any::<u8>(), 1..30),
            others in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..6),
            value in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let keys: Vec<&[u8]> = std::iter::once(&primary).chain(&others).map(Vec::as_slice).collect();
            let object = KeysAndValue::with_keys(&keys, &value).unwrap();
            let mut bytes = Vec::new();
            object.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), object.encoded_bytes());
            let mut copy = vec![0; bytes.len()];
            object.write_to(&mut copy);
            prop_assert_eq!(&copy, &bytes);
            let parsed = KeysAndValue::parse(&bytes).unwrap();
            prop_assert_eq!(parsed, object);
            prop_assert_eq!(parsed.keys().collect::<Vec<_>>(), keys);
            prop_assert_eq!(parsed.value(), &value[..]);
        }

        #[test]
        fn single_keys_round_trip(
            key in proptest::collection::vec(any::<u8>(), 1..300),
            value in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let object = KeysAndValue::single(&key, &value).unwrap();
            let mut bytes = Vec::new();
            object.encode(&mut bytes);
            let parsed = KeysAndValue::parse(&bytes).unwrap();
            prop_assert_eq!(parsed, object);
            prop_assert_eq!(parsed.primary_key(), &key[..]);
            prop_assert_eq!(parsed.value(), &value[..]);
        }
    }
}
