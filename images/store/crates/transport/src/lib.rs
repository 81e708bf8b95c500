//! What rcbox speaks, without any socket: first of all the framing of two byte streams.
//!
//! * [`rpc`]: RAMCloud's client protocol over TCP: a 12-byte header (nonce, length) before every payload.
//! * [`member`]: the member protocol: a preface, then length-prefixed messages.
//!
//! [`session`] keeps a session of the member protocol over several connections, one after the other. [`paths`] says which way to take to whom, of several; [`datagram`] is what a driver of datagrams offers; the protocol on top of them is the crate `fast`.
//!
//! Readers are incremental and bounded: the driver receives straight into [`StreamReader::space`], tells how much came
//! with [`StreamReader::received`], and takes complete frames out with [`StreamReader::next_frame`]; a payload is
//! borrowed from the receive buffer, never copied out of it. Memory grows with bytes that have arrived, not with what a
//! peer announces.

#![forbid(unsafe_code)]

mod buffer;
pub mod datagram;
mod loan;
pub mod member;
mod outbound;
pub mod paths;
pub mod rpc;
pub mod session;

pub use buffer::{BASE_BYTES, ReceiveBuffer, SendBuffer};
pub use loan::{Lender, Loan};
pub use outbound::{LONG_BYTES, Next, Outbound, PASS_BYTES};

use core::fmt;

/// One complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The client's number for the request; 0 on a member stream.
    pub nonce: u64,
    pub payload: &'a [u8],
    /// Length that the sender announced; larger than `payload.len()` when the frame was over-long and cut.
    pub announced_bytes: usize,
}

/// Why a stream cannot go on. Nothing after it can be understood, so the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The stream does not start with the member protocol's magic: the peer is something else.
    NotAMember,
    /// The peer speaks a format version that this build does not read.
    Version(u16),
    /// A frame longer than it may be at this point of the stream.
    TooLong { bytes: usize, longest: usize },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::NotAMember => f.write_str(
                "the peer does not speak the member protocol (a server's coordinator locator must name the client port, \
                 or give memberPort=)",
            ),
            StreamError::Version(version) => {
                write!(
                    f,
                    "the peer speaks version {version} of the member protocol, this build speaks {}: run builds that are \
                     at most one version apart",
                    wire::member::FORMAT_VERSION
                )
            }
            StreamError::TooLong { bytes, longest } => {
                write!(f, "a frame of {bytes} bytes, the longest is {longest}")
            }
        }
    }
}

impl std::error::Error for StreamError {}

/// Takes the frames of one direction of one stream apart.
pub trait StreamReader {
    /// Where to receive next; never empty.
    fn space(&mut self) -> &mut [u8];
    /// The first `bytes` of [`StreamReader::space`] have been filled.
    fn received(&mut self, bytes: usize);
    /// The next complete frame, if there is one. After an error the reader must be dropped.
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, StreamError>;
    /// Memory held.
    fn capacity(&self) -> usize;
    /// Length of the message whose header is at the front, header included, as far as it is kept; 0 if there is no header yet.
    fn announced_bytes(&self) -> usize;
    /// Bytes of messages that are not complete, or were not asked for yet.
    fn held_bytes(&self) -> usize;

    /// Gives memory back that what is held does not need: for when memory is short.
    fn give_back(&mut self);
}
