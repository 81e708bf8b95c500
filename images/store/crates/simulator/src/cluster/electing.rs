//! How coordinators take the lock that elects, and lose it.
//!
//! The lock that elects is modelled as what it is: whoever sees nobody renew it for a while takes it. It fences nothing, so that often enough several lead at a time.

use std::time::Duration;

use coordinator::Config;
use coordinator::leader::{Leader, Limits, Settings};
use coordinator::state::objects;
use coordinator::state::objects::Tuning;

use crate::cluster::coordinator_node::{CoordinatorNode, Core, sessions_of};
use crate::cluster::election::Election;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::leaders::Heard;
use crate::cluster::{Cluster, host_name};
use crate::event::{Event, Party};
use crate::scenario::{FailOver, MILLI};

/// Who sees nobody renew the lock for so long, takes it.
const LOCK_LASTS: Duration = Duration::from_secs(2);
/// Who could not renew it for so long gives it up by itself; not all do.
const LOCK_GIVEN_UP: Duration = Duration::from_millis(1200);
/// A leader that has ended itself comes back as a standby.
const COMES_BACK: u64 = 100 * MILLI;

/// Small, so that everything happens often.
fn tuning() -> Tuning {
    Tuning {
        chunk_bytes: 500,
        tail_bytes: 300,
        rewrite_bytes: 3000,
        max_reads: 2,
        max_deletes: 5,
        sweep_interval: Duration::from_secs(5),
        look_interval: Duration::from_secs(2),
    }
}

impl Cluster {
    /// A process begins to look at the lock.
    pub fn start_standby(&mut self, process: usize) {
        let host = coordinator_host(process);
        let it = &mut self.coordinators[process];
        it.is_up = true;
        it.election = Election::default();
        let incarnation = it.incarnation;
        let delay = self.streams.of("elections").between(0, 50 * MILLI);
        self.schedule_in(
            delay,
            Event::Elect {
                process,
                incarnation,
            },
        );
        self.schedule_in(0, Event::Tick(host));
    }

    /// A process looks at the lock, takes it or renews it.
    pub fn elect(&mut self, process: usize, incarnation: u64) {
        if self.coordinators[process].incarnation != incarnation
            || !self.coordinators[process].is_up
        {
            return;
        }
        let again = self
            .streams
            .of("elections")
            .between(150 * MILLI, 400 * MILLI);
        self.schedule_in(
            again,
            Event::Elect {
                process,
                incarnation,
            },
        );
        let now = self.clock(coordinator_host(process));
        let is_reached = self.reaches_api(process);
        let Some(api) = &mut self.api else {
            return;
        };
        let it = &mut self.coordinators[process];
        let leads = it.node.is_some();
        let election = &mut it.election;
        if !is_reached {
            let is_late = now.since(election.renewed) > LOCK_GIVEN_UP;
            if leads && is_late && !election.goes_on {
                self.coverage.hit("leaders that gave the lock up");
                self.stand_by(process);
            }
            return;
        }
        let (holder, version) = api.lock;
        if holder == Some((process, incarnation)) {
            api.lock.1 += 1;
            election.renewed = now;
            if leads {
                self.publish(process);
            }
        } else if leads {
            self.coverage.hit("leaders deposed by the lock");
            self.stand_by(process);
        } else {
            let (_, since) = *election.observed.get_or_insert((version, now));
            let is_same = election.observed.is_some_and(|(seen, _)| seen == version);
            if !is_same {
                election.observed = Some((version, now));
            }
            if holder.is_none() || is_same && now.since(since) >= LOCK_LASTS {
                self.take_lock(process);
            }
        }
    }

    /// From now on this process believes that it leads, whoever does.
    pub fn take_lock(&mut self, process: usize) {
        let host = coordinator_host(process);
        let now = self.clock(host);
        let Some(FailOver { time_ahead, .. }) = self.scenario.fail_over else {
            return;
        };
        let it = &mut self.coordinators[process];
        if it.node.is_some() || !it.is_up {
            return;
        }
        if let Some(api) = &mut self.api {
            api.lock = (Some((process, it.incarnation)), api.lock.1 + 1);
        }
        it.election.renewed = now;
        it.election.goes_on = self.streams.of("leaders that go on").chance(500);
        let nonce = self.streams.of("elections").next() | 1;
        let mut config = Config::new(nonce, 1, "simulated");
        config.silence_timeout = Duration::from_nanos(self.scenario.silence_timeout);
        config.ping_interval = config.silence_timeout / 15;
        config.time_ahead = Duration::from_nanos(time_ahead);
        config.formats = it.installed;
        config.balancing = self.balancing.clone();
        let mut leader = Box::new(Leader::new(Settings {
            keeper: objects::Settings {
                nonce,
                leader: host_name(host),
                new_cluster_id: nonce ^ 1,
                awaits_seed: self.is_rebuilding,
                tuning: tuning(),
            },
            config,
            limits: Limits::default(),
        }));
        leader.start(now);
        let sessions = sessions_of(process, it.incarnation);
        let numbers_messages = self.numbers_messages(self.coordinators[process].installed);
        let node = CoordinatorNode::new(Core::Leader(leader), sessions, numbers_messages);
        self.coordinators[process].node = Some(node);
        self.coordinator_hears(process, Heard::Tick);
    }

    /// The leadership is over, and the process begins anew.
    pub fn stand_by(&mut self, process: usize) {
        self.end_coordinator(process);
        let host = coordinator_host(process);
        self.note_fault(host, "stands by", 0);
        let delay = self.streams.of("elections").between(MILLI, COMES_BACK);
        self.schedule_in(delay, Event::Restart(host));
    }

    /// All that a process has is gone, and its connections.
    pub fn end_coordinator(&mut self, process: usize) {
        if self.scenario.fail_over.is_some() {
            self.note_cut_off(process);
        }
        let it = &mut self.coordinators[process];
        it.node = None;
        it.is_up = false;
        it.incarnation += 1;
        let sides = self.sides_of(|party| {
            matches!(party, Party::CoordinatorClient { process: at } | Party::CoordinatorMember { process: at } if *at == process)
        });
        for (connection, side) in sides {
            self.drop_party(connection, side);
        }
    }
}
