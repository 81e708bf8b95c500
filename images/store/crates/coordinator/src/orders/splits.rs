//! Tables that are split by order.

use super::{OtherStore, TabletTable};
use crate::table_limit::TableLimit;

/// Which table is to be split, and into how many parts of equal width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitOrder {
    pub table: TabletTable,
    pub parts: u32,
    /// The store that is meant; 0 for whichever this is.
    pub expected_cluster_id: u64,
}

/// The result of a split: the table has a boundary at each even distance, and no balancing joins tablets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSplit {
    pub table_id: u64,
    /// Of the whole table, now; more than the parts if it had other boundaries, too.
    pub tablets: u64,
    /// Boundaries that were made.
    pub made: u64,
    /// Boundaries that the store had made for itself, and would have removed some time: they stay now.
    pub kept: u64,
}

/// Why a table is not split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitTableError {
    /// There is no such table.
    NotFound(TabletTable),
    /// The number of parts is none that any table can have.
    Parts {
        parts: u32,
        most: u32,
    },
    /// A limit of the table or the store stands against it.
    Limit {
        table: String,
        parts: u32,
        limit: TableLimit,
    },
    /// A tablet that is to be split has no server.
    Recovering {
        table: String,
    },
    /// Somebody has ordered a migration of a tablet that is to be split, and it is under way.
    Moving {
        table: String,
        migration: u64,
    },
    OtherStore(OtherStore),
    /// This coordinator does not lead; with the reason.
    DoesNotLead(String),
}

impl core::fmt::Display for SplitTableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SplitTableError::NotFound(table) => {
                write!(
                    f,
                    "there is no table {table}: create it first, or look for its name with `rcbox tables`"
                )
            }
            SplitTableError::Parts { parts, most } => write!(
                f,
                "a table cannot be split into {parts} parts: ask for 2 to {most}"
            ),
            SplitTableError::Limit {
                table,
                parts,
                limit,
            } => {
                write!(
                    f,
                    "table {table:?} is not split into {parts} parts: {limit}, or ask for fewer parts"
                )
            }
            SplitTableError::Recovering { table } => write!(
                f,
                "table {table:?} is not split now: a server of it is dead, and others are bringing its tablets back: order the split again \
                 when all of them are served"
            ),
            SplitTableError::Moving { table, migration } => write!(
                f,
                "table {table:?} is not split now: migration {migration}, which somebody has ordered, moves a tablet that would be split: \
                 order the split again when the migration has ended, or end it with `rcbox tablet give-up {migration}`"
            ),
            SplitTableError::OtherStore(other) => other.fmt(f),
            SplitTableError::DoesNotLead(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for SplitTableError {}
