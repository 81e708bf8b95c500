//! When checkpoints are made, and of what.

use base::time::Time;

use crate::effects::CoordinatorEffects;
use crate::root::Coordinator;
use crate::state::checkpoint::{self, Header};
use crate::state::gate::Gate;

impl Coordinator {
    /// Does something whose messages may have to wait.
    pub(super) fn gated<O: CoordinatorEffects, T>(
        &mut self,
        out: &mut O,
        act: impl FnOnce(&mut Coordinator, &mut Gate<'_, O>) -> T,
    ) -> T {
        let mut gate = self.keeping.open(out);
        let done = act(self, &mut gate);
        self.keeping.shut(gate);
        done
    }

    /// Makes the next checkpoint when it is due, sends it, and lets out what has waited long enough. Last in every round; when to come again.
    pub(super) fn keep_checkpoints(
        &mut self,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Time {
        if !self.keeping.begin_round(&self.store.members) {
            return Time::NEVER;
        }
        self.count_version();
        let mut next = self.keeping.due(now);
        if next <= now {
            let header = Header {
                cluster_id: self.cluster_id(),
                position: self.position().unwrap_or_default(),
                number: self.keeping.next_number(),
                cluster_time_ns: self.store.cluster_time_ns(now),
            };
            let bytes = checkpoint::encode(&header, self.pairs());
            next = self.keeping.made(now, header, bytes);
        }
        next.min(self.keeping.send(now, &self.store.members, out))
    }
}
