//! Events of tables and their tablets.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;

use crate::table_limit::TableLimit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableEvent {
    /// The coordinator has split a tablet by itself.
    Cut {
        table: String,
    },
    /// Two tablets are one.
    Merged {
        table: String,
        server: ServerId,
    },
    /// Somebody has ordered that a table is split at even distances.
    Split {
        table: String,
        parts: u32,
        /// Boundaries that it lacked.
        made: u64,
        /// Boundaries of the store's own that stay now.
        kept: u64,
    },
    CreateRefused(TableLimit),
    SplitRefused(TableLimit),
}

impl TableEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            TableEvent::CreateRefused(_) | TableEvent::SplitRefused(_) => Level::Warning,
            TableEvent::Cut { .. } | TableEvent::Merged { .. } | TableEvent::Split { .. } => {
                Level::Notice
            }
        }
    }
}

impl fmt::Display for TableEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableEvent::Cut { table } => write!(
                f,
                "a tablet of table {table:?} is cut, to be moved in parts"
            ),
            TableEvent::Merged { table, server } => write!(
                f,
                "two tablets of table {table:?} at server {server} are one again"
            ),
            TableEvent::Split {
                table,
                parts,
                made,
                kept,
            } => write!(
                f,
                "table {table:?} is split into {parts} parts by order: {made} new boundaries, and {kept} of the store's own, which stay"
            ),
            TableEvent::CreateRefused(limit) => write!(f, "CREATE_TABLE refused: {limit}"),
            TableEvent::SplitRefused(limit) => write!(f, "SPLIT_TABLET refused: {limit}"),
        }
    }
}
