//! Names of things on the wire.

use core::fmt;

/// One incarnation of one shard: `generation << 32 | index`. Never reused; index 0 is never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

impl ServerId {
    /// "No server": not checked when it stands in a request.
    pub const INVALID: ServerId = ServerId(0xFFFF_FFFF_0000_0000);

    pub fn new(index: u32, generation: u32) -> ServerId {
        ServerId(u64::from(generation) << 32 | u64::from(index))
    }
    pub fn index(self) -> u32 {
        self.0 as u32
    }
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
    pub fn is_valid(self) -> bool {
        self != ServerId::INVALID
    }
}

/// `index.generation`, as RAMCloud prints it.
impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_valid() {
            write!(f, "{}.{}", self.index(), self.generation())
        } else {
            f.write_str("invalid")
        }
    }
}

/// `cluster tag << 32 | n`, n counting up from 1. Only the low half seeds the key hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Which client request a reply answers. `connection` is the driver's number for a connection and never reused;
/// `nonce` is the client's number for the request on that connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo {
    pub connection: u64,
    pub nonce: u64,
}
