//! Somebody puts the objects of the API server back to an older state while the store runs, and repairs that as docs/disaster.md says.
//!
//! From then on until the repair servers do not die, nor disks: that the older state is noticed by servers that know better is what is looked at. Coordinators
//! do what they always do.

use coordinator::state::objects::Ending;

use crate::cluster::api::Api;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::put_back::Harm;
use crate::cluster::{COORDINATOR, Cluster, START_OF_LOAD};
use crate::event::{Event, Phase, PutBackStep as Step};
use crate::scenario::{MILLI, SECOND};

/// A leader that nobody disturbs notices it when it raises the bound of cluster time; another process in its place when it hears of a server. After so much more
/// it must have.
const PATIENCE: u64 = 20 * SECOND;
/// Longer than a run has time for.
const MAX_WAIT: u64 = 60 * SECOND;

impl Cluster {
    /// An older state is there, and what came after it is not.
    pub fn is_put_back(&self) -> bool {
        self.put_back.harm.is_some()
    }

    /// Leaders of an older state tell an older time.
    pub fn may_tell_older_time(&self) -> bool {
        self.is_put_back() || self.put_back.is_repaired
    }

    pub fn plan_put_back(&mut self) {
        self.plan_put_back_step(START_OF_LOAD, 5 * SECOND, Step::Copy);
    }

    fn plan_put_back_step(&mut self, least: u64, most: u64, step: Step) {
        if let Some(random) = &mut self.put_back.random {
            let after = random.between(least, most);
            self.schedule_in(after, Event::PutBack(step));
        }
    }

    pub fn put_back_step(&mut self, step: Step) {
        match step {
            Step::Copy => {
                let api = self.api.as_ref();
                self.put_back.copy =
                    api.and_then(|api| Some((api.position()?, api.server.objects.clone())));
                let random = self.put_back.random.as_mut();
                self.put_back.ends_in_rebuild = random.is_some_and(|random| random.chance(600));
                self.plan_put_back_step(50 * MILLI, 8 * SECOND, Step::PutBack);
            }
            Step::PutBack => self.put_objects_back(),
            Step::Overdue => self.should_have_noticed(),
            Step::Repair => self.repair(),
        }
    }

    fn put_objects_back(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        let newest = self.api.as_ref().and_then(Api::position);
        let copy = self.put_back.copy.clone();
        let copy = copy.filter(|(position, _)| newest.is_some_and(|newest| newest != *position));
        let kept_by = self.kept_by();
        let is_calm = self.is_whole() && !self.is_rebuilding;
        let may_end = kept_by.is_some() || !self.put_back.ends_in_rebuild;
        let Some((_, copy)) = copy.filter(|_| is_calm && may_end) else {
            return self.plan_put_back_step(50 * MILLI, SECOND, Step::PutBack);
        };
        for server in &mut self.servers {
            server.dies_writing = None;
        }
        self.coverage.hit("API servers put back to an older state");
        self.note_fault(COORDINATOR, "API server is put back to an older state", 0);
        let Some(api) = &mut self.api else {
            return;
        };
        self.put_back.harm = Some(Harm {
            newer: api.server.objects.clone(),
            since: self.now,
            is_noticed: false,
            kept_by,
        });
        api.server.roll_back(copy);
        let wait = self.longest_unnoticed();
        self.plan_put_back_step(wait, wait, Step::Overdue);
    }

    /// As long as a leader that nobody disturbs may not notice.
    fn longest_unnoticed(&self) -> u64 {
        let time_ahead = self.scenario.fail_over.map_or(0, |it| it.time_ahead);
        time_ahead / 2 + PATIENCE
    }

    /// Something happens to coordinators that may keep them from noticing.
    pub fn excuse_coordinators(&mut self) {
        if let Some(harm) = &mut self.put_back.harm {
            harm.since = self.now;
        }
    }

    fn should_have_noticed(&mut self) {
        let wait = self.longest_unnoticed();
        let harm = self.put_back.harm.as_ref();
        let Some(harm) = harm.filter(|it| !it.is_noticed) else {
            return;
        };
        let hosts = self.coordinator_hosts().into_iter();
        let paused = hosts.map(|host| self.machines[&host].paused_until);
        let cut = self.coordinators.iter().map(|it| it.election.cut_until());
        let away = self.api.iter().map(Api::fails_until);
        let hindered = paused.chain(cut).chain(away).max().unwrap_or(0);
        let due = harm.since.max(hindered) + wait;
        if wait > MAX_WAIT || self.phase != Phase::Load {
            return;
        }
        if self.now < due {
            let after = due - self.now;
            return self.plan_put_back_step(after, after, Step::Overdue);
        }
        self.fail(format!(
            "nobody has noticed for {} s that the API server was put back to an older state",
            wait / SECOND
        ));
    }

    /// A leader has ended for what it has found. Whether that was to be expected.
    pub fn older_state_is_noticed(&mut self, process: usize, ending: Ending, text: &str) -> bool {
        if !matches!(ending, Ending::RolledBack | Ending::Incomplete) || !self.may_tell_older_time()
        {
            return false;
        }
        self.note_log(coordinator_host(process), text);
        self.coordinators[process].election.is_refused = true;
        match &mut self.put_back.harm {
            Some(harm) => {
                let is_first = !std::mem::replace(&mut harm.is_noticed, true);
                self.coverage.hit("older states noticed");
                if is_first {
                    self.plan_put_back_step(10 * MILLI, 10 * SECOND, Step::Repair);
                }
            }
            // It has led with the older state, or heard of who did: whoever may have ends.
            None => {
                self.crash_many(1000);
                for process in 0..self.coordinators.len() {
                    self.crash_coordinator(process);
                }
            }
        }
        true
    }

    /// Faults have ended: nobody leaves the store like that.
    pub fn end_put_back(&mut self) {
        let harm = self.put_back.harm.as_ref();
        if harm.is_some_and(|harm| !harm.is_noticed) {
            self.plan_put_back_step(0, SECOND, Step::Repair);
        }
    }

    fn repair(&mut self) {
        let Some(harm) = self.put_back.harm.take() else {
            return;
        };
        let kept_by = harm.kept_by;
        let can_rebuild = kept_by.is_some_and(|members| self.lost_disks() < members);
        self.put_back.is_repaired = true;
        if can_rebuild && self.put_back.ends_in_rebuild {
            self.coverage.hit("older states given up for a rebuild");
            self.lose_all_but_disks();
        } else {
            self.coverage.hit("newer states put back");
            self.note_fault(COORDINATOR, "API server has the newer state again", 0);
            if let Some(api) = &mut self.api {
                api.server.roll_back(harm.newer);
                api.server.touch_root();
            }
            for process in 0..self.coordinators.len() {
                if self.coordinators[process].election.is_refused {
                    self.stand_by(process);
                }
            }
        }
        self.plan_put_back_step(MILLI, 5 * SECOND, Step::Copy);
    }
}
