//! What a function answers.

use std::ffi::{CStr, c_char};

use client::{Error, Status as Wire};

/// What came of a call. Numbers and names from 0 on are RAMCloud's, and what the store answered; those below 0 are this library's.
/// Later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(non_camel_case_types, clippy::upper_case_acronyms)]
pub enum Status {
    /// It worked.
    RCBOX_OK = 0,
    RCBOX_UNKNOWN_TABLET = 1,
    /// There is no such table.
    RCBOX_TABLE_DOESNT_EXIST = 2,
    /// There is no such object.
    RCBOX_OBJECT_DOESNT_EXIST = 3,
    /// A rule wanted that there is none; the version that is there is told.
    RCBOX_OBJECT_EXISTS = 4,
    /// A rule wanted another version; the one that is there is told.
    RCBOX_WRONG_VERSION = 5,
    /// A server's memory is full: remove objects or add servers.
    RCBOX_NO_TABLE_SPACE = 6,
    RCBOX_MESSAGE_TOO_SHORT = 7,
    /// This version of the store does not serve it.
    RCBOX_UNIMPLEMENTED_REQUEST = 8,
    RCBOX_REQUEST_FORMAT_ERROR = 9,
    RCBOX_RESPONSE_FORMAT_ERROR = 10,
    RCBOX_COULDNT_CONNECT = 11,
    RCBOX_BACKUP_BAD_SEGMENT_ID = 12,
    RCBOX_BACKUP_OPEN_REJECTED = 13,
    RCBOX_BACKUP_SEGMENT_OVERFLOW = 14,
    RCBOX_BACKUP_MALFORMED_SEGMENT = 15,
    RCBOX_SEGMENT_RECOVERY_FAILED = 16,
    RCBOX_RETRY = 17,
    RCBOX_SERVICE_NOT_AVAILABLE = 18,
    RCBOX_TIMEOUT = 19,
    RCBOX_SERVER_NOT_UP = 20,
    RCBOX_INTERNAL_ERROR = 21,
    /// What was to be incremented has not 8 bytes.
    RCBOX_INVALID_OBJECT = 22,
    RCBOX_TABLET_DOESNT_EXIST = 23,
    RCBOX_PARTITION_BEFORE_READ = 24,
    RCBOX_WRONG_SERVER = 25,
    RCBOX_CALLER_NOT_IN_CLUSTER = 26,
    /// A value has at most 1 MiB, a key at most 65535 bytes.
    RCBOX_REQUEST_TOO_LARGE = 27,
    RCBOX_UNKNOWN_INDEXLET = 28,
    RCBOX_INDEX_DOESNT_EXIST = 29,
    RCBOX_INVALID_PARAMETER = 30,
    RCBOX_STALE_RPC = 31,
    /// This client was silent for too long: make a new one.
    RCBOX_EXPIRED_LEASE = 32,
    RCBOX_TX_OP_AFTER_COMMIT = 33,
    /// No answer in time (rcbox_options.timeout_us). The operation may have taken effect all the same.
    RCBOX_ERR_TIMEOUT = -1,
    /// No connection to a server that was named.
    RCBOX_ERR_UNREACHABLE = -2,
    /// 4096 operations are under way or not asked for: wait for some.
    RCBOX_ERR_TOO_MANY = -3,
    /// The client went while the operation was under way, which may have taken effect all the same.
    RCBOX_ERR_CLOSED = -4,
    /// Something that was handed in cannot be; rcbox_error() says what.
    RCBOX_ERR_ARGUMENT = -5,
    /// The operating system refuses something.
    RCBOX_ERR_IO = -6,
    /// The value is longer than the buffer; how long, is told.
    RCBOX_ERR_BUFFER = -7,
    /// It is not over yet.
    RCBOX_ERR_PENDING = -8,
    /// There is no such operation under way: it was waited for or cancelled.
    RCBOX_ERR_NO_OPERATION = -9,
    /// Another thread uses this client: make one for each thread.
    RCBOX_ERR_BUSY = -10,
    /// The client was made by the parent process: make a new one after fork().
    RCBOX_ERR_FORKED = -11,
    /// A mistake in the library; the client only answers this from now on. Please report it.
    RCBOX_ERR_INTERNAL = -12,
    /// No more objects: the scan has come to its end.
    RCBOX_ERR_END = -13,
}

