//! The member protocol: what coordinator and shards say to each other, over one TCP connection per shard that the shard
//! opens to the coordinator's member listener.
//!
//! A stream starts, in both directions, with the [`PREFACE`] (8 bytes of magic and a format version); then come frames:
//! a `u32` little-endian length (at most [`MAX_FRAME_BYTES`]) and a protobuf message, [`ToCoordinator`] one way and
//! [`ToShard`] the other. The first message of a shard is [`Hello`]; the coordinator answers [`Welcome`] or [`Refused`],
//! and before that [`message@Ping`] if the shard's process would take the place of another: a Hello may have been long on
//! its way and its sender dead, a [`Pong`] shows that it is not.
//!
//! Messages change by optional additions only; a message of a kind that the receiver does not know ends the connection.

use prost::{Message, Oneof};

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
    #[prost(oneof = "shard::Kind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub kind: Option<shard::Kind>,
}

pub mod shard {
    //! Kinds of messages that a shard sends.
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Kind {
        #[prost(message, tag = "1")]
        Hello(Hello),
        #[prost(message, tag = "2")]
        Pong(Pong),
        #[prost(message, tag = "3")]
        TabletDone(TabletDone),
        #[prost(message, tag = "4")]
        LeaseQuery(LeaseQuery),
        #[prost(message, tag = "5")]
        ControlDone(ControlDone),
        #[prost(message, tag = "6")]
        LocateServer(LocateServer),
        #[prost(message, tag = "7")]
        RaiseOpenFloor(OpenFloor),
    }
}

/// Opens a session. A process that held a server id in this store before, and still holds its data, says so.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Cluster that `server_id` belongs to; 0 when the process is in none yet.
    #[prost(fixed64, tag = "1")]
    pub cluster_id: u64,
    /// Server id held in that cluster; [`crate::ids::ServerId::INVALID`] for none.
    #[prost(fixed64, tag = "2")]
    pub server_id: u64,
    /// Room for proof of who this is; empty in this version.
    #[prost(bytes = "vec", tag = "3")]
    pub credentials: Vec<u8>,
    /// Named place in the store; outlives processes.
    #[prost(string, tag = "4")]
    pub member: String,
    /// Where the process runs, as its owner says (a pod's uid). With `process` it names one process.
    #[prost(string, tag = "5")]
    pub instance: String,
    /// Random number of this process.
    #[prost(fixed64, tag = "6")]
    pub process: u64,
    #[prost(string, tag = "7")]
    pub host_id: String,
    #[prost(uint32, tag = "8")]
    pub shard_index: u32,
    #[prost(uint32, tag = "9")]
    pub shard_count: u32,
    /// Service locator for clients.
    #[prost(string, tag = "10")]
    pub locator: String,
    #[prost(uint64, tag = "11")]
    pub log_capacity_bytes: u64,
    #[prost(string, tag = "12")]
    pub build_version: String,
    /// Where this shard's backup listens for masters; empty if it has none.
    #[prost(string, tag = "13")]
    pub backup_locator: String,
    /// What fails together beyond the host, such as a chassis; replicas are spread over domains as far as there are any.
    #[prost(string, tag = "14")]
    pub domain: String,
}

/// Answers [`message@Ping`], with what the coordinator shows of a shard.
#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint64, tag = "2")]
    pub log_live_bytes: u64,
    #[prost(uint64, tag = "3")]
    pub object_count: u64,
}

/// The tablet order with this sequence number is carried out.
#[derive(Clone, PartialEq, Message)]
pub struct TabletDone {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
}

/// Is this client lease valid? At most one question about a lease is outstanding.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseQuery {
    #[prost(uint64, tag = "1")]
    pub lease_id: u64,
}

/// Where do clients reach this server?
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LocateServer {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
}

/// Open replicas of the shard's log in head segments with a smaller id shall not count any more in a recovery. The coordinator notes it
/// durably and says so with the same message; floors only rise.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OpenFloor {
    #[prost(uint64, tag = "1")]
    pub segment_id: u64,
}

