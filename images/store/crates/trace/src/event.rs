//! What can be recorded.

use std::fmt;

use wire::opcode::Opcode;

use crate::DATAGRAMS;

/// What the 32 bits of an event's argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    Nothing,
    Bytes,
    /// The low half of the nonce of a request, which both sides know: the key by which a request is found in two traces.
    Key,
    /// The low half of the number of a client's operation.
    Operation,
    /// The index of a server id.
    Server,
    /// The low half of a position in the log.
    Position,
    /// The number of a recovery.
    Recovery,
    /// The low half of a segment's number.
    Segment,
    /// 1 or 0.
    Found,
}

/// What the other 16 bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortField {
    Unused,
    /// The low bits of the number that the driver gives a connection, which tell it from others; or [`DATAGRAMS`].
    Connection,
    Opcode,
}

macro_rules! events {
    ($($(#[doc = $doc:literal])* $variant:ident = $number:literal, $place:ident, $arg:ident, $layer:literal, $text:literal;)*) => {
        /// What happened. Numbers stay as they are: traces are read by other builds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Event {
            $($(#[doc = $doc])* $variant = $number,)*
        }

        impl Event {
            pub const ALL: &[Event] = &[$(Event::$variant,)*];

            pub const fn from_u16(number: u16) -> Option<Event> {
                match number {
                    $($number => Some(Event::$variant),)*
                    _ => None,
                }
            }

            /// Its name, as in this source.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => stringify!($variant),)* }
            }

            /// In words.
            pub const fn text(self) -> &'static str {
                match self { $(Event::$variant => $text,)* }
            }

            /// When it is noted, as in this source.
            pub const fn meaning(self) -> &'static str {
                match self { $(Event::$variant => concat!($($doc),*),)* }
            }

            /// Who records it.
            pub const fn layer(self) -> &'static str {
                match self { $(Event::$variant => $layer,)* }
            }

            pub const fn arg(self) -> Arg {
                match self { $(Event::$variant => Arg::$arg,)* }
            }

            pub const fn place(self) -> ShortField {
                match self { $(Event::$variant => ShortField::$place,)* }
            }
        }
    };
}

events! {
    /// After the call that gave the bytes (or datagrams) has returned, before they are looked at.
    Received = 1, Connection, Bytes, "net", "received";
    /// A complete message (request or answer) is about to be handed over.
    FrameIn = 2, Connection, Key, "net", "message handed over";
    /// A message was put into its connection's output.
    FrameOut = 3, Connection, Key, "net", "message put";
    /// Just *before* the call that gives output to the kernel or the NIC: a peer on the same machine can have the bytes before
    /// that call returns, and what the call takes is the driver's time, not the program's.
    Flushed = 4, Connection, Bytes, "net", "output given to the driver";
    /// The thread goes to sleep until something comes.
    Slept = 5, Unused, Nothing, "net", "went to sleep";
    /// It has slept.
    Woke = 6, Unused, Nothing, "net", "woke up";

    /// A request's header was read.
    Request = 16, Opcode, Key, "master", "request";
    /// A key was looked for in the hash table.
    LookedUp = 17, Unused, Found, "master", "key looked up";
    /// A change was appended to the log, which ends there now.
    Appended = 18, Unused, Position, "master", "appended to the log";
    /// The answer waits until what it shows is durable.
    Held = 19, Connection, Key, "master", "answer held";
    /// It waits no longer.
    Released = 20, Connection, Key, "master", "answer released";

    /// A request is about to be sent to a backup; the message put next is that request.
    BackupAsked = 32, Unused, Server, "replication", "backup asked";
    /// A backup answered.
    BackupAnswered = 33, Unused, Server, "replication", "backup answered";

    /// Part of a log came and was taken into the storage.
    AppendTaken = 48, Unused, Bytes, "backup", "append taken";
    /// The storage says that something is on the disk.
    Synced = 49, Unused, Nothing, "backup", "storage synced";

    /// A client's operation begins; its number is known when it ends.
    OperationStarted = 64, Unused, Nothing, "client", "operation started";
    /// Its result is here, or its failure.
    OperationCompleted = 65, Unused, Operation, "client", "operation completed";

    /// This shard is to bring back some of a dead server's tablets.
    RecoveryBegun = 80, Unused, Recovery, "recovery", "began recovery";
    /// A piece of a segment is asked for from a backup.
    RecoveryAsked = 81, Unused, Segment, "recovery", "piece asked for";
    /// It came and was replayed.
    RecoveryReplayed = 82, Unused, Segment, "recovery", "piece replayed";
    /// Everything was replayed.
    RecoveryComplete = 83, Unused, Recovery, "recovery", "replayed all of recovery";
    /// The tablets are this shard's.
    RecoveryServed = 84, Unused, Recovery, "recovery", "serves tablets of recovery";
}

/// An event's number, place and argument in words.
pub(crate) struct Words {
    pub event: u16,
    pub place: u16,
    pub arg: u32,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { event, place, arg } = *self;
        let Some(event) = Event::from_u16(event) else {
            return write!(f, "event {event} (of another version) {place} {arg}");
        };
        f.write_str(event.text())?;
        if event.place() == ShortField::Opcode {
            match Opcode::from_u16(place) {
                Some(opcode) => write!(f, " {opcode}")?,
                None => write!(f, " opcode {place}")?,
            }
        }
        match event.arg() {
            Arg::Nothing => {}
            Arg::Bytes => write!(f, ", {arg} B")?,
            Arg::Key => write!(f, ", key {arg}")?,
            Arg::Operation => write!(f, ", operation {arg}")?,
            Arg::Server => write!(f, ", server {arg}")?,
            Arg::Recovery => write!(f, " {arg}")?,
            Arg::Position => write!(f, ", up to {arg}")?,
            Arg::Segment => write!(f, ", segment {arg}")?,
            Arg::Found => f.write_str(if arg == 0 { ", not there" } else { ", found" })?,
        }
        match event.place() {
            ShortField::Connection if u64::from(place) == DATAGRAMS => f.write_str(", datagrams"),
            ShortField::Connection => write!(f, ", connection {place}"),
            ShortField::Opcode | ShortField::Unused => Ok(()),
        }
    }
}
