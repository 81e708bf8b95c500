//! What was seen, and what must hold of it.

pub mod attempts;
pub mod boundaries;
pub mod checker;
pub mod deposed;
pub mod history;
pub mod moved;
pub mod oracle;
pub mod values;
