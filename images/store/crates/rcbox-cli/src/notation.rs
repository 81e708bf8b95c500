//! How keys and values are written on a command line and shown: both are bytes, and need not be text.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// How keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNotation {
    /// The bytes of the argument; shown with escapes.
    Text,
    /// Two hexadecimal digits for each byte.
    Hex,
    /// Text in which `\xHH`, `\n`, `\r`, `\t` and `\\` stand for bytes.
    Escaped,
}

impl KeyNotation {
    /// The key that is meant.
    pub fn read(self, argument: &OsStr) -> Result<Vec<u8>, NotationError> {
        match self {
            KeyNotation::Text => Ok(argument.as_bytes().to_vec()),
            KeyNotation::Hex => from_hex(argument),
            KeyNotation::Escaped => unescape(argument.as_bytes()),
        }
    }

    /// A key for people: always one line, and what `-e` (or `--hex`) reads back.
    pub fn show(self, key: &[u8]) -> String {
        match self {
            KeyNotation::Hex => to_hex(key),
            KeyNotation::Text | KeyNotation::Escaped => escape(key),
        }
    }

    /// Adds `name`, or `nameHex` for a key that is not text or if hexadecimal digits are wanted.
    pub fn put_json(self, object: &mut Map<String, Value>, name: &str, key: &[u8]) {
        match std::str::from_utf8(key) {
            Ok(text) if self != KeyNotation::Hex => object.insert(name.to_owned(), json!(text)),
            _ => object.insert(format!("{name}Hex"), json!(to_hex(key))),
        };
    }
}

/// Text that is not in the notation that was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotationError {
    #[error("'{0}' is not written in hexadecimal digits, two for each byte")]
    Hex(String),
    #[error("{0:?} is not a whole number of 64 bits")]
    Int(OsString),
    #[error("{0:?} is not a number")]
    Float(OsString),
    #[error(
        "in '{0}' a backslash is not followed by xHH (two hexadecimal digits), n, r, t or another backslash"
    )]
    Escape(String),
}

/// How values are written and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValueNotation {
    /// The bytes themselves; shown with escapes where lines have to be kept apart
    Text,
    /// Two hexadecimal digits for each byte
    Hex,
    /// An integer of 8 bytes, little-endian: a counter
    Int,
    /// A floating-point number of 8 bytes, IEEE 754: a counter, too
    Float,
}

impl ValueNotation {
    /// The value that is meant.
    pub fn read(self, argument: &OsStr) -> Result<Vec<u8>, NotationError> {
        let text = || argument.to_str().unwrap_or_default();
        match self {
            ValueNotation::Text => Ok(argument.as_bytes().to_vec()),
            ValueNotation::Hex => from_hex(argument),
            ValueNotation::Int => match text().parse::<i64>() {
                Ok(value) => Ok(value.to_le_bytes().to_vec()),
                Err(_) => Err(NotationError::Int(argument.to_owned())),
            },
            ValueNotation::Float => match text().parse::<f64>() {
                Ok(value) => Ok(value.to_le_bytes().to_vec()),
                Err(_) => Err(NotationError::Float(argument.to_owned())),
            },
        }
    }

    /// A value on one line. What is no counter (not 8 bytes) is shown as text.
    pub fn show(self, value: &[u8]) -> String {
        match (self, value.try_into()) {
            (ValueNotation::Hex, _) => to_hex(value),
            (ValueNotation::Int, Ok(bytes)) => i64::from_le_bytes(bytes).to_string(),
            (ValueNotation::Float, Ok(bytes)) => f64::from_le_bytes(bytes).to_string(),
            _ => escape(value),
        }
    }

