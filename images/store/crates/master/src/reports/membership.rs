//! Events of a shard's session with the coordinator.

use core::fmt;

use base::ids::TableId;
use base::level::Level;
use wire::member::ImpossibleSettings;

use super::refusal::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipEvent {
    UnknownMessage,
    OrderBeforeWelcome,
    /// The coordinator gave an order for a backup, and there is none.
    OrderForBackup,
    SenselessWelcome,
    /// The shard does not obey this coordinator.
    Refused(Refusal),
    /// A coordinator names another term than the one in which it let the shard in.
    TermChanged {
        welcomed_in: u64,
        told: u64,
    },
    /// A tablet is ordered that overlaps one that is here.
    Overlap,
    /// Tablets are to become one of which this server does not have all.
    CannotMerge {
        table_id: TableId,
    },
    ImpossibleSettings(ImpossibleSettings),
    /// The coordinator asks whether more servers are alive than are asked at a time.
    TooManyProbes {
        most: usize,
    },
}

impl MembershipEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            MembershipEvent::UnknownMessage
            | MembershipEvent::OrderBeforeWelcome
            | MembershipEvent::OrderForBackup
            | MembershipEvent::SenselessWelcome
            | MembershipEvent::Refused(_)
            | MembershipEvent::TermChanged { .. }
            | MembershipEvent::Overlap
            | MembershipEvent::CannotMerge { .. }
            | MembershipEvent::ImpossibleSettings(_) => Level::Error,
            MembershipEvent::TooManyProbes { .. } => Level::Warning,
        }
    }
}

impl fmt::Display for MembershipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipEvent::UnknownMessage => f.write_str(
                "the coordinator sent a message of an unknown kind: is it newer than this server?",
            ),
            MembershipEvent::OrderBeforeWelcome => {
                f.write_str("the coordinator gave an order before it let this server in")
            }
            MembershipEvent::OrderForBackup => {
                f.write_str("the coordinator gave an order that nobody here carries out")
            }
            MembershipEvent::SenselessWelcome => {
                f.write_str("the coordinator's welcome makes no sense for this server")
            }
            MembershipEvent::Refused(refusal) => refusal.fmt(f),
            MembershipEvent::TermChanged { welcomed_in, told } => write!(
                f,
                "the coordinator was of term {welcomed_in} when it let this server in, and says that it is of term {told}: it is asked again"
            ),
            MembershipEvent::Overlap => {
                f.write_str("the coordinator ordered a tablet that overlaps one held already")
            }
            MembershipEvent::CannotMerge { table_id } => write!(
                f,
                "the coordinator orders tablets of table {table_id} to become one, and this server does not own all of them: they stay as they are"
            ),
            MembershipEvent::ImpossibleSettings(why) => {
                write!(f, "the coordinator's settings are passed over: {why}")
            }
            MembershipEvent::TooManyProbes { most } => write!(
                f,
                "asked about more than {most} servers at once: not all are looked at"
            ),
        }
    }
}
