//! What people change while the shard runs: docs/settings.md.

use wire::member::Settings;

use crate::effects::ShardEffects;
use crate::reports::MembershipEvent;
use crate::shard::Shard;

impl Shard {
    /// These are in force from now on; for what they leave open, what the shard was started with.
    pub(crate) fn use_settings(&mut self, settings: Settings, out: &mut impl ShardEffects) {
        if let Err(why) = settings.check() {
            return out.report(MembershipEvent::ImpossibleSettings(why).into());
        }
        self.membership.settings = settings.number;
        self.store.log.keep_free(settings.cleaner_free_percent);
        if let Some(started_with) = self.started_with {
            let wanted = started_with.with(&settings);
            self.config.replication = Some(wanted);
            self.replicas.want(&wanted);
        }
        out.use_settings(&settings);
    }
}
