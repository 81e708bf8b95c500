//! All machines whose state outlives the process.

use crate::resource::Resource;
use crate::root::Coordinator;

impl Coordinator {
    /// In no particular order, and always in the same.
    pub(super) fn resources(&self) -> impl Iterator<Item = &dyn Resource> {
        let store = &self.store;
        let needed: [&dyn Resource; 4] = [
            &store.members,
            &store.tables,
            &store.leases,
            &self.recoveries,
        ];
        needed.into_iter().chain(store.resources.all())
    }

    pub(super) fn resources_mut(&mut self) -> impl Iterator<Item = &mut dyn Resource> {
        let store = &mut self.store;
        let needed: [&mut dyn Resource; 4] = [
            &mut store.members,
            &mut store.tables,
            &mut store.leases,
            &mut self.recoveries,
        ];
        needed.into_iter().chain(store.resources.all_mut())
    }
}
