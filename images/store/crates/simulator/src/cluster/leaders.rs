//! Coordinators whose state is in objects of an API server: who leads, what becomes of their requests, and whom the store's one address leads to.
//!
//! The lock that elects is modelled as what it is: whoever sees nobody renew it for a while takes it. It fences nothing, so that often enough several lead at a time.

use std::time::Duration;

use coordinator::leader::{Leader, Limits, News, Output, Settings};
use coordinator::state::objects;
use coordinator::state::objects::testing::Change;
use coordinator::state::objects::{Answer, Ending, Request, RequestId, Tuning};
use coordinator::{Config, Coordinator, Finalize, FinalizeError};
use wire::ids::ReplyTo;
use wire::member::coordinator::Kind;
use wire::member::{RefusedReason, ToCoordinator, ToShard};
use wire::time::Time;

use crate::cluster::client_actions::Purpose;
use crate::cluster::coordinator_node::{CoordinatorAction, CoordinatorNode, Core, sessions_of};
use crate::cluster::election::Election;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::{COORDINATOR, Cluster, host_name};
use crate::event::{Event, Party, Phase};
use crate::net::network::Host;
use crate::scenario::{FailOver, MILLI, SECOND};

/// Who sees nobody renew the lock for so long, takes it.
const LOCK_LASTS: Duration = Duration::from_secs(2);
/// Who could not renew it for so long gives it up by itself; not all do.
const LOCK_GIVEN_UP: Duration = Duration::from_millis(1200);
/// A leader that has ended itself comes back as a standby.
const COMES_BACK: u64 = 100 * MILLI;

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

    pub fn with_leader(&mut self, process: usize, act: impl FnOnce(&mut Leader<()>, Time)) {
        let now = self.clock(coordinator_host(process));
        let Some(leader) = self.leader_mut(process) else {
            return;
        };
        act(leader, now);
        let next = leader.tick(now);
        let incarnation = self.coordinators[process].incarnation;
        while self.coordinators[process].incarnation == incarnation
            && let Some(output) = self.leader_mut(process).and_then(Leader::take_output)
        {
            if self.dies_now(process) {
                self.coverage.hit("leaders that died between two words");
                return self.crash_coordinator(process);
            }
            self.leader_says(process, output);
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

    fn leader_mut(&mut self, process: usize) -> Option<&mut Leader<()>> {
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

    fn leader_says(&mut self, process: usize, output: Output<()>) {
        match output {
            Output::State(News::Request(id, request)) => self.api_request(process, id, request),
            Output::State(News::Leads { .. }) => {
                self.coverage.hit("leaders");
                self.note_found(process);
                if let Some(node) = &mut self.coordinators[process].node {
                    node.pass_over_tables();
                }
                self.note_fault(coordinator_host(process), "leads", 0);
                self.publish(process);
            }
            Output::Reply(to, payload) => {
                self.carry_out(process, CoordinatorAction::Reply(to, payload));
            }
            Output::SendMember(connection, message) => {
                self.hold_time(&message);
                self.carry_out(process, CoordinatorAction::SendMember(connection, message));
            }
            Output::CloseMember(connection) => {
                self.carry_out(process, CoordinatorAction::CloseMember(connection));
            }
            Output::Log(_, text) => self.carry_out(process, CoordinatorAction::Log(text)),
            Output::Event(event) => self.carry_out(process, CoordinatorAction::Report(event)),
            Output::Deferred(()) | Output::EndProcess => {}
            Output::State(News::Ended(Ending::Deposed, _)) => {
                self.coverage.hit("leaders deposed by the root");
                self.stand_by(process);
            }
            Output::State(News::Ended(Ending::NewerFormat, _)) if self.has_builds() => {
                self.coordinator_is_too_old(process);
                self.stand_by(process);
            }
            Output::State(News::Ended(ending, text))
                if self.older_state_is_noticed(process, ending, &text) => {}
            Output::State(News::Ended(ending, text)) => {
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
    fn note_cut_off(&mut self, process: usize) {
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

    /// The leader sees to it that the store's address leads to it. That takes a while, and may be overtaken.
    fn publish(&mut self, process: usize) {
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

    /// Whether a request of this process gets there and back in time.
    fn reaches_api(&mut self, process: usize) -> bool {
        let Some(api) = &self.api else {
            return false;
        };
        let is_cut = self.now < self.coordinators[process].election.cut_until;
        let failures = if self.now < api.fails_until {
            api.failures
        } else {
            0
        };
        !is_cut
            && !self
                .streams
                .of("failures of the API server")
                .chance(failures)
    }

    /// Decides what becomes of a request.
    fn api_request(&mut self, process: usize, id: RequestId, request: Request) {
        let incarnation = self.coordinators[process].incarnation;
        let way = self
            .streams
            .of("ways to the API server")
            .between(MILLI / 2, 20 * MILLI);
        let execute = |is_waited_for| Event::ApiExecute {
            process,
            incarnation,
            id,
            request: Box::new(request),
            is_waited_for,
        };
        if self.reaches_api(process) {
            return self.schedule_in(way, execute(true));
        }
        self.coverage.hit("requests to the API server that failed");
        let random = self.streams.of("failed requests to the API server");
        let timeout = random.between(MILLI, 3 * SECOND);
        let delay = match random.below(3) {
            0 => None,
            1 => Some(random.between(0, timeout)),
            _ => Some(timeout + random.between(0, 20 * SECOND)),
        };
        let answer = Box::new(Answer::Failed("no answer in time".to_owned()));
        let event = Event::ApiAnswer {
            process,
            incarnation,
            id,
            answer,
        };
        self.schedule_in(timeout, event);
        if let Some(delay) = delay {
            self.schedule_in(delay, execute(false));
        }
    }

    pub fn api_execute(
        &mut self,
        process: usize,
        incarnation: u64,
        id: RequestId,
        request: &Request,
        is_waited_for: bool,
    ) {
        let is_alive = self.coordinators[process].incarnation == incarnation;
        if !is_alive && self.streams.of("requests of the dead").chance(500) {
            // It died with its sender.
            return;
        }
        let staleness = self.streams.of("staleness of the API server").below(8);
        let Some(api) = &mut self.api else {
            return;
        };
        if api
            .served_from
            .get(process)
            .is_some_and(|first| incarnation < *first)
        {
            return;
        }
        let (answer, change) = api.server.execute(request, staleness);
        match (&answer, change) {
            (Answer::Conflict, _) => self.coverage.hit("conflicts at the API server"),
            (_, Change::Root) if !is_alive => {
                self.coverage
                    .hit("roots written after their leader was gone");
            }
            (_, Change::Root) if !is_waited_for => {
                self.coverage
                    .hit("roots written by requests that had failed");
            }
            (_, Change::Created(_)) => self.coverage.hit("chunks written"),
            (_, Change::Deleted(_)) => self.coverage.hit("chunks deleted"),
            _ => {}
        }
        if is_waited_for {
            let answer = Box::new(answer);
            let event = Event::ApiAnswer {
                process,
                incarnation,
                id,
                answer,
            };
            let way = self
                .streams
                .of("ways to the API server")
                .between(MILLI / 2, 20 * MILLI);
            self.schedule_in(way, event);
        }
    }

    pub fn api_answer(&mut self, process: usize, incarnation: u64, id: RequestId, answer: Answer) {
        if self.coordinators[process].incarnation == incarnation {
            self.with_leader(process, |leader, now| leader.answered(now, id, answer));
        }
    }

    pub fn api_is_away_for(&mut self, after: u64) {
        self.api_fails_for(1000, after);
    }

    pub fn api_fails_for(&mut self, failures: u64, after: u64) {
        if failures == 1000 {
            self.coverage.hit("absences of the API server");
            if after > 60 * SECOND {
                self.coverage.hit("absences of the API server for minutes");
            }
        }
        self.note_fault(COORDINATOR, "API server fails for ns", after);
        if let Some(api) = &mut self.api {
            (api.failures, api.fails_until) = (failures, self.now + after);
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
