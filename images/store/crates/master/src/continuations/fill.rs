//! FILL_WITH_TEST_DATA, while it is under way.

use base::ids::{ReplyTo, TableId};

use crate::continuations::table::Continuations;

pub(crate) type Fills = Continuations<Fill>;

/// They take turns with all other requests as it is.
pub(crate) const MAX_FILLS: usize = 1;

/// A fill that is under way.
pub(crate) struct Fill {
    pub to: ReplyTo,
    pub tables: Vec<TableId>,
    pub next: u32,
    pub count: u32,
    pub value: Vec<u8>,
}
