//! A connection that breaks and is made again: what was under way is sent once more, and no replica is given up.
//!
//! Backups pass over what they hold, so that resending from the last byte that was acknowledged is safe, wherever the connection broke. A head
//! whose backup cannot be reached acknowledges nothing meanwhile: that is why a backup has [`GRACE`] only, and only now and then.

use core::time::Duration;
use std::collections::BTreeMap;

use wire::bugs::{Bug, is_planted};
use wire::ids::ServerId;
use wire::peer::{Held, Role};
use wire::time::Time;

use crate::replicator::Replicator;
use crate::segment::Replica;

/// Open replicas wait so long for their backup's next connection. Well below [`wire::peer::SERVING_LEASE`], and the limit for a slow backup.
pub(crate) const GRACE: Duration = Duration::from_millis(50);
/// A connection that breaks again within this is not waited for: it may do so for ever.
const BETWEEN: Duration = Duration::from_secs(1);

/// When the connection to a backup broke, if that is forgiven.
#[derive(Debug, Default)]
pub(crate) struct Interruptions {
    /// Open replicas are kept until then.
    until: Option<Time>,
    /// No other is forgiven before this.
    next_at: Time,
}

impl Interruptions {
    /// The connection broke. False if nothing is to be kept.
    fn begin(&mut self, now: Time) -> bool {
        let is_forgiven = now >= self.next_at && self.until.is_none();
        self.until = is_forgiven.then_some(now + GRACE);
        self.next_at = now + BETWEEN;
        is_forgiven
    }

    /// The backup has said what it holds, or is given up. True if it was waited for.
    pub fn end(&mut self) -> bool {
        self.until.take().is_some()
    }

    pub fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    fn is_waited_for(&self) -> bool {
        self.until.is_some()
    }

    pub fn deadline(&self) -> Time {
        self.until.unwrap_or(Time::NEVER)
    }
}

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

impl Replica {
    /// What was not acknowledged may have arrived or not: it is sent once more.
    fn resume(&mut self) {
        if is_planted(Bug::TakeSentForHeld) {
            self.acked_bytes = self.sent_bytes;
            self.acked_crc = self.sent_crc;
        }
        (self.sent_bytes, self.sent_crc) = (self.acked_bytes, self.acked_crc);
        self.close_sent = false;
    }
}
