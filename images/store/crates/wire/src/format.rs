//! Formats: versions of everything that is kept or that servers hand to each other. docs/upgrade.md.
//!
//! A store has one format in force: what is written is of that one. A build reads a range of formats. So a store can be taken to another build server by
//! server, and back, until everybody reads the next format and somebody puts that in force.

use core::fmt;
use core::ops::RangeInclusive;

use crate::entry::{EntryError, RawEntry};
use base::layout::CURRENT_FORMAT;
#[cfg(feature = "next-format")]
use base::layout::NEXT_FORMAT;

/// The first format: also that of builds that do not say which they read.
pub const FIRST_FORMAT: u32 = 1;

/// The formats that a build reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    pub oldest: u32,
    pub newest: u32,
}

impl Formats {
    /// Those of this version.
    pub const CURRENT: Formats = Formats {
        oldest: FIRST_FORMAT,
        newest: CURRENT_FORMAT,
    };

    /// Those of a version that is yet to come, for tests of upgrades.
    #[cfg(feature = "next-format")]
    pub const NEXT: Formats = Formats {
        oldest: CURRENT_FORMAT,
        newest: NEXT_FORMAT,
    };

    /// As a process says; one of a build that says nothing reads the first.
    pub fn said(oldest: u32, newest: u32) -> Formats {
        Formats {
            oldest: oldest.max(FIRST_FORMAT),
            newest: newest.max(FIRST_FORMAT),
        }
    }

    pub fn range(&self) -> RangeInclusive<u32> {
        self.oldest..=self.newest
    }

    pub fn reads(&self, format: u32) -> bool {
        self.range().contains(&format)
    }

    /// Whether a build that reads these formats knows how this entry lies in memory.
    pub fn check(&self, entry: &RawEntry<'_>) -> Result<(), EntryError> {
        if entry.format <= entry.kind.format_in(self.newest) {
            return Ok(());
        }
        Err(EntryError::UnknownFormat {
            kind: entry.kind,
            format: entry.format,
        })
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "format {}", self.newest)
        } else {
            write!(f, "formats {} to {}", self.oldest, self.newest)
        }
    }
}
