//! Bounds of names, keys and values, looked at before anything is sent.

use wire::rpc::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::error::Error;

/// Names and texts that go to the coordinator.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

pub fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.contains(&0) {
        return Err(Error::Invalid("the name of a table has no NUL in it"));
    }
    if name.len() > MAX_TEXT_BYTES {
        return Err(Error::Invalid("the name of a table has at most 64 KiB"));
    }
    Ok(())
}

pub fn check_object(key: &[u8], value: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Error::Invalid("a key has 1 to 65535 bytes"));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(Error::Invalid("a value has at most 1 MiB"));
    }
    Ok(())
}
