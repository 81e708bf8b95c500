//! What is written down of an operation.

use std::io::Write;

use client::{Error, Status};
use serde::Serialize;

/// What a client does.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Read,
    /// Whatever is there.
    Write,
    /// Only if nothing is there.
    Create,
    /// Only if the version that is there is `given`.
    Replace,
    /// Adds `argument`.
    Increment,
    Remove,
}

/// One operation, a line.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    pub client: u32,
    pub kind: Kind,
    pub key: &'a str,
    /// What was written or added.
    pub argument: i64,
    /// The version that was asked for.
    pub given: u64,
    /// `done`, `absent`, `exists`, `changed` (the version is not `given`), `unknown`, or the text of an error.
    pub outcome: String,
    /// The value that was read, or that an increment made.
    pub value: i64,
    /// The version that was read, written, removed, or in the way; 0 if none.
    pub version: u64,
    /// Nanoseconds of CLOCK_BOOTTIME.
    pub call: u64,
    #[serde(rename = "return")]
    pub returned: u64,
}

/// What came of an operation.
pub struct Outcome {
    pub text: String,
    pub value: i64,
    pub version: u64,
}

impl Outcome {
    pub fn done(value: i64, version: u64) -> Outcome {
        Outcome {
            text: "done".to_owned(),
            value,
            version,
        }
    }

    pub fn failed(error: &Error) -> Outcome {
        let (text, version) = match error {
            Error::Refused { status, version } => match status {
                Status::ObjectDoesntExist => ("absent".to_owned(), *version),
                Status::ObjectExists => ("exists".to_owned(), *version),
                Status::WrongVersion => ("changed".to_owned(), *version),
                _ => (error.to_string(), *version),
            },
            Error::Timeout { .. } | Error::Closed => ("unknown".to_owned(), 0),
            _ => (error.to_string(), 0),
        };
        Outcome {
            text,
            value: 0,
            version,
        }
    }
}

/// Writes a line to standard output at once: who reads it waits for things to happen.
///
/// # Errors
/// Nobody reads it any more.
pub fn emit(line: &impl Serialize) -> Result<(), String> {
    let mut text = serde_json::to_vec(line).map_err(|error| error.to_string())?;
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&text)
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write the history: {error}"))
}
