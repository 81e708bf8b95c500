//! The coordinator's durable state as bytes: one record for each thing that must not be forgotten, under a key.
//!
//! Records change by optional additions only. A change that an older build must not overlook comes with a new format of the store
//! ([`wire::format`]). The one in force stands in the one [`Meta`] record, and a build that does not read it does not go on with the state.

use base::ids::ServerId;
use prost::{Message, Oneof};
use wire::member::Settings;

pub use crate::position::Leadership;

/// The store, and every counter: what was given out once is never given out again.
#[derive(Clone, PartialEq, Message)]
pub struct Meta {
    /// The one in force in the store.
    #[prost(uint32, tag = "1")]
    pub format_version: u32,
    #[prost(fixed64, tag = "2")]
    pub cluster_id: u64,
    #[prost(uint32, tag = "3")]
    pub cluster_tag: u32,
    #[prost(uint32, tag = "4")]
    pub last_server_index: u32,
    /// Version of the server list.
    #[prost(uint64, tag = "5")]
    pub member_changes: u64,
    /// Lower half of the id of the newest table.
    #[prost(uint32, tag = "6")]
    pub last_table_number: u32,
    /// First server of the member that got a span of a table last.
    #[prost(uint32, tag = "7")]
    pub last_used_server: u32,
    #[prost(fixed64, tag = "8")]
    pub next_lease_id: u64,
    /// Cluster time, in nanoseconds, that was never reached; it goes on from here after a restart.
    #[prost(uint64, tag = "9")]
    pub time_bound_ns: u64,
    /// By how much cluster time may have run ahead over all restarts so far; leases end later by as much.
    #[prost(uint64, tag = "10")]
    pub lease_shift_ns: u64,
    /// Losses that are no longer kept.
    #[prost(uint64, tag = "11")]
    pub losses_dropped: u64,
    #[prost(uint64, tag = "12")]
    pub last_recovery_id: u64,
    /// Every version that a server has given out is below it.
    #[prost(uint64, tag = "13")]
    pub version_bound: u64,
    /// That bound when parts of logs were given up last; 0: never.
    #[prost(uint64, tag = "14")]
    pub version_floor: u64,
    /// That bound when tablets without copies were lost last; 0: never, or an older build has noted this.
    #[prost(uint64, tag = "25")]
    pub first_version: u64,
    /// Cluster time is noted so far ahead; 0, of older builds: a minute.
    #[prost(uint64, tag = "15")]
    pub time_ahead_ns: u64,
    /// Of the process that has noted this, if the state is in a directory: what shards are told. 0, of older builds and of states in objects: not
    /// noted here.
    #[prost(uint64, tag = "16")]
    pub term: u64,
    #[prost(fixed64, tag = "17")]
    pub nonce: u64,
    /// Those before, the newest last; the oldest are forgotten.
    #[prost(message, repeated, tag = "18")]
    pub past: Vec<Leadership>,
    /// The term in which the store was made again from volumes: positions of earlier ones say nothing. 0: never.
    #[prost(uint64, tag = "21")]
    pub rebuilt_term: u64,
    /// When it was last, and from what.
    #[prost(message, optional, tag = "22")]
    pub rebuilt: Option<Rebuilt>,
    /// What people have set; unset: nothing. A build that does not know them goes on without.
    #[prost(message, optional, tag = "23")]
    pub settings: Option<Settings>,
    /// What asked for the numbers of copies in them; unset: a person, or an order of an older build.
    #[prost(message, optional, tag = "24")]
    pub copies_asked_by: Option<SpecVersion>,
}

/// A version of whatever says from outside how the store is to be.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SpecVersion {
    /// Another one is another specification.
    #[prost(string, tag = "1")]
    pub uid: String,
    /// Grows with each change of the specification.
    #[prost(int64, tag = "2")]
    pub generation: i64,
}