/// Answers [`Control`] with a complete SERVER_CONTROL response of the client protocol.
#[derive(Clone, PartialEq, Message)]
pub struct ControlDone {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub response: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ToShard {
    #[prost(
        oneof = "coordinator::Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    )]
    pub kind: Option<coordinator::Kind>,
}

pub mod coordinator {
    //! Kinds of messages that the coordinator sends.
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Kind {
        #[prost(message, tag = "1")]
        Welcome(Welcome),
        #[prost(message, tag = "2")]
        Refused(Refused),
        #[prost(message, tag = "3")]
        Ping(Ping),
        #[prost(message, tag = "4")]
        TakeTablet(TabletOrder),
        #[prost(message, tag = "5")]
        DropTablet(TabletOrder),
        #[prost(message, tag = "6")]
        LeaseAnswer(LeaseAnswer),
        #[prost(message, tag = "7")]
        Control(Control),
        #[prost(message, tag = "8")]
        SplitTablet(TabletSplit),
        #[prost(message, tag = "9")]
        ServerLocation(ServerLocation),
        #[prost(message, tag = "10")]
        Backups(Backups),
        #[prost(message, tag = "11")]
        OpenFloorRaised(OpenFloor),
    }
}

/// Lets a shard in. A shard whose cluster or server id differs from what it held drops all it holds first.
#[derive(Clone, PartialEq, Message)]
pub struct Welcome {
    #[prost(fixed64, tag = "1")]
    pub cluster_id: u64,
    #[prost(fixed64, tag = "2")]
    pub server_id: u64,
    #[prost(uint64, tag = "3")]
    pub cluster_time_ns: u64,
    /// The version that the first new object of a new incarnation gets, at least.
    #[prost(uint64, tag = "4")]
    pub first_version: u64,
    /// All tablets that this shard owns; those it holds beyond them it drops, those it lacks it takes, empty.
    #[prost(message, repeated, tag = "5")]
    pub tablets: Vec<TabletRange>,
    /// The session counts as lost when nothing was heard for this long, on both sides.
    #[prost(uint32, tag = "6")]
    pub silence_timeout_ms: u32,
}

/// A closed range of key hashes of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct TabletRange {
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    #[prost(fixed64, tag = "2")]
    pub start_key_hash: u64,
    #[prost(fixed64, tag = "3")]
    pub end_key_hash: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Refused {
    #[prost(enumeration = "RefusedReason", tag = "1")]
    pub reason: i32,
    /// For people; says what to do.
    #[prost(string, tag = "2")]
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RefusedReason {
    Unspecified = 0,
    /// The member was removed from the store, or a newer process has its name: this process serves nothing any more.
    Superseded = 1,
    /// Something in the Hello is wrong or does not fit (shard counts, an empty name, a store that is full).
    Invalid = 2,
    /// Format version not understood.
    Version = 3,
}

/// Liveness, and the cluster's time.
#[derive(Clone, PartialEq, Message)]
pub struct Ping {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint64, tag = "2")]
    pub cluster_time_ns: u64,
}

/// Take (empty) or drop (with its objects) a tablet. Sequence numbers grow over one session.
#[derive(Clone, PartialEq, Message)]
pub struct TabletOrder {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
}

/// Make two tablets of the one that holds `key_hash`, which becomes the first of the second; answered by [`TabletDone`].
#[derive(Clone, PartialEq, Message)]
pub struct TabletSplit {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint64, tag = "2")]
    pub table_id: u64,
    #[prost(fixed64, tag = "3")]
    pub key_hash: u64,
}

/// Answers [`LeaseQuery`].
#[derive(Clone, PartialEq, Message)]
pub struct LeaseAnswer {
    #[prost(uint64, tag = "1")]
    pub lease_id: u64,
    /// Cluster time at which it ends; 0 when it has ended or never was.
    #[prost(uint64, tag = "2")]
    pub expiration_ns: u64,
    #[prost(uint64, tag = "3")]
    pub cluster_time_ns: u64,
}

/// Answers [`LocateServer`].
#[derive(Clone, PartialEq, Message)]
pub struct ServerLocation {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
    /// Its service locator; empty when there is no such server.
    #[prost(string, tag = "2")]
    pub locator: String,
}

/// All backups of the store; what is not in the list is lost. Follows every welcome, and every change.
#[derive(Clone, PartialEq, Message)]
pub struct Backups {
    #[prost(message, repeated, tag = "1")]
    pub backups: Vec<Backup>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Backup {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
    #[prost(string, tag = "2")]
    pub host_id: String,
    #[prost(string, tag = "3")]
    pub domain: String,
    /// Where it listens for masters.
    #[prost(string, tag = "4")]
    pub locator: String,
}

/// A SERVER_CONTROL_ALL operation, passed on. `op` is one of the wire protocol's control operations.
#[derive(Clone, PartialEq, Message)]
pub struct Control {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint32, tag = "2")]
    pub op: u32,
    #[prost(bytes = "vec", tag = "3")]
    pub input: Vec<u8>,
}
