//! Requests to a backup, as far as it matters what was asked.

use core::fmt;

/// A request to a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Append {
        segment_id: u64,
        offset: u32,
        end: u32,
        closes: bool,
        /// Of the segment up to `end`.
        crc: u32,
        /// Nobody waits for it.
        in_background: bool,
    },
    KeepAlive,
    Free {
        segment_id: u64,
    },
    List,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Append {
                segment_id,
                offset,
                end,
                ..
            } => write!(f, "bytes {offset} to {end} of segment {segment_id}"),
            Request::Free { segment_id } => write!(f, "the end of segment {segment_id}"),
            Request::KeepAlive => f.write_str("a keep-alive"),
            Request::List => f.write_str("a question for what it holds"),
        }
    }
}

impl Request {
    /// Of data: all, and what of it nobody waits for.
    pub(crate) fn bytes(&self) -> Option<(u32, u32)> {
        match *self {
            Request::Append {
                offset,
                end,
                in_background,
                ..
            } => {
                assert!(offset <= end, "data of less than no bytes");
                Some((end - offset, if in_background { end - offset } else { 0 }))
            }
            Request::KeepAlive | Request::Free { .. } | Request::List => None,
        }
    }
}
