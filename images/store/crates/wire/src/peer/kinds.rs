//! Kinds of requests: the first byte of each.

pub const APPEND: u8 = 1;
pub const KEEP_ALIVE: u8 = 2;
pub const FREE: u8 = 3;
pub const READ: u8 = 4;
pub const READ_ENTRIES: u8 = 5;
pub const LIST: u8 = 6;
pub const MIGRATE_READ: u8 = 7;
