//! What stands against a member's leaving the store. docs/drain.md lists it, and what to do.

use core::fmt::{self, Display};

use base::ids::ServerId;

/// A reason why a member cannot be drained, is not drained yet, or must not be removed; [`Display`] is a sentence for people, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Others cannot read its tablets: `why`, with what to do about that.
    CannotGive {
        why: String,
        tablets: Tablets,
    },
    NobodyTakesTablets {
        server: ServerId,
        tablets: Tablets,
    },
    TabletsMove {
        tablets: Tablets,
    },
    /// Its backups get copies where nobody else can.
    LastResort,
    BackupOpens {
        server: ServerId,
    },
    /// The log of a dead server, whose recovery misses parts of it.
    LogIncomplete {
        recovery: ServerId,
        log: Master,
    },
    LogIsRead {
        log: Master,
    },
    LogNotCopied {
        log: Master,
    },
    NotConnected {
        master: Master,
    },
    /// It has not said what it is short of since the backups of the store have changed.
    NotUpToDate {
        master: Master,
    },
    /// It has copies here; they go elsewhere, unless there are too few machines.
    CopiesMove {
        master: Master,
        copies: u64,
        stays: Option<TooFewMachines>,
    },
    /// It runs an older build.
    KnowsNoDraining {
        master: Master,
    },
    CopiesMissing {
        master: Master,
        segments_short: u64,
        segments: u64,
    },
    TooFewMachines(TooFewMachines),
}

/// A server with a log, and its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    pub id: ServerId,
    pub member: String,
}

/// Tablets that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablets {
    pub count: u64,
    /// Names of their tables; bounded.
    pub tables: Vec<String>,
    pub more_tables: u64,
}

/// A master could not have as many copies as it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooFewMachines {
    pub master: Master,
    pub wanted: usize,
    pub left: usize,
}

impl Hindrance {
    /// Whether it lasts until another member is started.
    pub fn lacks_machines(&self) -> bool {
        matches!(
            self,
            Hindrance::TooFewMachines(_) | Hindrance::CopiesMove { stays: Some(_), .. }
        )
    }
}

/// One sentence for each.
pub(crate) fn joined(hindrances: &[Hindrance]) -> String {
    let sentences: Vec<String> = hindrances.iter().map(Hindrance::to_string).collect();
    sentences.join("; ")
}

impl Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hindrance::CannotGive { why, tablets } => write!(
                f,
                "{why}, or drop these tables ({} tablets): {}",
                tablets.count,
                tablets.named()
            ),
            Hindrance::NobodyTakesTablets { server, tablets } => write!(
                f,
                "server {server} serves {} tablets (tables: {}), and no other server that stays could take them: start another one first",
                tablets.count,
                tablets.named()
            ),
            Hindrance::TabletsMove { tablets } => write!(
                f,
                "{} tablets are to move to other servers (tables: {})",
                tablets.count,
                tablets.named()
            ),
            Hindrance::LastResort => f.write_str(
                "it may still get copies where there are too few others, until all servers know that it gets none: ask again in a second",
            ),
            Hindrance::BackupOpens { server } => write!(
                f,
                "the backup of server {server} has not opened its storage yet: ask again in a second; if that lasts, its log says why"
            ),
            Hindrance::LogIncomplete { recovery, log } => write!(
                f,
                "the recovery of server {recovery} misses parts of the log of {log}, and this member's disk may have them: bring it back, \
                 or, if that cannot be, accept the loss first (rcbox recovery accept-loss {recovery})"
            ),
            Hindrance::LogIsRead { log } => write!(
                f,
                "the log of {log} is being read to recover what that server held: wait until the status shows no recovery of it"
            ),
            Hindrance::LogNotCopied { log } => write!(
                f,
                "what was recovered from the log of {log} has not all got new copies yet: wait some seconds"
            ),
            Hindrance::NotConnected { .. }
            | Hindrance::NotUpToDate { .. }
            | Hindrance::CopiesMove { .. }
            | Hindrance::KnowsNoDraining { .. }
            | Hindrance::CopiesMissing { .. }
            | Hindrance::TooFewMachines(_) => self.write_need_of_master(f),
        }
    }
}

impl Hindrance {
    fn write_need_of_master(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hindrance::NotConnected { master } => write!(
                f,
                "{master} is not connected, and whether it is dead is not decided: its log would be read from copies; wait until it is back \
                 or recovered"
            ),
            Hindrance::NotUpToDate { master } => write!(
                f,
                "{master} has not said yet what it is short of since the backups of the store have changed: ask again in a second"
            ),
            Hindrance::CopiesMove {
                master,
                copies,
                stays,
            } => {
                write!(
                    f,
                    "{copies} segments of the log of {master} have copies here that are made again elsewhere"
                )?;
                match stays {
                    Some(too_few) => write!(f, ", but {too_few}"),
                    None => Ok(()),
                }
            }
            Hindrance::KnowsNoDraining { master } => write!(
                f,
                "{master} does not say what it has here: its build is older and knows nothing of draining"
            ),
            Hindrance::CopiesMissing {
                master,
                segments_short,
                segments,
            } => write!(
                f,
                "{segments_short} of {segments} segments of the log of {master} have fewer copies than they should: wait until they are \
                 made again (the status counts them)"
            ),
            Hindrance::TooFewMachines(too_few) => too_few.fmt(f),
            _ => Ok(()),
        }
    }
}

impl Display for TooFewMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machines = if self.left == 1 {
            "machine"
        } else {
            "machines"
        };
        write!(
            f,
            "{} wants {} copies on other machines, and there would be {} {machines} left for them: start another member first",
            self.master, self.wanted, self.left
        )
    }
}

impl Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} (member {:?})", self.id, self.member)
    }
}

impl Tablets {
    /// Names, and how many there are beyond these.
    fn named(&self) -> String {
        let names = self.tables.join(", ");
        match self.more_tables {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}
