//! How a session begins and is kept up, and questions and answers in it.

use prost::Message;

use super::backups::OnDraining;
use super::migration::MigrationProgress;
use super::ports::PortReport;
use super::settings::Settings;
use super::tablets::{TabletLoad, TabletRange};

/// Opens a session. A process that held a server id in this store before, and still holds its data, says so.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Cluster that `server_id` belongs to; 0 when the process is in none yet.
    #[prost(fixed64, tag = "1")]
    pub cluster_id: u64,
    /// Server id held in that cluster; [`base::ids::ServerId::INVALID`] for none.
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
    /// Replicas that this shard wants of its log; 0: none, and what it holds dies with it.
    #[prost(uint32, tag = "15")]
    pub replicas: u32,
    /// This shard is a backup only: it takes no tablets.
    #[prost(bool, tag = "16")]
    pub backup_only: bool,
    /// The highest in that cluster that this shard was told of, by whichever coordinator.
    #[prost(message, optional, tag = "17")]
    pub position: Option<Position>,
    /// Formats that this build reads; 0, of older builds: the first alone.
    #[prost(uint32, tag = "18")]
    pub oldest_format: u32,
    #[prost(uint32, tag = "19")]
    pub newest_format: u32,
    /// The store that this shard's volume belongs to, whether the shard is in it yet or not; 0: it has no volume, or an empty one.
    #[prost(fixed64, tag = "20")]
    pub volume_cluster_id: u64,
    /// This build carries out [`super::coordinator::Kind::Settings`].
    #[prost(bool, tag = "21")]
    pub takes_settings: bool,
    /// This build carries out [`super::coordinator::Kind::MergeTablets`].
    #[prost(bool, tag = "22")]
    pub merges_tablets: bool,
    /// Where this shard listens for other servers if it has no backup; one that has is reached at `backup_locator`. Older builds without a
    /// backup listen for nobody, and leave it empty.
    #[prost(string, tag = "23")]
    pub peer_locator: String,
}

/// Which message of a session this is, and what its sender has heard.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Numbers {
    /// A random number that the coordinator gives a session with its Welcome; a Hello asks with it whether the session can go on. 0: none.
    #[prost(fixed64, tag = "1")]
    pub session: u64,
    /// Counts the sender's messages in the session, from 1, which is the Welcome's. 0: a message that is not sent again if its connection breaks.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The sender has heard messages up to this number.
    #[prost(uint64, tag = "3")]
    pub heard: u64,
}

/// Where in a store's life a coordinator was when it said something: the last that it had noted of the store's state. A leader of a later term has
/// fenced all before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Position {
    /// Counts leaderships, from 1.
    #[prost(uint64, tag = "1")]
    pub term: u64,
    /// Random, of the leadership: two of one term are told apart, which there are only if the state was put back to an older one.
    #[prost(fixed64, tag = "2")]
    pub nonce: u64,
    /// Counts what was noted over the store's whole life, from 1.
    #[prost(uint64, tag = "3")]
    pub sequence: u64,
}

impl Position {
    /// Both are of one leadership.
    pub fn is_of_same_leader(&self, other: &Position) -> bool {
        (self.term, self.nonce) == (other.term, other.nonce)
    }

    /// Of a later term, or later in the same.
    pub fn is_after(&self, other: &Position) -> bool {
        (self.term, self.sequence) > (other.term, other.sequence)
    }
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
    /// Of the log with replicas: segments that have some or shall have.
    #[prost(uint64, tag = "4")]
    pub segments: u64,
    /// Those with fewer than wanted.
    #[prost(uint64, tag = "5")]
    pub segments_short: u64,
    /// Backups that take replicas of this log.
    #[prost(uint64, tag = "6")]
    pub backups: u64,
    /// Whether the shard answers requests now: its log has a head on its backups, and these have promised not to release it.
    #[prost(bool, tag = "7")]
    pub serving: bool,
    /// No object here ever had this version or a higher one.
    #[prost(uint64, tag = "8")]
    pub next_version: u64,
    /// Of the tablet that is on its way here, if there is one.
    #[prost(message, optional, tag = "9")]
    pub migration: Option<MigrationProgress>,
    /// Not set by older builds.
    #[prost(message, optional, tag = "10")]
    pub on_draining: Option<OnDraining>,
    /// Of tablets of which there is something new to say; some of them.
    #[prost(message, repeated, tag = "11")]
    pub loads: Vec<TabletLoad>,
    /// [`Settings::number`] of those in force here; 0: none.
    #[prost(uint64, tag = "12")]
    pub settings: u64,
    /// As in [`Hello::replicas`], by these settings. Not set by older builds.
    #[prost(uint32, optional, tag = "13")]
    pub replicas: Option<u32>,
    /// All of the process's, when there is something new to tell; empty where there are none.
    #[prost(message, repeated, tag = "14")]
    pub ports: Vec<PortReport>,
    /// Not set by older builds.
    #[prost(message, optional, tag = "15")]
    pub room: Option<LogRoom>,
}

