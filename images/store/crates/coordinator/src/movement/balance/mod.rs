//! What moving tablets without an order needs to know: how they are used, which were moved a moment ago, and which could not be.
//! docs/balancing.md says by which rules tablets move.

pub(super) mod backoff;
pub(super) mod loads;
pub(super) mod plan;
pub(super) mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{TabletLoad, TabletRange};

use crate::status;
use backoff::Backoff;
use loads::Loads;

#[derive(Debug, Default)]
pub(crate) struct Balance {
    pub queue: queue::Queue,
    pub(super) loads: Loads,
    pub(super) next_look: Time,
    pub(super) was_uneven: [bool; 2],
    /// Tablets that were moved, and until when that counts.
    pub(super) rests: BTreeMap<TabletRange, Time>,
    pub(super) backoff: Backoff,
    pub(super) shown: status::Balance,
}

impl Balance {
    pub fn told(&mut self, now: Time, server: ServerId, loads: &[TabletLoad]) {
        for load in loads {
            self.loads.told(now, server, load);
        }
    }

    pub fn load_of(&self, tablet: &TabletRange) -> Option<&loads::Load> {
        self.loads.of(tablet)
    }

    pub fn was_split(&mut self, whole: &TabletRange, second: &TabletRange) {
        self.loads.split(whole, second);
        self.backoff.split(whole, second);
    }

    pub(super) fn were_merged(&mut self, parts: [TabletRange; 2], whole: TabletRange) {
        self.shown.merges += 1;
        self.loads.merge(parts, whole);
        self.backoff.merge(parts, whole);
    }

    /// A server was let in.
    pub fn session_begins(&mut self, server: ServerId) {
        self.loads.session_begins(server);
    }

    /// The next look is due.
    pub fn look_soon(&mut self) {
        self.next_look = Time::ZERO;
    }

    pub fn shown(&self) -> status::Balance {
        self.shown.clone()
    }
}
