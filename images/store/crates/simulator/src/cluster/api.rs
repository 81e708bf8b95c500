//! The API server that keeps the coordinators' state, their lock and the store's address.

use std::collections::BTreeMap;

use coordinator::Coordinator;
use coordinator::state::objects::testing::{ApiServer, Objects};
use wire::member::Position;

/// The API server, and what it keeps.
pub struct Api {
    pub server: ApiServer,
    /// Process and incarnation that hold the lock, and how often it was renewed or taken.
    pub(super) lock: (Option<(usize, u64)>, u64),
    /// Whom the store's address leads to, and whom it led to before: some have not heard yet.
    pub(super) endpoint: Option<usize>,
    pub(super) former: Option<usize>,
    /// Until then it leads anywhere.
    pub wavers_until: u64,
    /// Of a thousand requests so many fail, until then.
    pub failures: u64,
    pub fails_until: u64,
    /// Least and greatest cluster time that the leader of each term told.
    pub(super) told: BTreeMap<u64, (u64, u64)>,
    /// By process, the first incarnation whose requests get there.
    pub(super) served_from: Vec<u64>,
}

impl Api {
    pub fn new() -> Api {
        Api {
            server: ApiServer::new(1 << 20),
            lock: (None, 0),
            endpoint: None,
            former: None,
            wavers_until: 0,
            failures: 0,
            fails_until: 0,
            told: BTreeMap::new(),
            served_from: Vec::new(),
        }
    }

    /// All objects are gone, and with them whatever is on its way from processes before these incarnations.
    pub fn lose_everything(&mut self, incarnations: Vec<u64>) {
        self.server.roll_back(Objects::new());
        self.lock.0 = None;
        (self.endpoint, self.former) = (None, None);
        self.served_from = incarnations;
    }

    /// Of the root.
    pub fn position(&self) -> Option<Position> {
        self.server.root().map(|root| root.position)
    }

    /// Whether nobody has led after this one.
    pub fn is_led_by(&self, leader: &Coordinator) -> bool {
        let leadership = |at: Position| (at.term, at.nonce);
        let root = self.position().map(leadership);
        root.is_some() && root == leader.position().map(leadership)
    }

    pub fn fails_until(&self) -> u64 {
        self.fails_until
    }

    pub fn is_away(&self, now: u64) -> bool {
        self.failures == 1000 && now < self.fails_until
    }

    /// A coordinator tells a time: not below any that leaders before it ever told, nor above any that those after it did. Its own times may have
    /// waited, and other things have overtaken it.
    pub(super) fn tells_time(&mut self, term: u64, time_ns: u64) -> Result<(), String> {
        let earlier = self.told.range(..term).map(|(_, (_, most))| *most).max();
        let later = self
            .told
            .range(term + 1..)
            .map(|(_, (least, _))| *least)
            .min();
        let (least, most) = self.told.entry(term).or_insert((time_ns, time_ns));
        if earlier.is_some_and(|earlier| time_ns < earlier)
            || later.is_some_and(|later| time_ns > later)
        {
            return Err(format!(
                "the coordinator of term {term} told cluster time {time_ns}; those before it told up to {earlier:?}, those after it from {later:?} on"
            ));
        }
        (*least, *most) = ((*least).min(time_ns), (*most).max(time_ns));
        Ok(())
    }
}
