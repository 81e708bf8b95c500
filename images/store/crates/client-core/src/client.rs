//! The client as its driver sees it, and its timers.

mod answers;
mod batches;
mod connections;
mod dispatch;
mod operations;
mod questions;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use base::time::Time;
use transport::paths::Paths;

use crate::cache::Tables;
use crate::config::Config;
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::lease::LeaseAgent;
use crate::operation::Operation;
use crate::operation_id::OperationId;
use crate::random::Random;
use crate::rpc_ids::RpcIds;
use crate::sessions::Sessions;
use crate::slab::Slab;
use crate::timer::Timer;

pub use questions::Question;

/// One client: its operations, its connections, and what it knows of the store.
#[derive(Debug)]
pub struct Client {
    config: Config,
    random: Random,
    operations: Slab<Operation>,
    pub(crate) sessions: Sessions,
    paths: Paths,
    tables: Tables,
    lease: LeaseAgent,
    rpc_ids: RpcIds,
    /// Operations that wait for a free RPC id.
    waiting_for_rpc_id: VecDeque<OperationId>,
    /// Operations that can go on; empty between calls.
    ready: VecDeque<OperationId>,
    timers: BinaryHeap<Reverse<(Time, Timer)>>,
    /// Request buffers for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

impl Client {
    pub fn new(config: Config, _now: Time) -> Client {
        Client {
            random: Random::new(config.seed),
            operations: Slab::default(),
            sessions: Sessions::new(config.coordinator.clone()),
            paths: Paths::new(config.protocols.clone(), config.seed),
            tables: Tables::default(),
            lease: LeaseAgent::default(),
            rpc_ids: RpcIds::default(),
            waiting_for_rpc_id: VecDeque::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            spare_buffers: Vec::new(),
            config,
        }
    }

    /// Operations under way.
    pub fn pending(&self) -> usize {
        self.operations.len()
    }

    /// Gives an operation up if it is still under way at `at`; it then completes with [`Error::Deadline`].
    pub fn set_deadline(&mut self, operation: OperationId, at: Time) {
        if self.operations.get(operation.0).is_some() {
            self.set_timer(at, Timer::Deadline(operation));
        }
    }

    /// Forgets an operation: it does not complete any more, but may take effect. False if it has completed before.
    pub fn cancel(
        &mut self,
        now: Time,
        operation: OperationId,
        out: &mut impl ClientEffects,
    ) -> bool {
        let cancelled = self.retire(operation).is_some();
        self.run_ready(now, out);
        cancelled
    }

    /// Does what is due: tries again, pings, gives up, renews. Returns when to call again; calling earlier does no harm.
    pub fn tick(&mut self, now: Time, out: &mut impl ClientEffects) -> Time {
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Resume(operation) => self.ready.push_back(operation),
                Timer::Deadline(operation) => {
                    if self.retire(operation).is_some() {
                        out.complete(operation, Err(Error::Deadline));
                    }
                }
                Timer::FetchTable(table) => self.fetch_table(now, table, out),
                Timer::ConnectCoordinator => self.connect_coordinator(now, out),
                Timer::RenewLease => self.renew_lease_if_due(now, out),
                Timer::TryFaster(session) => self.try_faster(now, session, out),
            }
        }
        self.check_sessions(now, out);
        self.run_ready(now, out);
        let timers = self
            .timers
            .peek()
            .map_or(Time::NEVER, |&Reverse((at, _))| at);
        timers.min(self.sessions.next_check)
    }

    fn set_timer(&mut self, at: Time, timer: Timer) {
        // An operation has one timer or two; beyond that it is those of operations that are over.
        if self.timers.len() >= 4 * self.config.max_operations + 1024 {
            let operations = &self.operations;
            self.timers.retain(|Reverse((_, timer))| match timer {
                Timer::Resume(id) | Timer::Deadline(id) => operations.get(id.0).is_some(),
                _ => true,
            });
        }
        self.timers.push(Reverse((at, timer)));
    }
}
