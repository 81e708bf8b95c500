//! Levels of [`crate::Output::log_message`].

pub const ERROR: u32 = 1;
pub const WARNING: u32 = 2;
pub const NOTICE: u32 = 3;
pub const DEBUG: u32 = 4;
