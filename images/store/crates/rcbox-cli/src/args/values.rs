//! Values of arguments.

use std::time::Duration;

use base::ids::ServerId;

/// A text that is none of what is expected; the command line parser says which.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    #[error("give a number of seconds from 0.001 to 86400")]
    Seconds,
    #[error("give the id of a server as it is shown, such as 3.0")]
    ServerId,
    #[error("give a number of 64 bits, decimal or hexadecimal with 0x")]
    KeyHash,
}

pub fn seconds(text: &str) -> Result<Duration, ArgumentError> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(ArgumentError::Seconds),
    }
}

/// An id as it is shown, such as 3.1.
pub fn server_id(text: &str) -> Result<ServerId, ArgumentError> {
    let parts = text.split_once('.');
    let parsed = parts.and_then(|(index, generation)| {
        Some(ServerId::new(index.parse().ok()?, generation.parse().ok()?))
    });
    parsed.ok_or(ArgumentError::ServerId)
}

pub fn key_hash(text: &str) -> Result<u64, ArgumentError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| ArgumentError::KeyHash)
}
