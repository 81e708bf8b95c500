//! Everything that refers to entries of the log: the cleaner asks it which are needed, and tells it where they lie now.

use log::{Index, Keeps, Reference};
use wire::entry::{ObjectView, RpcResult};
use wire::hash::key_hash;

use super::results::Results;

pub(crate) struct Keeper {
    pub index: Index,
    pub results: Results,
}

impl Keeps<ObjectView<'_>> for Keeper {
    fn is_live(&self, object: &ObjectView<'_>, at: Reference) -> bool {
        let hash = key_hash(object.table_id, object.primary_key);
        self.index.find(hash, |found| found == at).is_some()
    }

    fn moved(&mut self, object: &ObjectView<'_>, from: Reference, to: Reference) {
        let hash = key_hash(object.table_id, object.primary_key);
        let slot = self.index.find(hash, |found| found == from);
        self.index.set(slot.expect("live objects have a slot"), to);
    }
}

impl Keeps<RpcResult<'_>> for Keeper {
    fn is_live(&self, result: &RpcResult<'_>, at: Reference) -> bool {
        self.results.is_at(result.lease_id, result.rpc_id, at)
    }

    fn moved(&mut self, result: &RpcResult<'_>, _from: Reference, to: Reference) {
        self.results.moved(result.lease_id, result.rpc_id, to);
    }
}
