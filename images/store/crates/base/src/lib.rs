//! Vocabulary of the pure crates: time, ids, maps with the same order in every run, numbers of formats, levels of log events, and bugs
//! that tests plant. Nothing here is encoded or decoded: formats are in `wire`.

#![forbid(unsafe_code)]

pub mod bugs;
pub mod ids;
pub mod layout;
pub mod level;
pub mod map;
pub mod time;
