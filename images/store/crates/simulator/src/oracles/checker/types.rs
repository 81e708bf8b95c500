//! Operations as their clients saw them.

use wire::rpc::RejectRules;
use wire::status::Status;

/// The value of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Of 8 bytes: they are a number.
    Number(u64),
    /// Of any other length: the write that it is from.
    Text(u64),
}

/// The keys of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// The primary key only.
    One,
    /// More, from this write.
    Of(u64),
}

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    pub content: Content,
    pub keys: Keys,
}

/// What a reader was shown of an object; `None`: it did not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    pub content: Option<Content>,
    pub keys: Option<Keys>,
}

/// By how much an increment changes a number: as an integer, and then as a floating point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    pub int64: i64,
    /// The bits of it, so that addends can be compared.
    pub double: u64,
}

impl Addend {
    pub fn applied_to(self, number: u64) -> u64 {
        let number = number.wrapping_add_signed(self.int64);
        match f64::from_bits(self.double) {
            0.0 => number,
            double => (f64::from_bits(number) + double).to_bits(),
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Read(RejectRules),
    Write(Value, RejectRules),
    Increment(Addend, RejectRules),
    Remove(RejectRules),
    /// The server crashed: the object is gone, the memory of its version must not be.
    Loss,
    /// The store was made again: what is written from now on gets this version at least.
    Rebuild(u64),
}

impl Input {
    /// Nobody asked for it: it happened, and says nothing of what it found.
    pub(super) fn is_event(self) -> bool {
        matches!(self, Input::Loss | Input::Rebuild(_))
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Of a read: version and object.
    Found(u64, Sight),
    /// Of a write or a remove: the version written or removed (0: there was none).
    Done(u64),
    /// Of an increment: version and number written.
    Incremented(u64, u64),
    /// Refused by the rules (or a read of nothing, or an increment of what is not a number), at this version (0: there is none).
    Refused(Status, u64),
    /// Nobody knows whether it took effect.
    Unknown,
    /// As unknown, but if it took effect, then before its return: the attempt that a crash swallowed.
    Maybe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u32,
    pub input: Input,
    pub output: Output,
    pub call: u64,
    /// [`u64::MAX`] if it never returned or its outcome is unknown.
    pub end: u64,
}

impl Operation {
    /// The object's version that it showed; `None` if it showed none, or that there is no object.
    pub(super) fn version(&self) -> Option<u64> {
        match self.output {
            Output::Found(version, _)
            | Output::Done(version)
            | Output::Incremented(version, _)
            | Output::Refused(_, version) => (version > 0).then_some(version),
            Output::Unknown | Output::Maybe => None,
        }
    }

    /// Whether it surely took effect.
    pub(super) fn is_mandatory(&self) -> bool {
        !matches!(self.output, Output::Unknown | Output::Maybe) || self.input.is_event()
    }
}