/// Why a call failed: what it answers, and the text for [`crate::rcbox_error`].
pub(crate) struct Failure {
    pub status: Status,
    pub text: String,
    /// The version that is there, where the store told it.
    pub version: u64,
}

impl Failure {
    pub fn new(status: Status, text: impl Into<String>) -> Failure {
        let (text, version) = (text.into(), 0);
        Failure {
            status,
            text,
            version,
        }
    }

    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Status::RCBOX_ERR_ARGUMENT, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let version = match error {
            Error::Refused { version, .. } => version,
            _ => 0,
        };
        let (status, text) = (Status::from(&error), error.to_string());
        Failure {
            status,
            text,
            version,
        }
    }
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Status {
        match error {
            Error::Refused { status, .. } => Status::from(*status),
            Error::Timeout { .. } => Status::RCBOX_ERR_TIMEOUT,
            Error::Unreachable(_) => Status::RCBOX_ERR_UNREACHABLE,
            Error::TooManyOperations => Status::RCBOX_ERR_TOO_MANY,
            Error::Closed => Status::RCBOX_ERR_CLOSED,
            Error::Locator(_) | Error::Invalid(_) => Status::RCBOX_ERR_ARGUMENT,
            Error::Io(_) => Status::RCBOX_ERR_IO,
        }
    }
}

impl From<Wire> for Status {
    fn from(status: Wire) -> Status {
        NAMES
            .get(u32::from(status) as usize)
            .map_or(Status::RCBOX_INTERNAL_ERROR, |(status, _)| *status)
    }
}

/// The name of a status, such as "OBJECT_DOESNT_EXIST" or "ERR_TIMEOUT"; "UNKNOWN" for a number that is none. Belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn rcbox_status_name(status: i32) -> *const c_char {
    NAMES
        .iter()
        .find(|(one, _)| *one as i32 == status)
        .map_or(c"UNKNOWN", |(_, name)| name)
        .as_ptr()
}

