//! Up to where the log is durable, and which segments are settled.

use base::ids::ServerId;
use base::time::Time;
use log::{Log, LogPosition};

use crate::replicator::Replicator;

/// Unfinished segments that one pump looks at.
const UNFINISHED_STEP: usize = 8;

impl Replicator {
    /// Tells the log which closed segments have all the replicas that they can have.
    pub(crate) fn settle(&mut self, now: Time, log: &mut Log) {
        while let Some(&id) = self.heads.front()
            && self.heads.len() > 1
            && self.is_complete(now, id)
            && self.floor.lets_be_durable(id)
        {
            // Its successor was opened everywhere before it was closed, so that it is named by whatever a recovery takes for the head.
            if let Some(end) = log.position_in(id, self.segments[&id].acked_bytes()) {
                assert!(end >= self.settled, "what is durable stays so");
                self.settled = end;
            }
            self.heads.pop_front();
            self.settle_one(id, log);
        }
        for id in self.next_unfinished() {
            if log.segment(id).is_none() {
                self.give_up_copies(id);
            }
            self.leave_draining(id);
            if self.is_complete(now, id) {
                self.settle_one(id, log);
                if self.is_finished(&self.segments[&id]) {
                    self.unfinished.remove(&id);
                } else if self.is_on_draining(id) && log.segment(id).is_none() {
                    log.leave_out_soon(id);
                }
            } else if log.segment(id).is_none() {
                log.leave_out_soon(id);
            }
        }
        // The next pump goes on behind these.
        self.unfinished_cursor = self.next_unfinished().last().map_or(0, |last| last + 1);
    }

    /// Of a segment that is not in memory any more: they will never be complete.
    fn give_up_copies(&mut self, segment_id: u64) {
        let Some(segment) = self.segments.get(&segment_id) else {
            return;
        };
        let partial = segment.replicas.iter().filter(|replica| !replica.is_closed);
        let partial: Vec<ServerId> = partial.map(|replica| replica.backup).collect();
        for id in partial {
            self.lose_replica(segment_id, id);
        }
    }

    /// Some of the unfinished segments, other ones each time: there can be very many when a backup was lost.
    pub(crate) fn next_unfinished(&self) -> Vec<u64> {
        let from = self.unfinished.range(self.unfinished_cursor..);
        let again = self.unfinished.range(..self.unfinished_cursor);
        let not_heads = from.chain(again).filter(|id| !self.heads.contains(id));
        not_heads.take(UNFINISHED_STEP).copied().collect()
    }

    fn settle_one(&mut self, id: u64, log: &mut Log) {
        if let Some(segment) = self.segments.get_mut(&id)
            && !std::mem::replace(&mut segment.is_settled, true)
        {
            assert!(
                segment.is_closed && segment.all_closed(),
                "an open segment is not settled"
            );
            log.settle(id);
        }
    }

    fn is_complete(&self, now: Time, id: u64) -> bool {
        let Some(segment) = self.segments.get(&id) else {
            return false;
        };
        let count = segment.replicas.len();
        let wanted = self.config.replicas.min(self.choice(now, id).hosts());
        segment.is_closed
            && segment.all_closed()
            && count >= self.config.min_replicas
            && count >= wanted
    }

    /// Up to where the log is durable. The order of the conditions is that of docs/replication.md, "When is it durable?".
    pub(crate) fn durable_position(&self, log: &Log) -> LogPosition {
        let mut position = self.settled;
        for &id in &self.heads {
            let head = &self.segments[&id];
            let is_enough = head.replicas.len() >= self.config.min_replicas;
            if !self.floor.lets_be_durable(id) || !is_enough || !head.all_open() {
                break;
            }
            if let Some(acked) = log.position_in(id, head.acked_bytes()) {
                position = acked;
            }
            if !(head.is_closed && head.all_closed()) {
                break;
            }
        }
        assert!(position >= self.settled, "what is durable stays so");
        position
    }
}
