//! The member protocol: what coordinator and shards say to each other, over one TCP connection per shard that the shard
//! opens to the coordinator's member listener.
//!
//! A stream starts, in both directions, with the [`PREFACE`] (8 bytes of magic and a format version); then come frames:
//! a `u32` little-endian length (at most [`MAX_FRAME_BYTES`]) and a protobuf message, [`ToCoordinator`] one way and
//! [`ToShard`] the other. The first message of a shard is [`Hello`], of at most [`MAX_HELLO_FRAME_BYTES`]; the coordinator answers [`Welcome`] or [`Refused`],
//! and before that [`message@Ping`] if the shard's process would take the place of another: a Hello may have been long on
//! its way and its sender dead, a [`Pong`] shows that it is not.
//!
//! Messages change by optional additions only; a message of a kind that the receiver does not know ends the connection.

mod checkpoint;
mod cost;
mod migration;
mod ports;
mod settings;

use prost::{Message, Oneof};

pub use checkpoint::*;
pub use cost::*;
pub use migration::*;
pub use ports::*;
pub use settings::*;

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
        #[prost(message, tag = "8")]
        BackupReport(BackupReport),
        #[prost(message, tag = "9")]
        LogInventory(LogInventory),
        #[prost(message, tag = "10")]
        Recovered(Recovered),
        #[prost(message, tag = "11")]
        RecoveryDurable(RecoveryId),
        #[prost(message, tag = "12")]
        Probed(Probed),
        #[prost(message, tag = "13")]
        SuspectServer(SuspectServer),
        #[prost(message, tag = "14")]
        Migrated(Migrated),
        /// Answers [`coordinator::Kind::StopTablet`].
        #[prost(message, tag = "15")]
        Stopped(MigrationId),
        /// Answered by [`coordinator::Kind::MigrationEnded`].
        #[prost(message, tag = "16")]
        MigrationWanted(MigrationWanted),
        /// Answers [`coordinator::Kind::KeepCheckpoint`].
        #[prost(message, tag = "17")]
        CheckpointKept(CheckpointKept),
        /// Answers [`coordinator::Kind::ReadCheckpoint`].
        #[prost(message, tag = "19")]
        CheckpointPart(CheckpointPart),
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
    /// This build carries out [`coordinator::Kind::Settings`].
    #[prost(bool, tag = "21")]
    pub takes_settings: bool,
    /// This build carries out [`coordinator::Kind::MergeTablets`].
    #[prost(bool, tag = "22")]
    pub merges_tablets: bool,
    /// Where this shard listens for other servers if it has no backup; one that has is reached at `backup_locator`. Older builds without a
    /// backup listen for nobody, and leave it empty.
    #[prost(string, tag = "23")]
    pub peer_locator: String,
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

