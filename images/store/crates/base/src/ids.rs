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

/// `cluster tag << 32 | hash function << 31 | n`, n counting up from 1. Only the low half seeds the key hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl TableId {
    pub const MAX_NUMBER: u32 = (1 << Self::NUMBER_BITS) - 1;
    const NUMBER_BITS: u32 = 31;

    /// # Panics
    /// If the number is above [`Self::MAX_NUMBER`].
    pub fn new(cluster_tag: u32, function: HashFunction, number: u32) -> TableId {
        assert!(number <= Self::MAX_NUMBER);
        let low = (function as u32) << Self::NUMBER_BITS | number;
        TableId(u64::from(cluster_tag) << 32 | u64::from(low))
    }

    pub fn cluster_tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub fn number(self) -> u32 {
        self.0 as u32 & Self::MAX_NUMBER
    }

    /// How keys of the table are hashed. The id says it, so that masters, backups and clients agree without asking anybody.
    #[inline]
    pub fn hash_function(self) -> HashFunction {
        HashFunction::numbered(self.function_number()).unwrap_or(HashFunction::Murmur3)
    }

    /// Whether a store of this format can have such a table.
    pub fn is_of_format(self, format: u32) -> bool {
        let function = HashFunction::numbered(self.function_number());
        function.is_some_and(|function| function.is_of_format(format))
    }

    fn function_number(self) -> u32 {
        self.0 as u32 >> Self::NUMBER_BITS
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How a table's keys are hashed. RAMCloud's clients know the first one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HashFunction {
    Murmur3 = 0,
    /// Only tests have it, in the format that is yet to come: it finds whoever hashes keys without asking which function the table has.
    #[cfg(feature = "next-format")]
    Reversed = 1,
}

impl HashFunction {
    /// `None`: this build does not know it. No store that it can serve has such a table.
    #[inline]
    fn numbered(number: u32) -> Option<HashFunction> {
        match number {
            0 => Some(HashFunction::Murmur3),
            #[cfg(feature = "next-format")]
            1 => Some(HashFunction::Reversed),
            _ => None,
        }
    }

    fn is_of_format(self, #[allow(unused_variables)] format: u32) -> bool {
        match self {
            HashFunction::Murmur3 => true,
            #[cfg(feature = "next-format")]
            HashFunction::Reversed => format >= crate::layout::NEXT_FORMAT,
        }
    }

    /// Of a table of this name that is made while the store has this format.
    pub fn of_new_table(format: u32, name: &[u8]) -> HashFunction {
        #[cfg(feature = "next-format")]
        if format >= crate::layout::NEXT_FORMAT && name.last().is_some_and(|last| last % 2 == 0) {
            return HashFunction::Reversed;
        }
        let (_, _) = (format, name);
        HashFunction::Murmur3
    }
}

/// Which client request a reply answers. `connection` is the driver's number for a connection and never reused;
/// `nonce` is the client's number for the request on that connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo {
    pub connection: u64,
    pub nonce: u64,
}
