//! Coordinators whose state is in objects of an API server: who leads, what leaders hear and say, and whom the store's one address leads to.

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::leader::{Leader, LeaderEffect, News};
use coordinator::state::objects::Ending;
use coordinator::{Coordinator, Finalize, FinalizeError};
use wire::member::coordinator::Kind;
use wire::member::{RefusedReason, ToCoordinator, ToShard};

use crate::cluster::client_actions::Purpose;
use crate::cluster::coordinator_node::{CoordinatorAction, CoordinatorNode, Core};
use crate::cluster::hosts::coordinator_host;
use crate::cluster::{COORDINATOR, Cluster, host_name};
use crate::event::{Event, Phase};
use crate::net::network::Host;
use crate::oracles::boundaries::Answered;
use crate::scenario::MILLI;

/// What a coordinator is told of.
pub enum Heard {
    /// Time has passed.
    Tick,
    Request(ReplyTo, Vec<u8>),
    Message(u64, Box<ToCoordinator>),
    MemberGone(u64),
    MemberInterrupted(u64),
    MemberAgain(u64),
    ClientGone(u64),
}

impl Cluster {
    /// Whose host this is.
    pub fn coordinator_of(&self, host: Host) -> Option<usize> {
        (0..self.coordinators.len()).find(|process| coordinator_host(*process) == host)
    }

    pub fn coordinator_hosts(&self) -> Vec<Host> {
        (0..self.coordinators.len()).map(coordinator_host).collect()
    }

    /// The coordinator that leads, with its process; of several, the one of the latest term.
    pub fn leading(&self) -> Option<(usize, &Coordinator)> {
        self.leaders()
            .max_by_key(|(_, state)| state.position().map(|position| position.term))
    }

    /// All that believe that they lead.
    pub fn leaders(&self) -> impl Iterator<Item = (usize, &Coordinator)> {
        let processes = self.coordinators.iter().enumerate();
        let states =
            processes.filter_map(|(process, it)| Some((process, it.node.as_ref()?.state()?)));
        states.filter(|(_, state)| state.refusal().is_none())
    }

    /// Where a connection to the store's address ends up.
    pub fn coordinator_address(&mut self) -> Host {
        let Some(api) = &self.api else {
            return COORDINATOR;
        };
        let (endpoint, former) = (api.endpoint.unwrap_or(0), api.former);
        if self.phase != Phase::Load {
            return coordinator_host(endpoint);
        }
        let wavers = self.now < api.wavers_until;
        let random = self.streams.of("where the address of the store leads");
        let (kind, any) = (random.below(10), random.below(self.coordinators.len()));
        let process = match kind {
            _ if wavers => any,
            0 | 1 => former.unwrap_or(endpoint),
            2 => any,
            _ => endpoint,
        };
        coordinator_host(process)
    }

    pub fn coordinator_hears(&mut self, process: usize, heard: Heard) {
        let node = self.coordinators[process].node.as_ref();
        match node.map(|node| &node.core) {
            None => {}
            Some(Core::Alone(_)) => match heard {
                Heard::Tick => self.with_coordinator(|_, _, _| {}),
                Heard::Request(to, payload) => {
                    self.with_coordinator(|core, now, out| core.request(now, to, &payload, out));
                }
                Heard::Message(connection, message) => self.with_coordinator(|core, now, out| {
                    core.member_message(now, connection, *message, out)
                }),
                Heard::MemberGone(connection) => {
                    self.with_coordinator(|core, now, out| {
                        core.member_closed(now, connection, out)
                    });
                }
                Heard::MemberInterrupted(session) => {
                    self.with_coordinator(|core, now, out| {
                        core.member_interrupted(now, session, out)
                    });
                }
                Heard::MemberAgain(session) => {
                    self.with_coordinator(|core, now, _| core.member_resumed(now, session));
                }
                Heard::ClientGone(connection) => self.client_gone(connection),
            },
            Some(Core::Leader(_)) => self.with_leader(process, |leader, now| match heard {
                Heard::Tick => {}
                Heard::Request(to, payload) => leader.request(now, to, &payload),
                Heard::Message(connection, message) => {
                    leader.member_message(now, connection, *message);
                }
                Heard::MemberGone(session) => leader.member_closed(now, session),
                Heard::MemberInterrupted(session) => leader.member_interrupted(now, session),
                Heard::MemberAgain(session) => leader.member_resumed(now, session),
                Heard::ClientGone(connection) => leader.connection_closed(connection),
            }),
        }
    }

    pub fn with_leader(&mut self, process: usize, act: impl FnOnce(&mut Leader<Answered>, Time)) {
        let now = self.clock(coordinator_host(process));
        let Some(leader) = self.leader_mut(process) else {
            return;
        };
        act(leader, now);
        let next = leader.tick(now);
        let incarnation = self.coordinators[process].incarnation;
        while self.coordinators[process].incarnation == incarnation
            && let Some(effect) = self.leader_mut(process).and_then(Leader::take_effect)
        {
            if self.dies_now(process) {
                self.coverage.hit("leaders that died between two words");
                return self.crash_coordinator(process);
            }
            self.leader_says(process, effect);
        }
        self.note_rebuilt(process);
        self.note_new_tables(process);
        self.tick_when(coordinator_host(process), next);
    }

    /// See [`Leader::finalize_upgrade`].
    pub fn finalize_at_leader(
        &mut self,
        process: usize,
        finalize: &Finalize,
    ) -> Option<Result<u32, FinalizeError>> {
        let leader = self.leader_mut(process)?;
        Some(leader.finalize_upgrade(finalize))
    }