/// What of a log is on backups that are being drained, as its master sees it.
#[derive(Clone, PartialEq, Message)]
pub struct OnDraining {
    /// [`Backups::number`] of the list that this takes into account; 0 before there was one in this session.
    #[prost(uint64, tag = "1")]
    pub list_number: u64,
    /// One for each backup of that list that is being drained.
    #[prost(message, repeated, tag = "2")]
    pub backups: Vec<CopiesAt>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CopiesAt {
    #[prost(fixed64, tag = "1")]
    pub backup: u64,
    /// Of the log that have a copy there that may still be needed.
    #[prost(uint64, tag = "2")]
    pub segments: u64,
}

/// What a tablet has, as the shard estimates it, and how often keys in it were asked for since the shard took it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TabletLoad {
    #[prost(message, required, tag = "1")]
    pub tablet: TabletRange,
    /// Of its objects' entries in the log.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint64, tag = "3")]
    pub objects: u64,
    #[prost(uint64, tag = "4")]
    pub uses: u64,
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

/// This shard's backup has opened its storage. The first after each welcome makes masters use it; more follow when something changes.
#[derive(Clone, PartialEq, Message)]
pub struct BackupReport {
    /// Logs that it holds replicas of; filled in the first report of a session only.
    #[prost(fixed64, repeated, tag = "1")]
    pub logs: Vec<u64>,
    /// The largest segment that it takes.
    #[prost(uint32, tag = "2")]
    pub segment_bytes: u32,
    #[prost(uint32, tag = "3")]
    pub frames: u32,
    #[prost(uint32, tag = "4")]
    pub frames_free: u32,
    #[prost(uint32, tag = "5")]
    pub frames_damaged: u32,
    /// Why it takes nothing new any more; empty while all is well.
    #[prost(string, tag = "6")]
    pub retired: String,
    /// It keeps checkpoints of the coordinator's state; older builds do not know the message.
    #[prost(bool, tag = "7")]
    pub keeps_checkpoints: bool,
}

/// Answers [`FenceLog`], and follows every further one: what this shard's backup holds of a log. Its master is refused from now on.
#[derive(Clone, PartialEq, Message)]
pub struct LogInventory {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
    #[prost(message, repeated, tag = "2")]
    pub replicas: Vec<ReplicaFound>,
}

/// A replica that a backup holds.
#[derive(Clone, PartialEq, Message)]
pub struct ReplicaFound {
    #[prost(uint64, tag = "1")]
    pub segment_id: u64,
    /// Of a side segment, or a copy made later: says nothing about the head.
    #[prost(bool, tag = "2")]
    pub is_side: bool,
    #[prost(bool, tag = "3")]
    pub is_open: bool,
    #[prost(uint32, tag = "4")]
    pub bytes: u32,
    /// CRC32C over all of them.
    #[prost(fixed32, tag = "5")]
    pub crc: u32,
    /// Why it cannot be read, for people; empty if it can.
    #[prost(string, tag = "6")]
    pub damage: String,
    /// The last digest in an open head; a head always starts with one.
    #[prost(uint64, repeated, tag = "7")]
    pub digest: Vec<u64>,
}

/// Answers [`Recover`]: the tablets are replayed, or cannot be.
#[derive(Clone, PartialEq, Message)]
pub struct Recovered {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
    /// What this server's own log holds of the tablets lies in this segment and later ones.
    #[prost(uint64, tag = "2")]
    pub from_segment: u64,
    /// Why not, for people; empty if all went well.
    #[prost(string, tag = "3")]
    pub failure: String,
    /// Another server may manage, for this one has no memory left.
    #[prost(bool, tag = "4")]
    pub is_full: bool,
    /// Of entries, as they were read from backups.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    #[prost(uint64, tag = "6")]
    pub objects: u64,
    #[prost(uint64, tag = "7")]
    pub replay_ns: u64,
}

/// In [`shard::Kind::RecoveryDurable`]: what was replayed is on this log's own backups. In the coordinator's messages: see there.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RecoveryId {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
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
}

