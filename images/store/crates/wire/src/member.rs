//! The member protocol: what coordinator and shards say to each other, over one TCP connection per shard that the shard
//! opens to the coordinator's member listener.
//!
//! A stream starts, in both directions, with the [`PREFACE`] (8 bytes of magic and a format version); then come frames:
//! a `u32` little-endian length (at most [`MAX_FRAME_BYTES`]) and a protobuf message, [`ToCoordinator`] one way and
//! [`ToShard`] the other. The first message of a shard is [`Hello`], of at most [`MAX_HELLO_FRAME_BYTES`]; the coordinator answers [`Welcome`] or [`Refused`],
//! and before that [`message@Ping`] if the shard's process would take the place of another: a Hello may have been long on
//! its way and its sender dead, a [`Pong`] shows that it is not.
//!
//! A session outlives its connections: messages have [`Numbers`], and those that the other side has not heard are sent once more on the next
//! connection. docs/coordinator.md, "Sessions".
//!
//! Messages change by optional additions only; a message of a kind that the receiver does not know ends the connection.

mod backups;
mod checkpoint;
pub mod coordinator;
mod cost;
mod migration;
mod ports;
mod recovery;
mod session;
mod settings;
pub mod shard;
mod tablets;

use prost::Message;

pub use backups::*;
pub use checkpoint::*;
pub use cost::*;
pub use migration::*;
pub use ports::*;
pub use recovery::*;
pub use session::*;
pub use settings::*;
pub use tablets::*;

/// Magic and format version, little-endian, that open a member stream.
pub const MAGIC: [u8; 6] = *b"rcbmem";
/// The format that this build writes; it reads this one and the one before.
pub const FORMAT_VERSION: u16 = 1;
/// Length of the preface: magic and version.
pub const PREFACE_BYTES: usize = 8;
/// Longest frame that either side accepts, length field not counted.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

#[derive(Clone, PartialEq, Message)]
pub struct ToCoordinator {
    #[prost(
        oneof = "shard::Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19"
    )]
    pub kind: Option<shard::Kind>,
    /// Older builds send none.
    #[prost(message, optional, tag = "61")]
    pub numbers: Option<Numbers>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ToShard {
    #[prost(
        oneof = "coordinator::Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 30, 31, 32"
    )]
    pub kind: Option<coordinator::Kind>,
    /// What was noted when the message left, which may come of it: a shard that obeys knows of that state, and can tell whoever leads with an older one. A
    /// ping has its own, and a welcome one of before; older builds send none.
    #[prost(message, optional, tag = "60")]
    pub position: Option<Position>,
    /// Older builds send none.
    #[prost(message, optional, tag = "61")]
    pub numbers: Option<Numbers>,
}

impl From<shard::Kind> for ToCoordinator {
    /// Yet without a number.
    fn from(kind: shard::Kind) -> ToCoordinator {
        ToCoordinator {
            kind: Some(kind),
            numbers: None,
        }
    }
}

impl From<coordinator::Kind> for ToShard {
    /// Yet without a position, and without a number.
    fn from(kind: coordinator::Kind) -> ToShard {
        ToShard {
            kind: Some(kind),
            position: None,
            numbers: None,
        }
    }
}

impl ToShard {
    /// Whether it may come of what is noted, and does not say of what by itself.
    pub fn wants_position(&self) -> bool {
        use coordinator::Kind;
        !matches!(
            self.kind,
            None | Some(Kind::Ping(_) | Kind::Refused(_) | Kind::ReadCheckpoint(_))
        )
    }
}
