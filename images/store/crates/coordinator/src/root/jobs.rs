//! What is looked after in the background.

use base::time::Time;

use crate::effects::CoordinatorEffects;
use crate::root::Coordinator;

/// Does what is due of one thing, a bounded part of it; when to look again.
type Job<O> = fn(&mut Coordinator, Time, &mut O) -> Time;

impl Coordinator {
    /// Does what is due of all jobs, in this order; when to come again.
    pub(super) fn do_what_is_due<O: CoordinatorEffects>(&mut self, now: Time, out: &mut O) -> Time {
        let jobs: &[Job<O>] = &[
            Coordinator::tend_sessions,
            |it, now, out| it.suspicions.look(&mut it.store, now, out),
            |it, now, out| it.recoveries.look(&mut it.store, now, out),
            Coordinator::move_tablets,
            Coordinator::conclude_overdue,
            |it, now, _| {
                let cluster_time_ns = it.store.cluster_time_ns(now);
                it.store.resources.events.look(cluster_time_ns, now)
            },
        ];
        let next = jobs.iter().map(|job| job(self, now, out));
        next.min().unwrap_or(Time::NEVER)
    }

    /// Pings servers, and ends the sessions of silent ones, and whatever else has come to its end.
    fn tend_sessions<O: CoordinatorEffects>(&mut self, now: Time, out: &mut O) -> Time {
        if now >= self.next_ping {
            self.end_silent_sessions(now, out);
            self.end_last_resorts(out);
            self.ping_shards(now, out);
            self.store.leases.expire(self.store.cluster_time_ns(now));
            self.next_ping = now + self.store.config.ping_interval;
        }
        self.next_ping
    }

    fn move_tablets<O: CoordinatorEffects>(&mut self, now: Time, out: &mut O) -> Time {
        let recoveries = self.recoveries.count_under_way();
        let balancing = &self.store.config.balancing;
        let terms = self.settings.terms_of_movement(balancing, recoveries);
        self.movement.look(&mut self.store, terms, now, out)
    }

    /// Answers what has waited long enough for servers.
    fn conclude_overdue<O: CoordinatorEffects>(&mut self, now: Time, out: &mut O) -> Time {
        self.last_tick = now;
        while let Some(operation) = self.pending.overdue(now) {
            self.conclude(operation, out);
        }
        self.pending.next_deadline()
    }
}
