//! What people change while the shard runs: docs/settings.md.

use wire::member::Settings;

use crate::config::Replication;
use crate::output::Output;
use crate::shard::Shard;

const MB: u64 = 1_000_000;

impl Replication {
    /// As it was started with, and as people have it since.
    fn with(self, settings: &Settings) -> Replication {
        let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let (replicas, min_replicas) = match (settings.replicas, settings.least_replicas()) {
            (Some(replicas), Some(least)) => (small(replicas), small(least)),
            _ => (self.replicas, self.min_replicas),
        };
        let repair = settings.repair_mbps.map(|mbps| u64::from(mbps) * MB);
        Replication {
            replicas,
            min_replicas,
            repair_bytes_per_second: repair.unwrap_or(self.repair_bytes_per_second),
            ..self
        }
    }
}

impl Shard {
    /// These are in force from now on; for what they leave open, what the shard was started with.
    pub(crate) fn use_settings(&mut self, settings: Settings, out: &mut impl Output) {
        if let Err(why) = settings.check() {
            let text = format!("the coordinator's settings are passed over: {why}");
            return out.log_message(1, &text);
        }
        self.membership.settings = settings.number;
        self.store.log.keep_free(settings.cleaner_free_percent);
        if let Some(started_with) = self.started_with {
            let wanted = started_with.with(&settings);
            self.config.replication = Some(wanted);
            if let Some(replicator) = &mut self.replicator {
                let numbers = (wanted.replicas.into(), wanted.min_replicas.into());
                replicator.want(numbers, wanted.repair_bytes_per_second);
            }
        }
        out.use_settings(&settings);
    }
}
