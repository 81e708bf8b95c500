//! Numbers of the formats whose layouts this build has.

/// The newest format whose layouts are compiled in.
pub const NEWEST_LAYOUT: u32 = if cfg!(feature = "next-format") {
    NEXT_FORMAT
} else {
    CURRENT_FORMAT
};

pub const CURRENT_FORMAT: u32 = 1;
pub const NEXT_FORMAT: u32 = CURRENT_FORMAT + 1;
