//! What people and the operator order, and why an order is refused: plain structs, field for field those of the admin API (`admin.proto`).

mod splits;

use base::ids::ServerId;
use wire::format::Formats;
use wire::member::{ImpossibleSettings, Settings};

use crate::hindrance::{Hindrance, joined};
pub use crate::records::SpecVersion;
pub use splits::{SplitOrder, SplitTableError, TableSplit};

/// Why a migration was not given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveUpMigrationError {
    /// None of that number waits or is under way.
    NotFound(u64),
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for GiveUpMigrationError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            GiveUpMigrationError::NotFound(id) => {
                write!(f, "no migration {id} waits or is under way")
            }
            GiveUpMigrationError::OtherStore(other) => other.fmt(f),
            GiveUpMigrationError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for GiveUpMigrationError {}

/// Somebody's word that what these members' volumes held is gone for good, and that the store shall be made again without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surrender {
    pub members: Vec<String>,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// Why volumes are not given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SurrenderError {
    /// No store is being made again.
    NotRebuilding,
    /// What volumes are needed is not known yet; with what is waited for.
    TooEarly(String),
    /// These are not waited for; and those that are.
    NotMissing {
        members: Vec<String>,
        missing: Vec<String>,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for SurrenderError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SurrenderError::NotRebuilding => {
                f.write_str("the store is not being made again from its volumes")
            }
            SurrenderError::TooEarly(why) => {
                write!(f, "it is not known yet which volumes are needed: {why}")
            }
            SurrenderError::NotMissing { members, missing } => write!(
                f,
                "the volumes of {} are not waited for; those of {} are",
                members.join(", "),
                match missing.is_empty() {
                    true => "nobody".to_owned(),
                    false => missing.join(", "),
                }
            ),
            SurrenderError::OtherStore(other) => other.fmt(f),
            SurrenderError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for SurrenderError {}

/// Which tablet is to go where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationOrder {
    pub table: TabletTable,
    /// The tablet that holds it.
    pub key_hash: u64,
    pub target: MigrationTarget,
    /// Of the copy that is made while the tablet is used, at most; 0: as much as is usual.
    pub bytes_per_second: u64,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TabletTable {
    Id(u64),
    Name(String),
}

impl core::fmt::Display for TabletTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            TabletTable::Id(id) => write!(f, "{id:#x}"),
            TabletTable::Name(name) => write!(f, "{name:?}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationTarget {
    Server(ServerId),
    /// Whichever of its servers has the fewest tablets.
    Member(String),
}

/// Why a migration was not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrateError {
    /// No such table, server or member.
    NotFound(String),
    /// It is that server's already.
    IsThere {
        server: ServerId,
    },
    /// One of the two is in another migration, and more wait than fit.
    Busy(String),
    /// One of the two has no connection to the coordinator.
    NotConnected {
        server: ServerId,
    },
    /// Something stands against it.
    Refused(String),
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            MigrateError::NotFound(text)
            | MigrateError::Busy(text)
            | MigrateError::DoesNotLead(text) => f.write_str(text),
            MigrateError::IsThere { server } => {
                write!(f, "server {server} has this tablet already")
            }
            MigrateError::NotConnected { server } => {
                write!(
                    f,
                    "the tablet cannot move: server {server} is not connected"
                )
            }
            MigrateError::Refused(text) => write!(f, "the tablet cannot move: {text}"),
            MigrateError::OtherStore(other) => other.fmt(f),
        }
    }
}

impl core::error::Error for MigrateError {}

/// Which member is to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    pub name: String,
    /// A process that is not to be let in from now on, even if it never enlisted. Empty: none beyond those that did.
    pub instance: String,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
    /// Also if copies that it keeps may be needed: what then cannot be recovered is lost.
    pub gives_up_copies: bool,
}

/// Which member is to leave the store, or to stay after all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    pub name: String,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// A control operation for some shards.
pub struct ControlOrder {
    /// Empty: all.
    pub member: String,
    pub shard_index: Option<u32>,
    pub op: u32,
    pub input: Vec<u8>,
}

/// A shard that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub server_id: ServerId,
    pub member: String,
    pub shard_index: u32,
}

