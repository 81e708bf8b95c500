//! What the coordinator shows: plain structs, field for field those of the admin API (`admin.proto`).

use wire::ids::ServerId;

/// The whole store at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Chosen at random when this coordinator's state was created; another id is another, empty store.
    pub cluster_id: u64,
    /// Upper half of every table id.
    pub cluster_tag: u32,
    /// Nanoseconds since the state was created; monotone.
    pub cluster_time_ns: u64,
    /// The member and log format that this build writes.
    pub format_version: u32,
    pub build_version: String,
    pub members: Vec<Member>,
    pub table_count: u64,
    /// Replicas of the log with the fewest; 0 while there is none.
    pub replicas: u32,
    /// Those that have ended, some of them, and those under way.
    pub recoveries: Vec<Recovery>,
    /// Oldest first.
    pub losses: Vec<Loss>,
    /// Losses that are no longer kept.
    pub losses_dropped: u64,
    /// Client leases that have not expired.
    pub client_lease_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// All shards are connected.
    Up,
    /// Enlisted, but at least one shard's connection is gone. Its tablets stay with it.
    Unreachable,
}

/// A named place in the store; outlives processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub state: MemberState,
    pub instance: String,
    pub host_id: String,
    pub build_version: String,
    pub shards: Vec<Shard>,
    /// How many processes this member has had, the present one included.
    pub incarnations: u64,
    /// What fails together beyond the host, as its process said.
    pub domain: String,
}

/// One core's part of a member; a server on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub server_id: u64,
    /// Service locator for clients; empty until the shard has enlisted.
    pub locator: String,
    pub connected: bool,
    pub tablet_count: u64,
    pub log_capacity_bytes: u64,
    pub log_live_bytes: u64,
    pub object_count: u64,
    /// Of each segment of its log, as it wants them.
    pub replicas: u32,
    /// As last reported: segments of its log, those with fewer replicas, backups that take some.
    pub segments: u64,
    pub segments_short: u64,
    pub backups_usable: u64,
    pub serving: bool,
    /// `None` if it has no backup, or one that has not opened its storage yet.
    pub backup: Option<BackupStorage>,
}

/// What a backup has for replicas: frames, of one segment each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupStorage {
    pub frames: u32,
    pub frames_free: u32,
    pub frames_damaged: u32,
    pub segment_bytes: u32,
    /// Why it takes nothing new any more; empty while all is well.
    pub retired_reason: String,
}

/// The death of a process that held the only copy of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub cluster_time_ns: u64,
    pub member: String,
    pub server_ids: Vec<u64>,
    /// Names of tables that had a tablet there; bounded, `tables_dropped` counts the rest.
    pub tables: Vec<String>,
    pub tables_dropped: u64,
    pub tablet_count: u64,
    /// As last reported by the lost process.
    pub object_count: u64,
    pub live_bytes: u64,
}

/// What a dead server held is brought back from its log's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub server_id: u64,
    pub member: String,
    /// Cluster time at which its death was known.
    pub began_ns: u64,
    /// Cluster time at which the last tablet was served again; 0 while it is under way.
    pub ended_ns: u64,
    /// In how many parts they were brought back, where tablets were cut.
    pub tablet_count: u64,
    pub tablets_left: u64,
    /// Of its log's segments, as far as they are known.
    pub bytes: u64,
    pub objects: u64,
    /// From `bytes`, the masters at work, and what masters have replayed in a second so far; detection is not in it.
    pub expected_ms: u64,
    /// That replay at the same time.
    pub masters: u64,
    /// Why it does not go on, for people; empty while it does.
    pub waits_for: String,
}

impl Recovery {
    pub(crate) fn new(log: ServerId, member: &str, began_ns: u64, tablet_count: u64) -> Recovery {
        Recovery {
            server_id: log.0,
            member: member.to_owned(),
            began_ns,
            ended_ns: 0,
            tablet_count,
            tablets_left: tablet_count,
            bytes: 0,
            objects: 0,
            expected_ms: 0,
            masters: 0,
            waits_for: String::new(),
        }
    }
}

/// Some tables, ordered by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    pub tables: Vec<Table>,
    /// Set when there are more tables: the id to go on after.
    pub next_after_table_id: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub table_id: u64,
    pub name: String,
    pub tablets: Vec<Tablet>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TabletState {
    Normal,
    /// Its server is dead and the successor has not enlisted yet.
    Recovering,
}

/// A closed range of key hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablet {
    pub start_key_hash: u64,
    pub end_key_hash: u64,
    pub state: TabletState,
    pub server_id: u64,
    pub member: String,
}

/// Which member is to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    pub name: String,
    /// A process that is not to be let in from now on, even if it never enlisted. Empty: none beyond those that did.
    pub instance: String,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// Why a member cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveMemberError {
    /// No member of that name ever enlisted, or it was removed already.
    NotFound { member: String },
    /// It holds the only copy of these tables' tablets.
    OwnsTablets {
        member: String,
        tablet_count: u64,
        /// Names; bounded.
        tables: Vec<String>,
    },
    /// The caller means another store.
    OtherStore {
        expected_cluster_id: u64,
        cluster_id: u64,
    },
    /// The list of removed members is full.
    TooManyRemoved { limit: usize },
}

impl core::fmt::Display for RemoveMemberError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RemoveMemberError::NotFound { member } => {
                write!(f, "no member {member:?} in this store")
            }
            RemoveMemberError::OwnsTablets {
                member,
                tablet_count,
                tables,
            } => write!(
                f,
                "member {member:?} owns {tablet_count} tablets, the only copy of their data (tables: {}); \
                 drop these tables or keep the member",
                tables.join(", ")
            ),
            RemoveMemberError::OtherStore {
                expected_cluster_id,
                cluster_id,
            } => write!(
                f,
                "this is store {cluster_id:016x}, not {expected_cluster_id:016x}: look at its status again before removing anything"
            ),
            RemoveMemberError::TooManyRemoved { limit } => write!(
                f,
                "{limit} members were removed from this store already and are remembered; create a new store"
            ),
        }
    }
}

impl core::error::Error for RemoveMemberError {}