/// The store was made again from volumes.
#[derive(Clone, PartialEq, Message)]
pub struct Rebuilt {
    /// Of the store made again.
    #[prost(uint64, tag = "1")]
    pub cluster_time_ns: u64,
    /// The checkpoint that it was made from.
    #[prost(uint64, tag = "2")]
    pub checkpoint_term: u64,
    #[prost(uint64, tag = "3")]
    pub checkpoint_number: u64,
    /// Members whose volumes were not there, and those of them that somebody has given up.
    #[prost(string, repeated, tag = "4")]
    pub without: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub given_up: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(string, tag = "1")]
    pub instance: String,
    #[prost(fixed64, tag = "2")]
    pub number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Member {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, required, tag = "2")]
    pub process: Process,
    #[prost(string, tag = "3")]
    pub host_id: String,
    #[prost(string, tag = "4")]
    pub build_version: String,
    /// Server indexes by shard; the first `shard_count` are of the present process.
    #[prost(uint32, repeated, tag = "5")]
    pub servers: Vec<u32>,
    #[prost(uint32, tag = "6")]
    pub shard_count: u32,
    #[prost(uint64, tag = "7")]
    pub incarnations: u64,
    /// Former processes, the oldest first.
    #[prost(message, repeated, tag = "8")]
    pub past: Vec<Process>,
    /// The present process is dead, and no other has come yet.
    #[prost(bool, tag = "9")]
    pub is_dead: bool,
    /// It is to leave the store.
    #[prost(bool, tag = "12")]
    pub is_draining: bool,
    /// It may get copies still. Not set by older builds, which give none to whom is to leave.
    #[prost(bool, tag = "14")]
    pub is_last_resort: bool,
    /// Formats that the present process reads; 0, of older builds: the first alone.
    #[prost(uint32, tag = "10")]
    pub oldest_format: u32,
    #[prost(uint32, tag = "11")]
    pub newest_format: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Server {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub member: String,
    #[prost(uint32, tag = "3")]
    pub shard_index: u32,
    /// Empty until this incarnation has said hello.
    #[prost(string, tag = "4")]
    pub locator: String,
    #[prost(string, tag = "5")]
    pub backup_locator: String,
    #[prost(string, tag = "6")]
    pub domain: String,
    #[prost(uint64, optional, tag = "7")]
    pub open_floor: Option<u64>,
    #[prost(uint64, tag = "8")]
    pub log_capacity_bytes: u64,
    /// Replicas that it wants of its log.
    #[prost(uint32, tag = "9")]
    pub replicas: u32,
    #[prost(bool, tag = "10")]
    pub backup_only: bool,
    /// Empty where it has a backup, or was written by an older build.
    #[prost(string, tag = "11")]
    pub peer_locator: String,
}

