//! Limits against which tables and tablets are not made.

use core::fmt;

/// A limit against which a table or a tablet is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLimit {
    NameBytes {
        most: usize,
        asked: usize,
    },
    Span {
        most: u32,
        asked: u32,
    },
    Numbers,
    Tables {
        count: usize,
    },
    /// A span makes too many tablets for one table.
    TabletsOfTable {
        span: u32,
        tablets: usize,
        most: usize,
    },
    /// A span makes too many tablets for the store.
    Tablets {
        span: u32,
        tablets: usize,
        count: usize,
        most: usize,
    },
    /// One more tablet is too many, for the table or for the store.
    Split {
        of_table: usize,
        most_of_table: usize,
        count: usize,
        most: usize,
    },
}

impl fmt::Display for TableLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableLimit::NameBytes { most, asked } => write!(
                f,
                "the name of a table has at most {most} bytes, this one {asked}"
            ),
            TableLimit::Span { most, asked } => write!(
                f,
                "the span of a table is at most {most}, {asked} was asked for"
            ),
            TableLimit::Numbers => f.write_str(
                "all numbers of tables were given out: begin a new store, and copy the tables to it",
            ),
            TableLimit::Tables { count } => write!(
                f,
                "the store has {count} tables, which is its limit; drop some"
            ),
            TableLimit::TabletsOfTable {
                span,
                tablets,
                most,
            } => write!(
                f,
                "span {span} makes {tablets} tablets; a table has at most {most}: ask for a smaller span"
            ),
            TableLimit::Tablets {
                span,
                tablets,
                count,
                most,
            } => write!(
                f,
                "span {span} makes {tablets} tablets, and the store has {count} of at most {most}; drop tables or ask for a smaller span"
            ),
            TableLimit::Split {
                of_table,
                most_of_table,
                count,
                most,
            } => write!(
                f,
                "the table has {of_table} tablets of at most {most_of_table}, the store {count} of at most {most}; drop tables"
            ),
        }
    }
}