/// Why none is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    NoMember(String),
    NotConnected,
    Busy,
}

impl core::fmt::Display for ControlError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ControlError::NoMember(name) => write!(f, "no member {name:?} in this store"),
            ControlError::NotConnected => {
                f.write_str("no such shard is connected to the coordinator now; `rcbox status` shows those that are")
            }
            ControlError::Busy => {
                f.write_str("too many questions to servers are under way; ask again in a second")
            }
        }
    }
}

/// Why a member is not drained, or not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainError {
    /// No member of that name ever enlisted, or it was removed already.
    NotFound {
        member: String,
    },
    /// It could not end; bounded.
    CannotEnd {
        member: String,
        reasons: Vec<Hindrance>,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for DrainError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DrainError::NotFound { member } => write!(f, "no member {member:?} in this store"),
            DrainError::CannotEnd { member, reasons } => write!(
                f,
                "member {member:?} cannot be drained now: {}",
                joined(reasons)
            ),
            DrainError::OtherStore(other) => other.fmt(f),
            DrainError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for DrainError {}

/// The caller means another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherStore {
    pub expected_cluster_id: u64,
    pub cluster_id: u64,
}

impl core::fmt::Display for OtherStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "this is store {:016x}, not {:016x}: look at its status again before changing anything",
            self.cluster_id, self.expected_cluster_id
        )
    }
}

/// Why a member cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveMemberError {
    /// No member of that name ever enlisted, or it was removed already.
    NotFound {
        member: String,
    },
    /// It serves these tables' tablets.
    OwnsTablets {
        member: String,
        tablet_count: u64,
        /// Names; bounded.
        tables: Vec<String>,
        /// Others have copies of them.
        is_replicated: bool,
    },
    /// Copies that it keeps for others may be the last ones; bounded.
    CopiesNeeded {
        member: String,
        reasons: Vec<Hindrance>,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
    /// The list of removed members is full.
    TooManyRemoved {
        limit: usize,
    },
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
                is_replicated: false,
            } => write!(
                f,
                "member {member:?} owns {tablet_count} tablets, the only copy of their data (tables: {}); \
                 drain the member, which moves them to others, or drop these tables",
                tables.join(", ")
            ),
            RemoveMemberError::OwnsTablets {
                member,
                tablet_count,
                tables,
                is_replicated: true,
            } => write!(
                f,
                "member {member:?} serves {tablet_count} tablets (tables: {}); end its process, wait until the others have brought \
                 them back, and remove it then; or drop these tables",
                tables.join(", ")
            ),
            RemoveMemberError::CopiesNeeded { member, reasons } => write!(
                f,
                "member {member:?} may keep copies that are needed: {}",
                joined(reasons)
            ),
            RemoveMemberError::OtherStore(other) => other.fmt(f),
            RemoveMemberError::DoesNotLead(why) => f.write_str(why),
            RemoveMemberError::TooManyRemoved { limit } => write!(
                f,
                "{limit} members were removed from this store already and are remembered; create a new store"
            ),
        }
    }
}

impl core::error::Error for RemoveMemberError {}

/// What is to be set, in the place of all that was; numbers of copies that it leaves out stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsOrder {
    /// Its number is of no account.
    pub settings: Settings,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
    /// What asks for them; `None`: a person.
    pub asked_by: Option<SpecVersion>,
    /// There are to be fewer copies than the number that the caller believes to be in force, which is this; `None`: there are not.
    pub fewer_than: Option<u32>,
}

/// Copies of each segment of a log, and with how few writes go on; `None` where nobody has set that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub replicas: u32,
    pub least: Option<u32>,
}

impl core::fmt::Display for Copies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "replicas {}", self.replicas)?;
        match self.least {
            Some(least) => write!(f, " and minReplicas {least}"),
            None => Ok(()),
        }
    }
}

