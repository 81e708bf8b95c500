//! What the coordinator shows: plain structs, field for field those of the admin API (`admin.proto`).

use base::ids::ServerId;
use wire::member::{LogRoom, Settings};

pub use crate::balancing::{Measure, MoveReason};
pub use crate::hindrance::{Hindrance, Master, Tablets, TooFewMachines};
pub use crate::registry::ports::{Ping, Port};

/// The whole store at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Chosen at random when this coordinator's state was created; another id is another, empty store.
    pub cluster_id: u64,
    /// Upper half of every table id.
    pub cluster_tag: u32,
    /// Nanoseconds since the state was created; monotone.
    pub cluster_time_ns: u64,
    /// The one in force: what is kept is written in it.
    pub format_version: u32,
    pub upgrade: Upgrade,
    /// What people have set; its number is 0 if they have set nothing.
    pub settings: Settings,
    pub build_version: String,
    pub members: Vec<Member>,
    pub table_count: u64,
    /// Replicas of the log with the fewest; 0 while there is none.
    pub replicas: u32,
    /// Those that have ended, some of them, and those under way.
    pub recoveries: Vec<Recovery>,
    /// Likewise, and those that wait.
    pub migrations: Vec<Migration>,
    pub balance: Balance,
    /// Oldest first.
    pub losses: Vec<Loss>,
    /// Losses that are no longer kept.
    pub losses_dropped: u64,
    /// Client leases that have not expired.
    pub client_lease_count: u64,
    /// Counts the coordinators that have led the store; 0 if nobody counts.
    pub term: u64,
    /// Counts what was noted of the state.
    pub sequence: u64,
    /// Why this coordinator does not lead, for people; empty while it does.
    pub refusal: String,
    /// For how long this process has led.
    pub leading_ms: u64,
    /// So long it waits for members that it knows from the state only.
    pub patience_ms: u64,
    /// What the volumes have of the coordinator's state; `None`: the store has no copies.
    pub checkpoint: Option<Checkpoint>,
    /// When the store was made again from volumes last, and from what.
    pub rebuilt: Option<Rebuilt>,
    /// Set while what is shown here may not be noted yet: nothing is to be done that relies on it.
    pub state_wait: Option<StateWait>,
}

/// Whether a newer format can be put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// What this coordinator's build reads.
    pub oldest_format: u32,
    pub newest_format: u32,
    /// For people: who does not read the newest, if it is not in force yet; bounded.
    pub hindrances: Vec<String>,
}

/// The newest copy of the coordinator's state for the volumes of backups, from which these make the store again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub term: u64,
    /// Counts those of one leader; 0: there is none yet.
    pub number: u64,
    pub bytes: u64,
    pub age_ms: u64,
    /// Volumes of so many members must have it.
    pub members_wanted: u32,
    /// They have, and nothing has changed since that volumes alone would not bring back.
    pub is_current: bool,
    pub keepers: Vec<CheckpointKeeper>,
}

/// A connected backup that keeps checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointKeeper {
    pub server_id: u64,
    /// Of the newest that it is known to keep; 0: none yet.
    pub number: u64,
    /// Nothing that matters has changed since.
    pub is_current: bool,
    /// Why it could not keep the last one, for people.
    pub failure: String,
}

/// The coordinator cannot note what it does; what depends on that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWait {
    /// For so long.
    pub waited_ms: u64,
    /// For people.
    pub why: String,
    /// Answers, orders and others that wait.
    pub held: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// All shards are connected.
    Up,
    /// Enlisted, but at least one shard's connection is gone. Its tablets stay with it.
    Unreachable,
}

/// What this coordinator has itself heard of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Not of every shard since it leads.
    NotYet,
    Heard,
    /// The process was declared dead, and no other has come.
    Dead,
}

/// A named place in the store; outlives processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub state: MemberState,
    pub contact: Contact,
    pub instance: String,
    pub host_id: String,
    pub build_version: String,
    /// Formats that this build reads.
    pub oldest_format: u32,
    pub newest_format: u32,
    pub shards: Vec<Shard>,
    /// How many processes this member has had, the present one included.
    pub incarnations: u64,
    /// What fails together beyond the host, as its process said.
    pub domain: String,
    /// Set while it is to leave the store.
    pub draining: Option<Draining>,
    /// Beside TCP on the pod network, as its process told last; empty of one that has none.
    pub ports: Vec<Port>,
}