/// Processes of this member and instance are never let in again.
#[derive(Clone, PartialEq, Message)]
pub struct Removed {
    #[prost(string, tag = "1")]
    pub member: String,
    #[prost(string, tag = "2")]
    pub instance: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Table {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// In order of their ranges, which cover all key hashes.
    #[prost(message, repeated, tag = "3")]
    pub tablets: Vec<Tablet>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Tablet {
    /// It starts behind the one before it.
    #[prost(fixed64, tag = "1")]
    pub end_key_hash: u64,
    /// Server index; 0: its server is dead, and nobody has brought it back yet.
    #[prost(uint32, tag = "2")]
    pub owner: u32,
    #[prost(message, repeated, tag = "3")]
    pub sources: Vec<Source>,
    /// The store itself has cut it off from the one before it. A build that does not know this keeps them apart.
    #[prost(bool, tag = "4")]
    pub is_cut: bool,
}

/// A log that holds content of a tablet.
#[derive(Clone, PartialEq, Message)]
pub struct Source {
    /// Server id.
    #[prost(fixed64, tag = "1")]
    pub log: u64,
    #[prost(uint64, tag = "2")]
    pub from_segment: u64,
    #[prost(uint64, tag = "3")]
    pub recovery_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Lease {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Cluster time less [`Meta::lease_shift_ns`].
    #[prost(uint64, tag = "2")]
    pub expiration_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Loss {
    /// Counts all losses from 0.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub cluster_time_ns: u64,
    #[prost(string, tag = "3")]
    pub member: String,
    #[prost(fixed64, repeated, tag = "4")]
    pub server_ids: Vec<u64>,
    #[prost(string, repeated, tag = "5")]
    pub tables: Vec<String>,
    #[prost(uint64, tag = "6")]
    pub tables_dropped: u64,
    #[prost(uint64, tag = "7")]
    pub tablet_count: u64,
    #[prost(uint64, tag = "8")]
    pub object_count: u64,
    #[prost(uint64, tag = "9")]
    pub live_bytes: u64,
    /// For people, what somebody has given up; empty: a process died that had the only copy.
    #[prost(string, tag = "10")]
    pub missing: String,
    /// The process never reported to the coordinator that noted this; not set by older builds.
    #[prost(bool, tag = "11")]
    pub uncounted: bool,
    /// What the process that died said of itself; not set by older builds.
    #[prost(string, tag = "12")]
    pub instance: String,
}

/// The log of a dead server that tablets need.
#[derive(Clone, PartialEq, Message)]
pub struct Log {
    /// The server's id.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub member: String,
    #[prost(uint64, optional, tag = "3")]
    pub open_floor: Option<u64>,
    /// The head that its recoveries take: segment id, and length; 0 before the first has ended.
    #[prost(uint64, tag = "4")]
    pub head_segment_id: u64,
    #[prost(uint32, tag = "5")]
    pub head_bytes: u32,
    #[prost(message, optional, tag = "6")]
    pub left: Option<Left>,
}

/// All that a log consists of any more, since somebody has accepted that the rest is lost.
#[derive(Clone, PartialEq, Message)]
pub struct Left {
    /// The recovery that was ordered last before that.
    #[prost(uint64, tag = "1")]
    pub after_recovery: u64,
    #[prost(message, repeated, tag = "2")]
    pub segments: Vec<Segment>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Segment {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint32, tag = "2")]
    pub bytes: u32,
}

/// Something worth knowing about that has happened to the store, for people.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Grows with each event.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub cluster_time_ns: u64,
    /// See [`crate::status::EventKind`].
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// A sentence that names the event and whom it concerns.
    #[prost(string, tag = "4")]
    pub text: String,
}

/// Each kind of record is one line: its tag, the first format of the store that has it, how records of the kind are called together, and what names one
/// of them. Whatever has to do with all kinds is made from the lines.
///
/// Older builds do not go on with a state that holds a record of a kind that they do not know. So a new kind begins with a format that is not in force
/// yet: until then its records are not noted, and there is a way back to older builds.
macro_rules! kinds {
    ($($tag:tt since $since:tt: $kind:ident $plural:ident |$it:ident|
        $(($($name:ident: $type:ty = $value:expr),+))?;)+) => {
        /// What stands under a key.
        #[derive(Clone, PartialEq, Message)]
        pub struct Value {
            #[prost(oneof = "Record", tags($($tag),+))]
            pub record: Option<Record>,
        }

        #[derive(Clone, PartialEq, Oneof)]
        pub enum Record {
            $(#[prost(message, tag($tag))] $kind($kind),)+
        }

        /// Names a record. Derived from it, so that every record stands in one place only.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Key {
            $($kind $(($($type),+))?,)+
        }

        /// Records by kind.
        #[derive(Default)]
        pub struct Sorted {
            $(pub $plural: Vec<$kind>,)+
        }

        impl Record {
            /// The first format of the store that has records of this kind.
            pub fn since(&self) -> u32 {
                match self {
                    $(Record::$kind(_) => $since,)+
                }
            }
        }

        impl Key {
            pub fn of(record: &Record) -> Key {
                match record {
                    $(Record::$kind($it) => Key::$kind $(($($value),+))?,)+
                }
            }

            /// The first format of the store that has records of this kind.
            pub fn since(&self) -> u32 {
                match self {
                    $(Key::$kind { .. } => $since,)+
                }
            }

            /// One byte for the kind, the record's tag; then numbers, the highest byte first, or texts, each but the last behind its
            /// length in four bytes.
            pub fn encode(&self) -> Vec<u8> {
                match self {
                    $(Key::$kind $(($($name),+))? => {
                        let names: &[&dyn Name] = &[$($($name),+)?];
                        encode_key($tag, names)
                    })+
                }
            }
        }

        impl Sorted {
            pub fn add(&mut self, record: Record) {
                match record {
                    $(Record::$kind(record) => self.$plural.push(record),)+
                }
            }
        }
    };
}

kinds! {
    1 since 1: Meta metas |_it|;
    2 since 1: Member members |it| (name: String = it.name.clone());
    3 since 1: Server servers |it| (index: u32 = ServerId(it.id).index());
    4 since 1: Removed removed |it| (member: String = it.member.clone(), instance: String = it.instance.clone());
    5 since 1: Table tables |it| (id: u64 = it.id);
    6 since 1: Lease leases |it| (id: u64 = it.id);
    7 since 1: Loss losses |it| (number: u64 = it.number);
    // By server id.
    8 since 1: Log logs |it| (id: u64 = it.id);
    9 since 2: Event events |it| (number: u64 = it.number);
}

/// A part of what names a record.
trait Name {
    fn encode(&self, is_last: bool, bytes: &mut Vec<u8>);
}

impl Name for u32 {
    fn encode(&self, _: bool, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_be_bytes());
    }
}

impl Name for u64 {
    fn encode(&self, _: bool, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_be_bytes());
    }
}

impl Name for String {
    fn encode(&self, is_last: bool, bytes: &mut Vec<u8>) {
        if !is_last {
            bytes.extend((self.len() as u32).to_be_bytes());
        }
        bytes.extend(self.as_bytes());
    }
}

fn encode_key(kind: u8, names: &[&dyn Name]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for (at, name) in names.iter().enumerate() {
        name.encode(at + 1 == names.len(), &mut bytes);
    }
    bytes
}