    fn leader_mut(&mut self, process: usize) -> Option<&mut Leader<Answered>> {
        match &mut self.coordinators[process].node.as_mut()?.core {
            Core::Leader(leader) => Some(leader),
            Core::Alone(_) => None,
        }
    }

    fn dies_now(&mut self, process: usize) -> bool {
        let dies_after = &mut self.coordinators[process].election.dies_after;
        let dies = *dies_after == Some(0);
        *dies_after = dies_after
            .map(|left| left.saturating_sub(1))
            .filter(|_| !dies);
        dies
    }

    fn leader_says(&mut self, process: usize, effect: LeaderEffect<Answered>) {
        match effect {
            LeaderEffect::State(News::Request(id, request)) => {
                self.api_request(process, id, request)
            }
            LeaderEffect::State(News::Leads { .. }) => {
                self.coverage.hit("leaders");
                self.note_found(process);
                if let Some(node) = &mut self.coordinators[process].node {
                    node.pass_over_tables();
                }
                self.note_fault(coordinator_host(process), "leads", 0);
                self.publish(process);
            }
            LeaderEffect::Reply(to, payload) => {
                self.carry_out(process, CoordinatorAction::Reply(to, payload));
            }
            LeaderEffect::SendMember(connection, message) => {
                self.hold_time(&message);
                self.carry_out(process, CoordinatorAction::SendMember(connection, message));
            }
            LeaderEffect::CloseMember(connection) => {
                self.carry_out(process, CoordinatorAction::CloseMember(connection));
            }
            LeaderEffect::Report(event) => {
                self.carry_out(process, CoordinatorAction::Report(event))
            }
            LeaderEffect::Deferred(split) => self.boundaries.answered(split),
            LeaderEffect::EndProcess => {}
            LeaderEffect::State(News::Ended(Ending::Deposed, _)) => {
                self.coverage.hit("leaders deposed by the root");
                self.stand_by(process);
            }
            LeaderEffect::State(News::Ended(Ending::NewerFormat, _)) if self.has_builds() => {
                self.coordinator_is_too_old(process);
                self.stand_by(process);
            }
            LeaderEffect::State(News::Ended(ending, text))
                if self.older_state_is_noticed(process, ending, &text) => {}
            LeaderEffect::State(News::Ended(ending, text)) => {
                let name = host_name(coordinator_host(process));
                self.fail(format!("{name} ended with {ending:?}: {text}"));
            }
        }
    }

    /// What the leader before had begun.
    fn note_found(&mut self, process: usize) {
        let node = self.coordinators[process].node.as_ref();
        let Some(state) = node.and_then(CoordinatorNode::state) else {
            return;
        };
        let status = state.cluster_status(self.clock(coordinator_host(process)));
        let mut recoveries = status.recoveries.iter();
        if recoveries.any(|recovery| recovery.ended_ns == 0) {
            self.coverage.hit("leaders that found a recovery under way");
        }
    }

    /// What a leader that ends has begun.
    pub(super) fn note_cut_off(&mut self, process: usize) {
        let node = self.coordinators[process].node.as_ref();
        let Some(state) = node.and_then(CoordinatorNode::state) else {
            return;
        };
        let status = state.cluster_status(self.clock(coordinator_host(process)));
        if status.recoveries.iter().any(|one| one.ended_ns == 0) {
            self.coverage.hit("recoveries under way at a fail-over");
        }
        if status.migrations.iter().any(|one| one.ended_ns == 0) {
            self.coverage.hit("migrations under way at a fail-over");
        }
        let mut under_way = self.clients.iter().flat_map(|it| it.under_way.values());
        if under_way.any(|purpose| matches!(purpose, Purpose::SplitTablet)) {
            self.coverage.hit("splits under way at a fail-over");
        }
    }

    fn hold_time(&mut self, message: &ToShard) {
        if matches!(&message.kind, Some(Kind::Refused(refused)) if refused.reason() == RefusedReason::LeaderInDoubt)
        {
            self.coverage
                .hit("servers that told a leader of a later one");
        }
        let told = match &message.kind {
            Some(Kind::Ping(ping)) => ping.position.map(|it| (it.term, ping.cluster_time_ns)),
            Some(Kind::Welcome(it)) => it.position.map(|at| (at.term, it.cluster_time_ns)),
            _ => None,
        };
        if self.may_tell_older_time() {
            return;
        }
        let (Some((term, time_ns)), Some(api)) = (told, &mut self.api) else {
            return;
        };
        if let Err(text) = api.tells_time(term, time_ns) {
            self.fail(text);
        }
    }

    /// The leader sees to it that the store's address leads to it. That takes a while, and may be overtaken.
    pub(super) fn publish(&mut self, process: usize) {
        let leads = self.coordinators[process].node.as_ref();
        let leads = leads.is_some_and(|node| node.state().is_some());
        if leads
            && self
                .api
                .as_ref()
                .is_some_and(|api| api.endpoint != Some(process))
        {
            let delay = self
                .streams
                .of("changes of the address of the store")
                .between(MILLI, 300 * MILLI);
            self.schedule_in(delay, Event::Publish { process });
        }
    }

    pub fn published(&mut self, process: usize) {
        if let Some(api) = &mut self.api
            && api.endpoint != Some(process)
        {
            api.former = api.endpoint.replace(process);
        }
    }

    /// All is well again with whoever leads, and with the API server.
    pub fn end_coordinator_faults(&mut self) {
        self.end_put_back();
        if let Some(api) = &mut self.api {
            api.fails_until = 0;
            api.wavers_until = 0;
        }
        for process in &mut self.coordinators {
            process.election.cut_until = 0;
            process.election.dies_after = None;
        }
    }
}
