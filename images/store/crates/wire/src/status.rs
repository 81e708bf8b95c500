//! Status codes: the first four bytes of every response.

use core::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// What became of a request. Numbers and names are RAMCloud's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Status {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Status {
            /// Every status, in order of its number.
            pub const ALL: &[Status] = &[$(Status::$variant,)*];

            /// The name on paper, such as `OBJECT_DOESNT_EXIST`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Status::$variant => $name,)*
                }
            }
        }
    };
}

statuses! {
    Ok = 0, "OK";
    /// The key's tablet is not here: look the table up again.
    UnknownTablet = 1, "UNKNOWN_TABLET";
    TableDoesntExist = 2, "TABLE_DOESNT_EXIST";
    ObjectDoesntExist = 3, "OBJECT_DOESNT_EXIST";
    ObjectExists = 4, "OBJECT_EXISTS";
    WrongVersion = 5, "WRONG_VERSION";
    /// The master's memory is full of live data.
    NoTableSpace = 6, "NO_TABLE_SPACE";
    MessageTooShort = 7, "MESSAGE_TOO_SHORT";
    UnimplementedRequest = 8, "UNIMPLEMENTED_REQUEST";
    RequestFormatError = 9, "REQUEST_FORMAT_ERROR";
    ResponseFormatError = 10, "RESPONSE_FORMAT_ERROR";
    CouldntConnect = 11, "COULDNT_CONNECT";
    BackupBadSegmentId = 12, "BACKUP_BAD_SEGMENT_ID";
    BackupOpenRejected = 13, "BACKUP_OPEN_REJECTED";
    BackupSegmentOverflow = 14, "BACKUP_SEGMENT_OVERFLOW";
    BackupMalformedSegment = 15, "BACKUP_MALFORMED_SEGMENT";
    SegmentRecoveryFailed = 16, "SEGMENT_RECOVERY_FAILED";
    /// Send the identical request again after a delay; see [`crate::rpc::RetryResponse`].
    Retry = 17, "RETRY";
    ServiceNotAvailable = 18, "SERVICE_NOT_AVAILABLE";
    Timeout = 19, "TIMEOUT";
    ServerNotUp = 20, "SERVER_NOT_UP";
    InternalError = 21, "INTERNAL_ERROR";
    InvalidObject = 22, "INVALID_OBJECT";
    TabletDoesntExist = 23, "TABLET_DOESNT_EXIST";
    PartitionBeforeRead = 24, "PARTITION_BEFORE_READ";
    WrongServer = 25, "WRONG_SERVER";
    CallerNotInCluster = 26, "CALLER_NOT_IN_CLUSTER";
    RequestTooLarge = 27, "REQUEST_TOO_LARGE";
    UnknownIndexlet = 28, "UNKNOWN_INDEXLET";
    IndexDoesntExist = 29, "INDEX_DOESNT_EXIST";
    InvalidParameter = 30, "INVALID_PARAMETER";
    /// The client said before that it is done with this RPC id.
    StaleRpc = 31, "STALE_RPC";
    ExpiredLease = 32, "EXPIRED_LEASE";
    TxOpAfterCommit = 33, "TX_OP_AFTER_COMMIT";
}

impl From<Status> for u32 {
    fn from(status: Status) -> u32 {
        status as u32
    }
}

/// A number that is no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownStatus(pub u32);

impl TryFrom<u32> for Status {
    type Error = UnknownStatus;

    fn try_from(number: u32) -> Result<Status, UnknownStatus> {
        Status::ALL
            .get(number as usize)
            .copied()
            .ok_or(UnknownStatus(number))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_round_trip() {
        assert_eq!(Status::ALL.len(), 34);
        for (number, &status) in (0u32..).zip(Status::ALL) {
            assert_eq!(u32::from(status), number);
            assert_eq!(Status::try_from(number), Ok(status));
        }
        assert_eq!(Status::try_from(34), Err(UnknownStatus(34)));
        assert_eq!(Status::try_from(u32::MAX), Err(UnknownStatus(u32::MAX)));
    }

    #[test]
    fn shows_the_protocols_name() {
        assert_eq!(Status::ObjectDoesntExist.to_string(), "OBJECT_DOESNT_EXIST");
        assert_eq!(Status::TxOpAfterCommit.to_string(), "TX_OP_AFTER_COMMIT");
    }
}
