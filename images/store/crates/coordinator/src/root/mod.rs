//! The coordinator itself: it owns the machines, routes what arrives, and looks after what concerns several of them.

mod accept_loss;
mod audit;
mod bounds;
mod changes;
mod checkpoints;
mod control;
mod drain;
mod events;
mod jobs;
mod leading;
mod move_orders;
mod older_state;
mod questions;
mod rebuild;
mod removal;
mod replies;
mod requests;
mod resources;
mod restore;
mod sessions;
mod settings;
mod upgrade;
mod views;

pub(crate) use requests::shows_no_state;
pub(crate) use restore::ending_of;

use base::time::Time;

use crate::admin::departures::Departures;
use crate::admin::settings::InForce;
use crate::admin::upgrade::Upgrades;
use crate::config::Config;
use crate::effects::CoordinatorEffects;
use crate::liveness::{backups, detection};
use crate::records::Meta;
use crate::registry::newcomers::Newcomers;
use crate::state::keeping;
use crate::state::leading::Leading;
use crate::state::rebuild::Rebuild;
use crate::{movement, pending, recovery, store};

/// One store's coordinator.
#[derive(Debug)]
pub struct Coordinator {
    store: store::Store,
    /// Since when this process leads the store.
    leads_since: Time,
    upgrades: Upgrades,
    leading: Leading,
    pending: pending::Pending,
    suspicions: detection::Suspicions,
    recoveries: recovery::Recoveries,
    movement: movement::Movement,
    settings: InForce,
    announced: backups::Announced,
    newcomers: Newcomers,
    keeping: keeping::Keeping,
    /// Set while the store is made again from volumes.
    rebuild: Option<Box<Rebuild<Coordinator>>>,
    /// Everything is noted anew.
    is_all_changed: bool,
    /// The counters as they were last asked for.
    noted_meta: Option<Meta>,
    next_ping: Time,
    last_tick: Time,
    /// Somebody was told that requests for tests are not served.
    told_of_test_rpcs: bool,
}

impl Coordinator {
    /// An empty store; its cluster time is 0 at `now`.
    pub fn new(config: Config, now: Time) -> Coordinator {
        Coordinator {
            leads_since: now,
            upgrades: Upgrades::of(config.formats, config.formats.newest),
            leading: Leading::default(),
            pending: pending::Pending::default(),
            suspicions: detection::Suspicions::default(),
            recoveries: recovery::Recoveries::default(),
            movement: movement::Movement::default(),
            settings: InForce::default(),
            announced: backups::Announced::default(),
            newcomers: Newcomers::default(),
            keeping: keeping::Keeping::default(),
            rebuild: None,
            is_all_changed: false,
            noted_meta: None,
            next_ping: now,
            last_tick: now,
            told_of_test_rpcs: false,
            store: store::Store::new(config, now),
        }
    }

    /// Does what is due. Returns when to call again; calling earlier does no harm.
    pub fn tick(&mut self, now: Time, out: &mut impl CoordinatorEffects) -> Time {
        if let Some(next) = self.tend_rebuild(now, out) {
            return next;
        }
        if self.leading.refusal().is_some() {
            return Time::NEVER;
        }
        let next = self.gated(out, |it, out| it.do_what_is_due(now, out));
        next.min(self.keep_checkpoints(now, out))
    }

    fn departures(&self) -> Departures<'_> {
        Departures {
            store: &self.store,
            recoveries: &self.recoveries,
            announced: &self.announced,
        }
    }

    pub(crate) fn cluster_id(&self) -> u64 {
        self.store.config.cluster_id
    }
}
