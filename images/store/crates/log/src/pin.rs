//! The heads that the cleaner leaves alone for a reader.

use std::collections::VecDeque;

/// Heads that are kept as they are, oldest first, up to the present one.
#[derive(Debug)]
pub(crate) struct Pin {
    pub heads: VecDeque<u32>,
}
