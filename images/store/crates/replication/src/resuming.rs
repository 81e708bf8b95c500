//! A connection that breaks and is made again: what was under way is sent once more, and no replica is given up.
//!
//! Backups pass over what they hold, so that resending from the last byte that was acknowledged is safe, wherever the connection broke. A head
//! whose backup cannot be reached acknowledges nothing meanwhile: that is why a backup
//! has [`GRACE`](crate::interruption::GRACE) only, and only now and then.

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::peer::{Held, Role};

use crate::replicator::Replicator;
use crate::segment::Replica;

impl Replicator {
    /// A connection could not be made, or has ended. What is closed there stays. What is not complete waits for the next connection for a short
    /// while, if it was an open connection that broke; else it is begun anew, here or elsewhere.
    pub fn disconnected(&mut self, now: Time, id: ServerId) {
        let Some(backup) = self.backups.get_mut(&id) else {
            return;
        };
        let was_up = backup.is_up();
        backup.disconnected(now);
        if was_up && !backup.retired && backup.interruptions.begin(now) {
            backup.reconnect_at_once(now);
            self.resume_open_replicas(id);
        } else {
            self.give_up_open_replicas(id);
        }
    }

    /// A connection on which nothing moves has been closed.
    pub(crate) fn stuck(&mut self, now: Time, id: ServerId) {
        if let Some(backup) = self.backups.get_mut(&id) {
            backup.disconnected(now);
        }
        self.give_up_open_replicas(id);
    }

    /// Backups that have not come back in time.
    pub(crate) fn end_interruptions(&mut self, now: Time) {
        let is_over = |id: &ServerId| self.backups[id].interruptions.is_over(now);
        let over: Vec<ServerId> = self.backups.keys().copied().filter(is_over).collect();
        for id in over {
            self.give_up_open_replicas(id);
        }
    }

    fn give_up_open_replicas(&mut self, id: ServerId) {
        if let Some(backup) = self.backups.get_mut(&id) {
            backup.interruptions.end();
        }
        self.lose_replicas(id, |replica| !replica.is_closed);
    }

    fn resume_open_replicas(&mut self, id: ServerId) {
        let replicas = self.segments.values_mut();
        let replicas = replicas.filter_map(|segment| segment.replica_mut(id));
        for replica in replicas.filter(|replica| !replica.is_closed) {
            replica.resume();
        }
    }

    /// Whether a backup that has said what it holds can be sent the rest of an open replica. Of one of which something was acknowledged and is
    /// not there any more, nothing is begun anew: a recovery would believe a head without what was acknowledged.
    pub(crate) fn can_resume(
        &self,
        replica: &Replica,
        segment_id: u64,
        listed: &BTreeMap<u64, Held>,
    ) -> bool {
        let backup = self.backups.get(&replica.backup);
        let is_waited_for = backup.is_some_and(|backup| backup.interruptions.is_waited_for());
        if replica.is_closed || !is_waited_for {
            return false;
        }
        match listed.get(&segment_id) {
            None => replica.acked_bytes == 0,
            Some(Held::OpenHead) => replica.role == Role::Head,
            // A part of one.
            Some(Held::Nothing) => replica.role == Role::Side,
            // Had this log closed it, the listing would be that of a complete one.
            Some(Held::Closed { .. }) => false,
        }
    }
}
