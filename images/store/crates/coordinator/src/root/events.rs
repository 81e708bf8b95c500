//! Events that the coordinator itself knows of, and all events to be shown.

use base::time::Time;

use crate::registry::members::Death;
use crate::root::Coordinator;
use crate::status::{Event, EventKind};

impl Coordinator {
    /// Cluster time, and what has happened to the store lately, the oldest first.
    pub fn events(&self, now: Time) -> (u64, Vec<Event>) {
        let events = self.store.resources.events.iter().cloned();
        (self.store.cluster_time_ns(now), events.collect())
    }

    pub(super) fn record_event(&mut self, now: Time, kind: EventKind, text: String) {
        self.store.record_event(now, kind, text);
    }

    /// The same for an order with which no time comes: the last tick was a moment ago.
    pub(super) fn record_order(&mut self, kind: EventKind, text: String) {
        self.record_event(self.last_tick, kind, text);
    }

    pub(super) fn record_death(&mut self, now: Time, death: &Death) {
        let servers = death.servers.iter().map(|server| server.id.to_string());
        let servers: Vec<String> = servers.collect();
        let text = format!(
            "a process of member {:?} is dead: servers {}",
            death.member,
            servers.join(", ")
        );
        self.record_event(now, EventKind::ProcessDead, text);
    }
}