/// Those of the store by their number, then this library's.
const NAMES: &[(Status, &CStr)] = &[
    (Status::RCBOX_OK, c"OK"),
    (Status::RCBOX_UNKNOWN_TABLET, c"UNKNOWN_TABLET"),
    (Status::RCBOX_TABLE_DOESNT_EXIST, c"TABLE_DOESNT_EXIST"),
    (Status::RCBOX_OBJECT_DOESNT_EXIST, c"OBJECT_DOESNT_EXIST"),
    (Status::RCBOX_OBJECT_EXISTS, c"OBJECT_EXISTS"),
    (Status::RCBOX_WRONG_VERSION, c"WRONG_VERSION"),
    (Status::RCBOX_NO_TABLE_SPACE, c"NO_TABLE_SPACE"),
    (Status::RCBOX_MESSAGE_TOO_SHORT, c"MESSAGE_TOO_SHORT"),
    (
        Status::RCBOX_UNIMPLEMENTED_REQUEST,
        c"UNIMPLEMENTED_REQUEST",
    ),
    (Status::RCBOX_REQUEST_FORMAT_ERROR, c"REQUEST_FORMAT_ERROR"),
    (
        Status::RCBOX_RESPONSE_FORMAT_ERROR,
        c"RESPONSE_FORMAT_ERROR",
    ),
    (Status::RCBOX_COULDNT_CONNECT, c"COULDNT_CONNECT"),
    (
        Status::RCBOX_BACKUP_BAD_SEGMENT_ID,
        c"BACKUP_BAD_SEGMENT_ID",
    ),
    (Status::RCBOX_BACKUP_OPEN_REJECTED, c"BACKUP_OPEN_REJECTED"),
    (
        Status::RCBOX_BACKUP_SEGMENT_OVERFLOW,
        c"BACKUP_SEGMENT_OVERFLOW",
    ),
    (
        Status::RCBOX_BACKUP_MALFORMED_SEGMENT,
        c"BACKUP_MALFORMED_SEGMENT",
    ),
    (
        Status::RCBOX_SEGMENT_RECOVERY_FAILED,
        c"SEGMENT_RECOVERY_FAILED",
    ),
    (Status::RCBOX_RETRY, c"RETRY"),
    (
        Status::RCBOX_SERVICE_NOT_AVAILABLE,
        c"SERVICE_NOT_AVAILABLE",
    ),
    (Status::RCBOX_TIMEOUT, c"TIMEOUT"),
    (Status::RCBOX_SERVER_NOT_UP, c"SERVER_NOT_UP"),
    (Status::RCBOX_INTERNAL_ERROR, c"INTERNAL_ERROR"),
    (Status::RCBOX_INVALID_OBJECT, c"INVALID_OBJECT"),
    (Status::RCBOX_TABLET_DOESNT_EXIST, c"TABLET_DOESNT_EXIST"),
    (
        Status::RCBOX_PARTITION_BEFORE_READ,
        c"PARTITION_BEFORE_READ",
    ),
    (Status::RCBOX_WRONG_SERVER, c"WRONG_SERVER"),
    (
        Status::RCBOX_CALLER_NOT_IN_CLUSTER,
        c"CALLER_NOT_IN_CLUSTER",
    ),
    (Status::RCBOX_REQUEST_TOO_LARGE, c"REQUEST_TOO_LARGE"),
    (Status::RCBOX_UNKNOWN_INDEXLET, c"UNKNOWN_INDEXLET"),
    (Status::RCBOX_INDEX_DOESNT_EXIST, c"INDEX_DOESNT_EXIST"),
    (Status::RCBOX_INVALID_PARAMETER, c"INVALID_PARAMETER"),
    (Status::RCBOX_STALE_RPC, c"STALE_RPC"),
    (Status::RCBOX_EXPIRED_LEASE, c"EXPIRED_LEASE"),
    (Status::RCBOX_TX_OP_AFTER_COMMIT, c"TX_OP_AFTER_COMMIT"),
    (Status::RCBOX_ERR_TIMEOUT, c"ERR_TIMEOUT"),
    (Status::RCBOX_ERR_UNREACHABLE, c"ERR_UNREACHABLE"),
    (Status::RCBOX_ERR_TOO_MANY, c"ERR_TOO_MANY"),
    (Status::RCBOX_ERR_CLOSED, c"ERR_CLOSED"),
    (Status::RCBOX_ERR_ARGUMENT, c"ERR_ARGUMENT"),
    (Status::RCBOX_ERR_IO, c"ERR_IO"),
    (Status::RCBOX_ERR_BUFFER, c"ERR_BUFFER"),
    (Status::RCBOX_ERR_PENDING, c"ERR_PENDING"),
    (Status::RCBOX_ERR_NO_OPERATION, c"ERR_NO_OPERATION"),
    (Status::RCBOX_ERR_BUSY, c"ERR_BUSY"),
    (Status::RCBOX_ERR_FORKED, c"ERR_FORKED"),
    (Status::RCBOX_ERR_INTERNAL, c"ERR_INTERNAL"),
    (Status::RCBOX_ERR_END, c"ERR_END"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_store_has_its_number_and_name() {
        for &wire in Wire::ALL {
            let status = Status::from(wire);
            assert_eq!(status as u32, u32::from(wire));
            let (_, name) = NAMES[u32::from(wire) as usize];
            assert_eq!(name.to_str(), Ok(wire.name()));
        }
    }

    #[test]
    fn own_numbers_are_negative_and_named_once() {
        let own = &NAMES[Wire::ALL.len()..];
        for (at, (status, name)) in own.iter().enumerate() {
            assert_eq!(*status as i32, -1 - at as i32);
            assert!(name.to_bytes().starts_with(b"ERR_"));
        }
        // SAFETY: the names belong to the library and end with NUL.
        let of = |number| unsafe { CStr::from_ptr(rcbox_status_name(number)) };
        assert_eq!(of(-13), c"ERR_END");
        assert_eq!((of(-14), of(34)), (c"UNKNOWN", c"UNKNOWN"));
    }
}