    /// Adds `value` (a string, or a number if a counter is wanted), or `valueHex` for what is not text.
    pub fn put_json(self, object: &mut Map<String, Value>, value: &[u8]) {
        let shown = match (self, value.try_into(), std::str::from_utf8(value)) {
            (ValueNotation::Hex, ..) => None,
            (ValueNotation::Int, Ok(bytes), _) => Some(json!(i64::from_le_bytes(bytes))),
            (ValueNotation::Float, Ok(bytes), _) => Some(json!(f64::from_le_bytes(bytes))),
            (_, _, Ok(text)) => Some(json!(text)),
            _ => None,
        };
        match shown {
            Some(shown) => object.insert("value".to_owned(), shown),
            None => object.insert("valueHex".to_owned(), json!(to_hex(value))),
        };
    }
}

/// A value for a terminal: text as it is, over several lines if it has them, anything else with escapes.
pub fn for_terminal(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.chars().all(is_harmless) => text.to_owned(),
        _ => escape(value),
    }
}

fn is_harmless(char: char) -> bool {
    is_shown(char) || matches!(char, '\n' | '\t')
}

/// Whether a terminal shows a character as itself. It obeys controls; marks of direction, and characters without a width or that nobody has
/// assigned, let a text look like another one.
pub fn is_shown(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    // What follows a letter is escaped for debugging only if it cannot be printed; accents can.
    let mut after_letter = ['a', char].iter().collect::<String>();
    after_letter = after_letter.escape_debug().collect();
    after_letter.chars().nth(1) == Some(char)
}

/// Text of lines in which a terminal finds nothing to obey: what is meant for people, and has texts in it that come from others.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_harmless(char) {
            true => shown.push(char),
            false => escape_bytes(&mut shown, char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(shown)
}

/// JSON, in which what a terminal does not show is written as JSON's own escapes: for programs it says the same.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_harmless) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len());
    for char in json.chars() {
        match is_harmless(char) {
            true => shown.push(char),
            // In JSON such a character is a part of a string.
            false => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
        }
    }
    Cow::Owned(shown)
}

/// Text of one line that a terminal shows as it is: anything else is written `\xHH`.
pub fn escape(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => shown.push_str("\\\\"),
                '\n' => shown.push_str("\\n"),
                '\r' => shown.push_str("\\r"),
                '\t' => shown.push_str("\\t"),
                _ if is_shown(char) => shown.push(char),
                _ => escape_bytes(&mut shown, char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(&mut shown, chunk.invalid());
    }
    shown
}

fn escape_bytes(shown: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(shown, "\\x{byte:02x}");
    }
}

/// The opposite of [`escape`].
fn unescape(text: &[u8]) -> Result<Vec<u8>, NotationError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, length) = match rest {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'x', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return Err(bad_escape(text)),
            },
            _ => return Err(bad_escape(text)),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    Ok(bytes)
}

fn bad_escape(text: &[u8]) -> NotationError {
    NotationError::Escape(String::from_utf8_lossy(text).into_owned())
}

