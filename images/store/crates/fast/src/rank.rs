//! The order of messages.

/// Where a message lies, in the order of who is to go first: the one of which the least is left.
pub type Rank = (usize, u32, u8);
