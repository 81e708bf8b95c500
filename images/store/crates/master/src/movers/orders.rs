//! Whether tablets of an order can be brought here.

use base::ids::TableId;
use wire::member::TabletRange;

use crate::data::Store;
use crate::data::tablets::{overlap, overlaps};
use crate::reports::Conflict;

/// Whether tablets, which are in order, can be made from what others have. `is_taken`: somebody is about to have one that overlaps.
pub(crate) fn may_bring_back(
    store: &Store,
    tablets: &[TabletRange],
    is_taken: impl Fn(&TabletRange) -> bool,
) -> Result<(), Conflict> {
    let is_odd = tablets
        .iter()
        .any(|tablet| tablet.start_key_hash > tablet.end_key_hash)
        || tablets.windows(2).any(|two| overlap(&two[0], &two[1]));
    if is_odd {
        return Err(Conflict::NoRanges);
    }
    let has = |tablet: &&TabletRange| overlaps(store.tablets.all(), tablet) || is_taken(tablet);
    match tablets.iter().find(has) {
        Some(tablet) => Err(Conflict::Taken {
            table_id: TableId(tablet.table_id),
        }),
        None => Ok(()),
    }
}
