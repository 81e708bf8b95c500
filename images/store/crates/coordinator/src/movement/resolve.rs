//! Which tablet and which servers an order is about.

use wire::member::TabletRange;

use crate::directory::tables::NOBODY;
use crate::orders::{MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use crate::registry::members::Server;
use crate::store::Store;

/// A tablet's range, its owner's index, and its table's name.
pub(crate) fn tablet_to_migrate(
    store: &Store,
    order: &MigrationOrder,
) -> Result<(TabletRange, u32, String), MigrateError> {
    let id = match &order.table {
        TabletTable::Id(id) => Some(*id),
        TabletTable::Name(name) => store.tables.id_of(name.as_bytes()),
    };
    let table = id.and_then(|id| store.tables.get(id));
    let Some(table) = table else {
        let text = format!("there is no table {}", order.table);
        return Err(MigrateError::NotFound(text));
    };
    let tablet = table.tablet_of(order.key_hash);
    if tablet.owner == NOBODY {
        return refused(
            "its server is dead, and others are bringing it back: wait until it is served",
        );
    }
    Ok((table.range(tablet), tablet.owner, table.display_name()))
}

/// The index of the server that is meant; of a member that with the fewest tablets.
pub(crate) fn target_of(store: &Store, target: &MigrationTarget) -> Result<u32, MigrateError> {
    match target {
        MigrationTarget::Server(id) => {
            let server = store.members.server(id.index());
            let is_it = server.is_some_and(|server| server.id == *id && server.has_enlisted());
            match is_it {
                true => Ok(id.index()),
                false => Err(MigrateError::NotFound(format!(
                    "there is no server {id}; the status names those that there are"
                ))),
            }
        }
        MigrationTarget::Member(name) => {
            let member = store.members.get(name);
            let servers = member.map_or(&[][..], |member| member.servers());
            let least = servers
                .iter()
                .copied()
                .min_by_key(|&index| (store.tables.tablets_of(index), index));
            least.ok_or_else(|| MigrateError::NotFound(format!("no member {name:?} in this store")))
        }
    }
}

/// Why nobody can read a server's tablets.
pub(crate) fn why_cannot_give(store: &Store, from: &Server) -> Option<String> {
    if from.reading_locator().is_some() {
        return None;
    }
    let build = store.members.get(&from.member);
    let build = build.map_or("", |member| member.build_version.as_str());
    Some(format!(
        "server {} (member {:?}) runs an older build ({build}), which without a backup has no port where other servers could read its \
         tablets: upgrade that member, or start it with a backup",
        from.id, from.member
    ))
}

pub(super) fn refused<T>(text: &str) -> Result<T, MigrateError> {
    Err(MigrateError::Refused(text.to_owned()))
}
