//! Why a recovery or a migration ends without its tablets, and whether it may begin.

use wire::ids::TableId;
use wire::member::TabletRange;

use crate::data::Store;
use crate::data::tablets::{overlap, overlaps};

/// Why a recovery, or a migration, ends here.
pub(crate) struct Failed {
    pub text: String,
    pub is_full: bool,
}

impl Failed {
    pub fn other(text: impl Into<String>) -> Failed {
        Failed {
            text: text.into(),
            is_full: false,
        }
    }

    pub fn full(what: &str) -> Failed {
        Failed {
            text: format!(
                "no room here for what is replayed: {what}; give servers more memory or the store more servers"
            ),
            is_full: true,
        }
    }
}

/// Whether tablets, which are in order, can be made from what others have. `is_taken`: somebody is about to have one that overlaps.
pub(crate) fn may_bring_back(
    store: &Store,
    tablets: &[TabletRange],
    is_taken: impl Fn(&TabletRange) -> bool,
) -> Result<(), String> {
    let is_odd = tablets
        .iter()
        .any(|tablet| tablet.start_key_hash > tablet.end_key_hash)
        || tablets.windows(2).any(|two| overlap(&two[0], &two[1]));
    if is_odd {
        return Err("the tablets of the order overlap, or are no ranges".to_owned());
    }
    let has = |tablet: &&TabletRange| overlaps(store.tablets.all(), tablet) || is_taken(tablet);
    match tablets.iter().find(has) {
        Some(tablet) => Err(format!(
            "a tablet of table {} overlaps one that this server has, or brings back already",
            TableId(tablet.table_id)
        )),
        None => Ok(()),
    }
}