/// How far a member is with leaving the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draining {
    /// It has nothing any more that anybody needs, and gets nothing: it can be removed.
    pub is_drained: bool,
    /// That it serves.
    pub tablets: u64,
    /// Segments of other servers' logs with a copy there, as those servers last said; one in two logs counts twice.
    pub copies: u64,
    /// Why it is not drained; empty if it is. Bounded.
    pub waits_for: Vec<Hindrance>,
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
    /// [`Settings::number`] of what is in force there, as last reported; 0: nothing, or a build that takes no settings.
    pub settings: u64,
    /// Since it was heard; `None`: this coordinator has not heard it since it leads.
    pub heard_ms: Option<u64>,
    /// `None` if it has not said, or is of an older build.
    pub room: Option<LogRoom>,
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
    /// The operation that its device takes too long for; empty while all is well.
    pub stalled_reason: String,
}

/// Objects that are gone: a process died that held the only copy, or somebody has given up what no backup had any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub cluster_time_ns: u64,
    pub member: String,
    pub server_ids: Vec<u64>,
    /// Names of tables that had a tablet there; bounded, `tables_dropped` counts the rest.
    pub tables: Vec<String>,
    pub tables_dropped: u64,
    pub tablet_count: u64,
    /// As last reported by the lost process; 0 where `missing` says something: nobody knows how many these were.
    pub object_count: u64,
    pub live_bytes: u64,
    /// What was given up, for people; empty: a process died that had the only copy.
    pub missing: String,
    /// The process never reported to the coordinator that noted this: nobody knows how much it held.
    pub uncounted: bool,
    /// What the process that died said of itself (a pod's uid); empty where something was given up.
    pub instance: String,
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
    /// What no backup that answers has; then nothing but the return of a disk, or [`Acceptance`], lets it go on.
    pub missing: Vec<MissingLog>,
    /// Stands for exactly what is missing, and for what is left; empty if nothing is missing.
    pub loss_token: String,
}

/// What of a dead server's log cannot be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingLog {
    pub server_id: u64,
    /// The first of them.
    pub segments: Vec<u64>,
    pub segment_count: u64,
    /// Its newest segment, which says what the log consists of.
    pub lacks_head: bool,
    /// What would be read if this were accepted.
    pub segments_left: u64,
    pub bytes_left: u64,
    /// The same for people, with replicas that are damaged.
    pub text: String,
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
            missing: Vec::new(),
            loss_token: String::new(),
        }
    }
}

/// A tablet moves from one living server to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    pub id: u64,
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    pub start_key_hash: u64,
    pub end_key_hash: u64,
    pub source_id: u64,
    pub source_member: String,
    pub target_id: u64,
    pub target_member: String,
    /// Cluster times; `ended_ns` is 0 while it is under way.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Of entries that the target has read, as it last said.
    pub bytes: u64,
    pub objects: u64,
    /// The tablet is not written any more, until the target serves it.
    pub is_frozen: bool,
    /// Why it was given up, for people; the source has the tablet still.
    pub failure: String,
    /// Why it has not begun, for people; empty once it has.
    pub waits_for: String,
    /// Why the coordinator moves it by itself; `None`: somebody has ordered it.
    pub reason: Option<MoveReason>,
}

/// What the coordinator moves by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Servers are to have about as much each. Members that drain are emptied in any case.
    pub is_on: bool,
    /// For people; empty while nothing is to move.
    pub doing: String,
    /// Why not more is begun, for people; empty while nothing stands against it.
    pub waits_for: String,
    /// Left on members that drain, what is on its way not counted.
    pub tablets_to_evacuate: u64,
    pub bytes_to_evacuate: u64,
    /// That servers have above their shares.
    pub bytes_to_even_out: u64,
    /// Migrations begun since this coordinator leads.
    pub moves_begun: u64,
    /// Pairs of tablets that were made one since then.
    pub merges: u64,
    /// For now, because migrations of them, or to them, failed.
    pub tablets_left_alone: u64,
    pub servers_left_alone: u64,
}

/// A store that was made again from volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    pub cluster_time_ns: u64,
    /// The checkpoint that it was made from: what was noted after it is not known.
    pub checkpoint_term: u64,
    pub checkpoint_number: u64,
    /// Members whose volumes were not there.
    pub without: Vec<String>,
    /// Those of them that were given up: with as many missing, a newer checkpoint may have been there.
    pub given_up: Vec<String>,
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
    /// As its server has estimated it last; 0: it has not said yet, or it has none.
    pub bytes: u64,
    pub objects: u64,
    /// Of late.
    pub operations_per_second: u64,
}

/// What kind of thing has happened. The numbers are noted, and those of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    ProcessDead = 1,
    RecoveryEnded = 2,
    TabletMoved = 3,
    MemberRemoved = 4,
    SettingsChanged = 5,
    FormatInForce = 6,
    LossAccepted = 7,
}

/// Something worth knowing about that has happened to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub cluster_time_ns: u64,
    /// An [`EventKind`], or one that a newer build has noted.
    pub kind: u32,
    /// For people: a sentence that names the event and whom it concerns.
    pub text: String,
}