/// Why settings are not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    Impossible(ImpossibleSettings),
    /// This server's log has no copies, and where copies go is said when a server is started.
    WithoutCopies {
        server: ServerId,
        member: String,
    },
    /// There would be fewer copies, and the order does not say that this is meant.
    FewerCopies {
        asked: Copies,
        in_force: Copies,
    },
    /// The caller is mistaken about the number of copies.
    OtherCopies {
        expected: u32,
        in_force: Copies,
    },
    /// One version of a specification does not ask for two numbers, and an older one has no say any more.
    NotNewer {
        in_force: Copies,
        by: SpecVersion,
        asked_by: SpecVersion,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SettingsError::Impossible(why) => why.fmt(f),
            SettingsError::WithoutCopies { server, member } => write!(
                f,
                "replicas cannot be set while server {server} of member {member:?} runs without copies: start all servers with copies (-r) first"
            ),
            SettingsError::DoesNotLead(why) => f.write_str(why),
            SettingsError::FewerCopies { asked, in_force } => write!(
                f,
                "there would be fewer copies: {asked}, while {in_force} are in force, and the request does not say that this is meant. \
                 A request for fewer names the number of copies in force (fewer_copies), as rcbox settings set does"
            ),
            SettingsError::OtherCopies { expected, in_force } => write!(
                f,
                "copies are not made fewer: the request expects {expected} in force, and {in_force} are. Look at the status again"
            ),
            SettingsError::NotNewer {
                in_force,
                by,
                asked_by,
            } => write!(
                f,
                "copies are not made fewer: generation {} of specification {} asks for that, and generation {} of it put {in_force} in force. \
                 Fewer copies need a newer generation",
                asked_by.generation, asked_by.uid, by.generation
            ),
            SettingsError::OtherStore(other) => other.fmt(f),
        }
    }
}

impl core::error::Error for SettingsError {}

/// Which format is to be in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finalize {
    /// 0: the newest that the coordinator reads.
    pub format: u32,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// Why a format is not put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinalizeError {
    /// These members, one sentence for each, do not read it; bounded.
    OldMembers {
        format: u32,
        hindrances: Vec<String>,
    },
    /// It is older than the one that is in force, or this coordinator does not read it.
    NotPossible {
        format: u32,
        in_force: u32,
        known: Formats,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for FinalizeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FinalizeError::OldMembers { format, hindrances } => write!(
                f,
                "format {format} cannot be put in force: {}",
                hindrances.join("; ")
            ),
            FinalizeError::NotPossible {
                format,
                in_force,
                known,
            } => write!(
                f,
                "format {format} cannot be put in force: format {in_force} is, there is no way back, and this coordinator reads {known}"
            ),
            FinalizeError::OtherStore(other) => other.fmt(f),
            FinalizeError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for FinalizeError {}

/// Somebody's word that what a recovery misses is gone for ever, and that it shall go on without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// The dead server whose recovery is meant.
    pub server_id: u64,
    /// What the status showed as [`Recovery::loss_token`].
    pub token: String,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// Why a loss was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptLossError {
    NoRecovery {
        server: ServerId,
    },
    /// All that it needs is there, or masters work on it.
    NothingMissing {
        server: ServerId,
        waits_for: String,
    },
    /// The search has just begun, and backups that are connected have yet to say what they hold.
    StillAsked {
        server: ServerId,
        silent: String,
    },
    /// Something else is missing, or less is left, than what the caller has seen.
    OtherLoss {
        server: ServerId,
        token: String,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for AcceptLossError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            AcceptLossError::NoRecovery { server } => write!(
                f,
                "no recovery of server {server} is under way; the status names those that are"
            ),
            AcceptLossError::NothingMissing { server, waits_for } => {
                write!(
                    f,
                    "the recovery of server {server} misses nothing that could be given up; "
                )?;
                match waits_for.as_str() {
                    "" => write!(f, "it goes on by itself"),
                    what => write!(f, "what it waits for: {what}"),
                }
            }
            AcceptLossError::StillAsked { server, silent } => write!(
                f,
                "what the recovery of server {server} misses is not known yet: {silent}; look at the status again in a second"
            ),
            AcceptLossError::OtherLoss { server, token } => write!(
                f,
                "what the recovery of server {server} misses, or what is left, is not what you have seen: look at the status again \
                 (its token is {token} now)"
            ),
            AcceptLossError::OtherStore(other) => other.fmt(f),
            AcceptLossError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for AcceptLossError {}
