//! What is written down of an operation.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

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
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Nanoseconds of CLOCK_BOOTTIME.
    pub call: u64,
    /// The same; 0 while it is under way.
    #[serde(rename = "return")]
    pub returned: u64,
}

/// What came of an operation.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// `done`, `absent`, `exists`, `changed` (the version is not `given`), `unknown`, or the text of an error.
    #[serde(rename = "outcome")]
    pub text: String,
    /// The value that was read, or that an increment made.
    pub value: i64,
    /// The version that was read, written, removed, or in the way; 0 if none.
    pub version: u64,
}

impl Outcome {
    pub fn unknown() -> Outcome {
        Outcome {
            text: "unknown".to_owned(),
            value: 0,
            version: 0,
        }
    }

    pub fn done(value: i64, version: u64) -> Outcome {
        Outcome {
            text: "done".to_owned(),
            value,
            version,
        }
    }

    pub fn failed(error: &Error) -> Outcome {
        let (text, version) = match error {
            Error::Timeout { .. } | Error::Closed => return Outcome::unknown(),
            Error::Refused { status, version } => match status {
                Status::ObjectDoesntExist => ("absent".to_owned(), *version),
                Status::ObjectExists => ("exists".to_owned(), *version),
                Status::WrongVersion => ("changed".to_owned(), *version),
                _ => (error.to_string(), *version),
            },
            _ => (error.to_string(), 0),
        };
        Outcome {
            text,
            value: 0,
            version,
        }
    }
}

/// Where lines go: standard output, or a file that outlives the process.
pub struct History {
    to: Mutex<Box<dyn Write + Send>>,
    /// Whether an operation also has a line when it begins.
    says_begin: bool,
}

impl History {
    pub fn on_stdout() -> History {
        History {
            to: Mutex::new(Box::new(std::io::stdout())),
            says_begin: false,
        }
    }

    /// A new file in the folder, named after the host and the time. Whoever reads it cannot tell whether the process lives: so what is under
    /// way is in it as well.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn in_folder(folder: &Path) -> Result<History, String> {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "recorder".to_owned());
        let path = folder.join(format!("{host}-{}.jsonl", net::now().0));
        let file = File::create_new(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(History {
            to: Mutex::new(Box::new(file)),
            says_begin: true,
        })
    }

    /// Notes that an operation begins, where that is wanted: until a second line says what came of it, that is not known.
    ///
    /// # Errors
    /// As [`History::emit`].
    pub fn begin(&self, record: &Record) -> Result<(), String> {
        if self.says_begin {
            self.emit(record)
        } else {
            Ok(())
        }
    }

    /// Writes a line, with one call and at once: who reads it waits for things to happen.
    ///
    /// # Errors
    /// Nobody reads it any more, or the disk is full.
    pub fn emit(&self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_vec(line).map_err(|error| error.to_string())?;
        text.push(b'\n');
        let mut to = self
            .to
            .lock()
            .map_err(|_| "a client has panicked".to_owned())?;
        to.write_all(&text)
            .and_then(|()| to.flush())
            .map_err(|error| format!("cannot write the history: {error}"))
    }
}