impl From<coordinator::Kind> for ToShard {
    /// Yet without a position.
    fn from(kind: coordinator::Kind) -> ToShard {
        ToShard {
            kind: Some(kind),
            position: None,
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
        /// To a backup.
        #[prost(message, tag = "12")]
        FenceLog(Log),
        /// To a backup: logs that nobody needs any more.
        #[prost(message, tag = "13")]
        ForgetLogs(Logs),
        #[prost(message, tag = "14")]
        Recover(Recover),
        /// The shard owns the tablets that it has replayed, and serves them.
        #[prost(message, tag = "15")]
        CommitRecovery(RecoveryId),
        /// Others bring the tablets back, or it is tried again: what was replayed goes. Not answered.
        #[prost(message, tag = "16")]
        GiveUpRecovery(RecoveryId),
        /// No recovery will ever read the logs again from which this one was made.
        #[prost(message, tag = "17")]
        SourcesReleased(RecoveryId),
        #[prost(message, tag = "18")]
        Probe(Probe),
        /// To who shall have a tablet.
        #[prost(message, tag = "19")]
        Migrate(Migrate),
        /// To who has it.
        #[prost(message, tag = "20")]
        MigrateOut(MigrateOut),
        /// To either: all is as if the migration had never begun. Not answered.
        #[prost(message, tag = "21")]
        GiveUpMigration(MigrationId),
        /// To who has the tablet: it answers nothing of it any more. Answered by [`shard::Kind::Stopped`].
        #[prost(message, tag = "22")]
        StopTablet(MigrationId),
        /// The shard owns the tablet that it has migrated, and serves it.
        #[prost(message, tag = "23")]
        CommitMigration(MigrationId),
        #[prost(message, tag = "24")]
        MigrationEnded(MigrationEnded),
        /// To who takes settings, after every change; with a welcome they come in it.
        #[prost(message, tag = "25")]
        Settings(Settings),
        /// To a shard whose Hello said that its build merges tablets. The state has the one tablet already.
        #[prost(message, tag = "26")]
        MergeTablets(TabletMerge),
        /// Everybody reads it: it is in force from now on. Not answered; whoever is away learns it from its welcome.
        #[prost(message, tag = "30")]
        Activate(Format),
        /// To a backup.
        #[prost(message, tag = "31")]
        KeepCheckpoint(KeepCheckpoint),
        /// To a shard with a volume, before it is let in: the store is being made again from volumes.
        #[prost(message, tag = "32")]
        ReadCheckpoint(ReadCheckpoint),
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
    /// See [`Recover::version_floor`].
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
    /// The build does not read the format that is in force in the store.
    Version = 3,
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

/// Make one tablet of those that are exactly this range together; answered by [`TabletDone`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TabletMerge {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(message, required, tag = "2")]
    pub tablet: TabletRange,
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

/// All backups of the store; what is not in the list is lost. Follows every welcome if there are any, and every change.
#[derive(Clone, PartialEq, Message)]
pub struct Backups {
    #[prost(message, repeated, tag = "1")]
    pub backups: Vec<Backup>,
    /// Counts the lists of this coordinator.
    #[prost(uint64, tag = "2")]
    pub number: u64,
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
    /// The largest segment that it takes.
    #[prost(uint32, tag = "5")]
    pub segment_bytes: u32,
    /// Its storage has failed: it takes nothing new, and gives out what can be read.
    #[prost(bool, tag = "6")]
    pub is_retired: bool,
    /// It is to leave the store: it gets no new replicas, and those that it has are copied elsewhere.
    #[prost(bool, tag = "7")]
    pub is_draining: bool,
    /// Though it is to leave it gets replicas of a log that has too few other backups. Not set any more once nobody seems to need it.
    #[prost(bool, tag = "8")]
    pub is_last_resort: bool,
}

/// Refuse this log's master for ever, and say what is here of it once no promise to it is left; see [`LogInventory`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Log {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Logs {
    #[prost(fixed64, repeated, tag = "1")]
    pub logs: Vec<u64>,
}

/// Bring tablets back: replay the entries of theirs that are in these segments, whatever the order, and answer with [`Recovered`]. They are served
/// after [`coordinator::Kind::CommitRecovery`].
#[derive(Clone, PartialEq, Message)]
pub struct Recover {
    #[prost(uint64, tag = "1")]
    pub recovery_id: u64,
    #[prost(message, repeated, tag = "2")]
    pub tablets: Vec<TabletRange>,
    #[prost(message, repeated, tag = "3")]
    pub segments: Vec<SegmentSource>,
    /// Whatever is written to this shard from now on, new or over what is there, gets this version at least; 0: nothing special. Parts of logs were
    /// given up, and versions in them that nobody can read any more must not be used again.
    #[prost(uint64, tag = "4")]
    pub version_floor: u64,
}

/// A segment, and who has it.
#[derive(Clone, PartialEq, Message)]
pub struct SegmentSource {
    #[prost(fixed64, tag = "1")]
    pub log: u64,
    #[prost(uint64, tag = "2")]
    pub segment_id: u64,
    /// Server ids of backups with a replica of this length.
    #[prost(fixed64, repeated, tag = "3")]
    pub backups: Vec<u64>,
    #[prost(uint32, tag = "4")]
    pub bytes: u32,
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

/// What is kept is written in this format.
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
