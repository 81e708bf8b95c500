//! What can go wrong, with what to do about it.

use std::fmt;
use std::io;
use std::time::Duration;

use wire::locator::LocatorError;
use wire::status::Status;

/// Why an operation failed.
#[derive(Debug)]
pub enum Error {
    /// The locator of the coordinator cannot be used.
    Locator(LocatorError),
    /// The store refused. `version` is the object's present version where it is known, else 0.
    Refused { status: Status, version: u64 },
    /// Not over in time. It may have taken effect all the same.
    Timeout {
        after: Duration,
        coordinator: String,
        /// The last thing that went wrong on the way.
        problem: Option<String>,
    },
    /// No connection to the server that was named; says why, where that is known.
    Unreachable(Option<String>),
    /// As many operations are under way as may be: wait for some of them.
    TooManyOperations,
    /// The client was closed while the operation was under way. It may have taken effect all the same.
    Closed,
    /// It cannot be sent; says why.
    Invalid(&'static str),
    /// The operating system refuses something to the client.
    Io(io::Error),
}

impl Error {
    /// Whether the object (or the table) is not there.
    pub fn is_absent(&self) -> bool {
        matches!(
            self.status(),
            Some(Status::ObjectDoesntExist | Status::TableDoesntExist)
        )
    }

    /// The store's answer, if it answered.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// What to do about a status, where there is something.
fn advice(status: Status) -> &'static str {
    match status {
        Status::TableDoesntExist => ": create the table first",
        Status::NoTableSpace => ": the memory of a server is full; remove objects or add servers",
        Status::ExpiredLease => ": this client was silent for too long; make a new Cluster",
        Status::UnimplementedRequest => ": this version of the store does not serve it",
        Status::RequestTooLarge => ": a value has at most 1 MiB, a key at most 65535 bytes",
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Locator(error) => error.fmt(f),
            Error::Refused { status, version: 0 } => write!(f, "{status}{}", advice(*status)),
            Error::Refused { status, version } => {
                write!(
                    f,
                    "{status}{} (the object's version is {version})",
                    advice(*status)
                )
            }
            Error::Timeout {
                after,
                coordinator,
                problem,
            } => {
                write!(
                    f,
                    "no answer within {after:?} from the store at {coordinator}"
                )?;
                match problem {
                    Some(problem) => write!(f, "; last problem: {problem}"),
                    None => f.write_str(
                        ": it was reached and asked to try again (are servers up? see `rcbox status`), or its answer is on \
                         the way and the operation takes effect all the same",
                    ),
                }
            }
            Error::Unreachable(None) => f.write_str("no connection to that server; is it up?"),
            Error::Unreachable(Some(problem)) => {
                write!(f, "no connection to that server; is it up? {problem}")
            }
            Error::TooManyOperations => {
                f.write_str("too many operations under way; wait for some to complete")
            }
            Error::Closed => f.write_str(
                "the client was closed while the operation was under way; it may have taken effect all the same",
            ),
            Error::Invalid(why) => f.write_str(why),
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<LocatorError> for Error {
    fn from(error: LocatorError) -> Error {
        Error::Locator(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl From<client_core::Error> for Error {
    fn from(error: client_core::Error) -> Error {
        match error {
            client_core::Error::Refused { status, version } => Error::Refused { status, version },
            client_core::Error::Unreachable => Error::Unreachable(None),
            client_core::Error::TooManyOperations => Error::TooManyOperations,
            // Where it is known what was waited for, the text is another.
            client_core::Error::Deadline => Error::Invalid("the operation was given up"),
            client_core::Error::Invalid(why) => Error::Invalid(why),
        }
    }
}
