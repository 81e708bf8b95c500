//! The open head: when it is replaced, and the floor that it needs.

use core::time::Duration;

use base::time::Time;
use log::Log;

use crate::ReplicationEffects;
use crate::replicator::Replicator;

/// A head with fewer replicas than wanted, or more, is replaced no more often than this.
const MORE_REPLICAS_PAUSE: Duration = Duration::from_secs(1);

impl Replicator {
    /// Opens the first head, or another where the present one has lost a replica or could have more.
    pub(crate) fn replace_head(&mut self, now: Time, log: &mut Log) {
        let Some(&id) = self.heads.back() else {
            if self.heads.is_empty() && self.segments.is_empty() {
                log.start_new_head();
            }
            return;
        };
        let placed = self.segments[&id].replicas.len();
        if placed > 0 && placed < self.config.replicas && !self.wants_new_head {
            let possible = self.config.replicas.min(self.choice(now, id).hosts());
            if possible > placed && self.more_replicas_at <= now {
                self.more_replicas_at = now + MORE_REPLICAS_PAUSE;
                self.wants_new_head = true;
            }
        }
        // Elsewhere it must get as many replicas as it has, or as are wanted by now.
        let wanted = placed.min(self.config.replicas);
        let has_too_many = placed > wanted;
        if !self.wants_new_head
            && self.more_replicas_at <= now
            && (has_too_many || self.is_on_draining(id))
            && self.choice(now, id).hosts() >= wanted
        {
            self.more_replicas_at = now + MORE_REPLICAS_PAUSE;
            self.wants_new_head = true;
        }
        if self.wants_new_head {
            log.start_new_head();
        }
    }

    /// Asks for the open floor that the present head needs, once everything older is closed.
    pub(crate) fn ask_for_floor(&mut self, out: &mut impl ReplicationEffects) {
        let Some(&id) = self.heads.back() else { return };
        if self.floor.covers(id) || !self.segments[&id].all_open() {
            return;
        }
        let older = self.heads.iter().rev().skip(1);
        let is_closed = |id: &u64| {
            let segment = &self.segments[id];
            segment.all_closed() && segment.replicas.len() >= self.config.min_replicas
        };
        if older.copied().collect::<Vec<_>>().iter().all(is_closed) && self.floor.ask(id) {
            out.raise_open_floor(id);
        }
    }
}
