//! Why operations fail.

use core::fmt;

use wire::status::Status;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The store refused it. `version` is the object's present version where the answer tells it, else 0.
    Refused { status: Status, version: u64 },
    /// Its deadline passed. It may take effect all the same, or have done so.
    Deadline,
    /// The server that was named cannot be reached.
    Unreachable,
    /// [`crate::Config::max_operations`] are under way.
    TooManyOperations,
    /// It cannot be sent; says why.
    Invalid(&'static str),
}

impl Error {
    pub(crate) fn status(status: Status) -> Error {
        Error::Refused { status, version: 0 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { status, version: 0 } => write!(f, "refused: {status}"),
            Error::Refused { status, version } => {
                write!(f, "refused: {status} (the object's version is {version})")
            }
            Error::Deadline => f.write_str(
                "no answer before the deadline; the operation may take effect all the same",
            ),
            Error::Unreachable => f.write_str("no connection to that server"),
            Error::TooManyOperations => {
                f.write_str("too many operations under way; wait for some to complete")
            }
            Error::Invalid(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for Error {}
