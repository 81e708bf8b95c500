//! What must hold: of each answer, of each recovery, and after each crash.

use wire::peer::SERVING_PROMISE;

use super::{Known, Model, Operation, role_of};
use crate::testing::Faults;
use crate::tests::*;

impl Model {
    /// Takes note of what has been said.
    pub(super) fn see(&mut self) {
        for (nonce, answer) in self.rig.said.answers.split_off(self.answers_seen) {
            self.rig.said.answers.push((nonce, answer));
            let Some(sent) = self.sent.remove(&nonce) else {
                continue;
            };
            let log = sent.replica.log;
            assert!(answer.status == Status::Fenced || !self.released.contains(&log));
            match answer.status {
                Status::Ok => {
                    assert!(!self.asked.contains(&log), "a fenced log was written to");
                    assert!(answer.bytes >= sent.end);
                    self.promise(log, sent.at);
                    let known = self.known.get_mut(&sent.replica).unwrap();
                    if !known.freed && known.opening == sent.opening {
                        known.acknowledged = known.acknowledged.max(sent.end);
                        known.close_acknowledged |= sent.closes;
                    }
                }
                Status::Fenced => assert!(self.asked.contains(&log)),
                Status::Full | Status::Missing | Status::Mismatch => {}
                Status::Retired => assert!(self.rig.backup().stats().retired.is_some()),
            }
        }
        self.answers_seen = self.rig.said.answers.len();
        for inventory in std::mem::take(&mut self.rig.said.released) {
            let log = inventory.log;
            assert!(self.asked.contains(&log));
            let promised = self.promised.get(&log).copied().unwrap_or_default();
            assert!(
                self.rig.now >= promised,
                "released before the promise is over"
            );
            self.released.insert(log);
            for info in &inventory.replicas {
                self.compare(log, info);
            }
            self.assert_kept();
        }
    }

    fn compare(&mut self, log: ServerId, info: &ReplicaInfo) {
        let replica = ReplicaId {
            log,
            segment_id: info.segment_id,
        };
        let content = self.held(replica).unwrap();
        assert_eq!((info.bytes, info.crc), (content.bytes, content.crc));
        assert_eq!(info.state == State::Closed, content.closed);
        match info.damage {
            // These bytes belong to no log.
            None | Some(Flaw::NoEntry { .. } | Flaw::NoDigest) => {
                assert_eq!(content.damage, None);
                let told = (content.closed, content.bytes, content.crc);
                let before = self.told.insert(replica, told);
                assert!(before.is_none_or(|before| before == told), "{replica}");
            }
            Some(Flaw::Damaged(damage)) => assert_eq!(content.damage, Some(damage)),
        }
    }

    /// A recovery may have used what it was told, and shown it: the next one must find it.
    fn assert_kept(&mut self) {
        for (replica, told) in self.told.clone() {
            let content = self.held(replica);
            let kept = content.map(|content| (content.closed, content.bytes, content.crc));
            assert_eq!(kept, Some(told), "{replica} is not what was told of it");
            assert_eq!(content.unwrap().damage, None, "{replica}");
        }
    }

    pub(super) fn restart(&mut self, mut storage: crate::testing::MemoryStorage, lost_cache: bool) {
        // Nor is a storage believed after it has failed.
        let has_failed = std::mem::take(&mut self.has_failed);
        storage.faults = Faults::default();
        // A request that was not answered never will be.
        self.sent.clear();
        let past = self.asked.clone();
        self.rig.open(storage);
        self.asked = self.released.clone();
        for log in past.difference(&self.released) {
            // Whether the fence got through is open; if it did, it is there for ever.
            if self.rig.backup().fencing.durable().covers(*log) {
                self.asked.insert(*log);
            }
        }
        for log in &self.released {
            assert!(
                self.rig.backup().fencing.durable().covers(*log),
                "a fence was lost"
            );
        }
        let is_buffered = self.rig.config.durability == Durability::Buffered;
        let may_lose = is_buffered && (lost_cache || has_failed);
        if may_lose {
            self.told.clear();
        }
        self.assert_kept();
        let known = std::mem::take(&mut self.known);
        for (&replica, known) in &known {
            self.check(replica, known, may_lose);
            let content = self.held(replica);
            let is_believed =
                content.is_some_and(|content| !content.closed && content.damage.is_none());
            assert!(
                !is_buffered || !lost_cache || !is_believed,
                "{replica} is believed, though the page cache is gone"
            );
        }
        let found: Vec<ReplicaId> = self.rig.backup().replicas.keys().copied().collect();
        for replica in &found {
            let known = known.get(replica).expect("nothing comes from nowhere");
            if known.freed && !self.asked.contains(&replica.log) {
                // As its master would; or a new use would meet the old.
                let status = self.rig.free(*replica);
                assert!(status == Status::Ok || status == Status::Retired);
            }
        }
        self.known = known;
        for (&replica, known) in &mut self.known {
            known.lost |= may_lose;
            if !self.rig.backup().replicas.contains_key(&replica) {
                *known = known.anew(true);
            }
        }
    }

    /// After a crash.
    fn check(&mut self, replica: ReplicaId, known: &Known, may_lose: bool) {
        let Some(content) = self.held(replica) else {
            let is_acknowledged = known.acknowledged > 0 || known.close_acknowledged;
            assert!(
                !is_acknowledged || known.freed || known.lost || may_lose,
                "{replica} is gone, of which {} bytes were acknowledged",
                known.acknowledged
            );
            return;
        };
        assert_eq!(content.role, role_of(replica));
        let (status, data) = self.rig.read(replica, 0, SEGMENT_BYTES);
        if status == Status::Ok {
            assert_eq!(data, content_of(replica, content.bytes), "{replica}");
        } else {
            assert_eq!(status, Status::Mismatch);
            assert!(
                known.freed || known.lost || may_lose,
                "{replica} is damaged without cause: {:?}",
                self.held(replica)
            );
            return;
        }
        assert!(content.bytes <= known.sent && (!content.closed || known.close_sent));
        // A freed replica that comes back must not be younger than its end: no recovery may take it for a head.
        assert!(
            content.closed || !known.close_acknowledged,
            "{replica} was closed, and is open"
        );
        assert!(
            content.bytes >= known.acknowledged,
            "{replica} is too short, and believed"
        );
    }

    /// Everything that is asked for ends.
    pub(super) fn finish(&mut self) {
        self.rig.storage().faults = Faults::default();
        self.rig.settle();
        self.see();
        for log in 1..=2 {
            self.apply(&Operation::Recover(ServerId::new(log, 1)));
        }
        self.rig.settle();
        self.rig.wait(2 * SERVING_PROMISE);
        self.see();
        assert!(self.sent.is_empty(), "a request was never answered");
        assert_eq!(self.released.len(), 2);
    }
}