/// What a shard's log has room for.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LogRoom {
    /// What live data, tombstones not counted, may take before writes are refused.
    #[prost(uint64, tag = "1")]
    pub max_live_bytes: u64,
    /// Part of [`Pong::log_live_bytes`].
    #[prost(uint64, tag = "2")]
    pub tombstone_bytes: u64,
    /// Requests refused for want of memory since the process started.
    #[prost(uint64, tag = "3")]
    pub full_rejections: u64,
    /// Such as followed one another, the last not long ago.
    #[prost(message, optional, tag = "4")]
    pub full: Option<MemoryFull>,
}

/// Requests that were refused for want of memory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MemoryFull {
    /// Since the first.
    #[prost(uint64, tag = "1")]
    pub for_ms: u64,
    /// Since the last.
    #[prost(uint64, tag = "2")]
    pub last_ms: u64,
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

/// Answers [`Control`] with a complete SERVER_CONTROL response of the client protocol.
#[derive(Clone, PartialEq, Message)]
pub struct ControlDone {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub response: Vec<u8>,
}

/// Answers [`Probe`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Probed {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(bool, tag = "2")]
    pub is_alive: bool,
}

/// Something that this shard had with another server broke: the coordinator should see whether it is alive.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SuspectServer {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
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
    /// All tablets that this shard owns; those it holds beyond them it drops, those it lacks it takes, empty. One that it has migrated, said so,
    /// and not heard of since is committed by this; all other migrations are given up.
    #[prost(message, repeated, tag = "5")]
    pub tablets: Vec<TabletRange>,
    /// The session counts as lost when nothing was heard for this long, on both sides.
    #[prost(uint32, tag = "6")]
    pub silence_timeout_ms: u32,
    /// Recoveries that brought some of the tablets here and whose sources are still needed. One that the shard has replayed and that is not
    /// among them is given up; one that is among them, and not committed yet, is committed by this.
    #[prost(uint64, repeated, tag = "7")]
    pub recoveries: Vec<u64>,
    /// See [`super::Recover::version_floor`].
    #[prost(uint64, tag = "8")]
    pub version_floor: u64,
    /// Orders on this session are this leader's. A shard that knows a later one, or another one of the same term, does not let itself be welcomed.
    #[prost(message, optional, tag = "9")]
    pub position: Option<Position>,
    /// The one in force; 0, of older builds: the first.
    #[prost(uint32, tag = "10")]
    pub format: u32,
    /// Those in force; none: nobody has changed any.
    #[prost(message, optional, tag = "11")]
    pub settings: Option<Settings>,
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
    /// The build does not read the format that is in force in the store.
    Version = 3,
    /// The server knows of another leader than this coordinator, which looks whether it still leads. Older builds take it for no reason at all and, as
    /// after [`RefusedReason::Invalid`], come again.
    LeaderInDoubt = 4,
}

/// Liveness, and the cluster's time.
#[derive(Clone, PartialEq, Message)]
pub struct Ping {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(uint64, tag = "2")]
    pub cluster_time_ns: u64,
    #[prost(message, optional, tag = "3")]
    pub position: Option<Position>,
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

/// Is this server alive, seen from here? Answered by [`Probed`].
#[derive(Clone, PartialEq, Message)]
pub struct Probe {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(fixed64, tag = "2")]
    pub server_id: u64,
    /// For clients.
    #[prost(string, tag = "3")]
    pub locator: String,
    #[prost(uint32, tag = "4")]
    pub timeout_ms: u32,
}

/// The format in which members and the coordinator write.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Format {
    #[prost(uint32, tag = "1")]
    pub format: u32,
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