fn digit(byte: u8) -> Option<u8> {
    // A digit is less than 16.
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn from_hex(text: &OsStr) -> Result<Vec<u8>, NotationError> {
    let error = || NotationError::Hex(text.to_string_lossy().into_owned());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err(error());
    }
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect::<Option<_>>().ok_or_else(error)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_hex(text: &str) -> Result<Vec<u8>, NotationError> {
        KeyNotation::Hex.read(OsStr::new(text))
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(read_hex("00ffA0"), Ok(vec![0, 255, 160]));
        assert_eq!(KeyNotation::Hex.show(&[0, 255, 160]), "00ffa0");
        for text in ["0", "0g", "äö", "+1", "0x"] {
            assert_eq!(read_hex(text), Err(NotationError::Hex(text.to_owned())));
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &all[..],
            b"",
            b"\\x41",
            "caf\u{e9} e\u{301} \u{85}\u{202e}\u{200b}\u{2028}\n".as_bytes(),
            b"caf\xe9",
        ] {
            let shown = KeyNotation::Text.show(bytes);
            assert!(shown.chars().all(is_shown), "{shown}");
            assert_eq!(
                KeyNotation::Escaped.read(OsStr::new(&shown)).unwrap(),
                bytes
            );
        }
        assert_eq!(escape(b"caf\xe9\t\x1b"), "caf\\xe9\\t\\x1b");
        assert_eq!(escape("café".as_bytes()), "café");
        assert_eq!(escape("cafe\u{301} 東京".as_bytes()), "cafe\u{301} 東京");
        assert_eq!(
            escape("a\u{9b}\u{202e}b".as_bytes()),
            "a\\xc2\\x9b\\xe2\\x80\\xaeb"
        );
        for text in ["\\", "a\\q", "\\x4", "\\xg0"] {
            let error = NotationError::Escape(text.to_owned());
            assert_eq!(unescape(text.as_bytes()), Err(error));
        }
    }

    #[test]
    fn text_arguments_are_taken_as_they_are() {
        let argument = OsStr::from_bytes(b"\xff\\n");
        assert_eq!(KeyNotation::Text.read(argument).unwrap(), b"\xff\\n");
        assert_eq!(ValueNotation::Text.read(argument).unwrap(), b"\xff\\n");
    }

    #[test]
    fn counters() {
        let read = |notation: ValueNotation, text: &str| notation.read(OsStr::new(text));
        let minus_two = read(ValueNotation::Int, "-2").unwrap();
        assert_eq!(minus_two, (-2i64).to_le_bytes());
        assert_eq!(ValueNotation::Int.show(&minus_two), "-2");
        let half = read(ValueNotation::Float, "0.5").unwrap();
        assert_eq!(ValueNotation::Float.show(&half), "0.5");
        assert_eq!(ValueNotation::Int.show(b"seven b"), "seven b");
        assert!(read(ValueNotation::Int, "1.5").is_err());
        assert!(read(ValueNotation::Float, "many").is_err());
    }

    #[test]
    fn json_says_what_is_hexadecimal() {
        let of = |keys: KeyNotation, values: ValueNotation, key: &[u8], value: &[u8]| {
            let mut object = Map::new();
            keys.put_json(&mut object, "key", key);
            values.put_json(&mut object, value);
            Value::Object(object)
        };
        use KeyNotation::{Hex, Text};
        assert_eq!(
            of(Text, ValueNotation::Text, b"a", b"\xff"),
            json!({"key": "a", "valueHex": "ff"})
        );
        assert_eq!(
            of(Hex, ValueNotation::Hex, b"a", b"b"),
            json!({"keyHex": "61", "valueHex": "62"})
        );
        assert_eq!(
            of(Text, ValueNotation::Int, b"\xff", &[1, 0, 0, 0, 0, 0, 0, 0]),
            json!({"keyHex": "ff", "value": 1})
        );
    }

    #[test]
    fn terminals_get_no_control_characters() {
        assert_eq!(for_terminal(b"two\nlines\t\\"), "two\nlines\t\\");
        assert_eq!(for_terminal(b"\x1b[31m\n"), "\\x1b[31m\\n");
        assert_eq!(for_terminal(b"\xff\n"), "\\xff\\n");
        assert_eq!(for_terminal("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
        assert_eq!(plain("two\nlines\t\\"), "two\nlines\t\\");
        assert_eq!(
            plain("a\x1b[2J\u{9b}31m\r\x7f"),
            "a\\x1b[2J\\xc2\\x9b31m\\x0d\\x7f"
        );
    }

    #[test]
    fn json_means_the_same_without_what_a_terminal_obeys() {
        for text in [
            "a\"\\\n\x1b[2J",
            "\u{9b}31m\x7f\u{202e}",
            "caf\u{e9} \u{e0001}\u{10ffff}",
        ] {
            for written in [
                json!({ "name": text }).to_string(),
                format!("{:#}", json!([text])),
            ] {
                let shown = plain_json(&written);
                assert!(shown.chars().all(is_harmless), "{shown}");
                let read: fn(&str) -> Value = |json| serde_json::from_str(json).unwrap();
                assert_eq!(read(&shown), read(&written));
            }
        }
    }
}
