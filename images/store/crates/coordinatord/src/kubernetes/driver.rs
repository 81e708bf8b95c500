//! Between sockets, the API server, and the leader's state machine.

use std::net::SocketAddrV4;
use std::sync::mpsc::Receiver;

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::Coordinator;
use coordinator::leader::{self, Leader, LeaderEffect, News};
use coordinator::state::objects::{Ending, ObjectResponse, Request, RequestId};
use daemon::logging::{report, set_log_level};
use daemon::runtime::{PollingFailed, end_process};
use net::{Audience, CloseReason, Counters, Door, Handler, Io, Protocol, Reactor};
use prost::Message;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use transport::session::{Closed, What};

use super::standing::{Role, Sender};
use crate::connections::{MemberConnections, Told};
use crate::controls::Controls;
use crate::driver::{Keeping, Question, Shown};
use crate::error::ListenError;
use crate::onlookers::Onlookers;

/// Exit code of a leader that another one has followed: nothing is wrong, and the next process in its place is a standby.
pub const EXIT_DEPOSED: i32 = 3;

/// What comes from the thread that talks to the API server.
pub enum Event {
    Elected,
    Answered(RequestId, ObjectResponse),
}

/// Where clients and members are served.
#[derive(Clone, Copy, Debug)]
pub struct Listeners {
    pub client: SocketAddrV4,
    pub member: SocketAddrV4,
}

/// To another thread, once all that it tells of is noted.
type Deferred = Box<dyn FnOnce() + Send>;

/// The ends of channels that the driver uses.
pub struct Channels {
    pub events: Receiver<Event>,
    pub questions: Receiver<Question>,
    pub requests: UnboundedSender<(RequestId, Request)>,
    pub standing: Sender,
    /// Told once, when it leads: where, and in which term.
    pub serving: oneshot::Sender<(Listeners, u64)>,
}

pub struct Driver {
    name: String,
    settings: Option<leader::Settings>,
    /// From the election on.
    leader: Option<Leader<Deferred>>,
    leads: bool,
    events: Receiver<Event>,
    questions: Receiver<Question>,
    requests: UnboundedSender<(RequestId, Request)>,
    standing: Sender,
    client_listener: Option<usize>,
    members: MemberConnections,
    onlookers: Onlookers,
    controls: Controls,
    /// Why it must not lead.
    refusal: Option<String>,
}

/// Why the thread with the sockets has ended.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    #[error(transparent)]
    Polling(#[from] PollingFailed),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Runs on a thread of its own: waits to be elected, and opens `listeners` when the state is loaded.
///
/// # Errors
/// A listener cannot be opened.
pub fn run(
    mut reactor: Reactor,
    settings: leader::Settings,
    channels: Channels,
    listeners: Listeners,
    for_members: Door,
) -> Result<(), LeadError> {
    let Channels {
        events,
        questions,
        requests,
        standing,
        serving,
    } = channels;
    let mut driver = Driver {
        name: settings.keeper.leader.clone(),
        settings: Some(settings),
        leader: None,
        leads: false,
        events,
        questions,
        requests,
        standing,
        client_listener: None,
        members: MemberConnections::default(),
        onlookers: Onlookers::default(),
        controls: Controls::default(),
        refusal: None,
    };
    let leads = reactor.run_until(&mut driver, |driver| driver.leads);
    if !leads.map_err(PollingFailed)? {
        return Ok(());
    }
    let mut listen = |address: SocketAddrV4, protocol, (audience, door), what| {
        let listener = reactor.listen(address, protocol, audience, door);
        listener.map_err(|error| ListenError {
            address,
            what,
            error,
        })
    };
    let (number, client) = listen(
        listeners.client,
        Protocol::Rpc,
        (Audience::Clients, Door::Plain),
        "clients",
    )?;
    let (_, member) = listen(
        listeners.member,
        Protocol::Member,
        (Audience::Peers, for_members),
        "members",
    )?;
    driver.client_listener = Some(number);
    driver.be(Role::Leading);
    // Nobody listens if the program is ending.
    let _ = serving.send((Listeners { client, member }, driver.term()));
    Ok(reactor.run(&mut driver).map_err(PollingFailed)?)
}

impl Driver {
    fn be(&self, role: Role) {
        self.standing.send_modify(|standing| standing.role = role);
    }

    fn term(&self) -> u64 {
        let coordinator = self.leader.as_ref().and_then(Leader::coordinator);
        let position = coordinator.and_then(Coordinator::position);
        position.map_or(0, |position| position.term)
    }

    fn elected(&mut self, now: Time) {
        let Some(settings) = self.settings.take() else {
            return;
        };
        let mut leader = Leader::new(settings);
        leader.start(now);
        self.leader = Some(leader);
        self.be(Role::TakingOver);
    }

    fn question(&mut self, now: Time, question: Question, counters: Counters) {
        // An answer that is dropped tells whoever asked that there is none.
        let Some(leader) = &mut self.leader else {
            return;
        };
        let answer: Deferred = match question {
            Question::Status(answer) => {
                let Some(shown) = self.shown(now, counters) else {
                    return;
                };
                Box::new(self.onlookers.add(answer, shown))
            }
            Question::Tables {
                after_table_id,
                page_size,
                answer,
            } => {
                let Some(coordinator) = leader.coordinator() else {
                    return;
                };
                let page = coordinator.tables(after_table_id, page_size);
                Box::new(move || drop(answer.send(page)))
            }
            Question::Events(answer) => {
                let Some(coordinator) = leader.coordinator() else {
                    return;
                };
                let events = coordinator.events(now);
                Box::new(move || drop(answer.send(events)))
            }
            Question::RemoveMember { removal, answer } => {
                let removed = leader.remove_member(now, &removal);
                Box::new(move || drop(answer.send(removed)))
            }
            Question::DrainMember { drain, answer } => {
                let begun = leader.drain_member(now, &drain);
                Box::new(move || drop(answer.send(begun)))
            }
            Question::UndrainMember { drain, answer } => {
                let ended = leader.undrain_member(&drain);
                Box::new(move || drop(answer.send(ended)))
            }
            Question::AcceptLoss { acceptance, answer } => {
                let accepted = leader.accept_loss(now, &acceptance);
                Box::new(move || drop(answer.send(accepted)))
            }
            Question::FinalizeUpgrade { finalize, answer } => {
                let finalized = leader.finalize_upgrade(&finalize);
                Box::new(move || drop(answer.send(finalized)))
            }
            Question::SetSettings { order, answer } => {
                let set = leader.set_settings(&order);
                Box::new(move || drop(answer.send(set)))
            }
            Question::MigrateTablet { order, answer } => {
                let begun = leader.migrate_tablet(now, &order);
                Box::new(move || drop(answer.send(begun)))
            }
            Question::SplitTable { order, answer } => {
                let split = leader.split_table(now, &order);
                Box::new(move || drop(answer.send(split)))
            }
            Question::GiveUpMigration {
                migration_id,
                expected_cluster_id,
                answer,
            } => {
                let given_up = leader.give_up_migration(now, migration_id, expected_cluster_id);
                Box::new(move || drop(answer.send(given_up)))
            }
            Question::Control { order, answer } => {
                let to = self.controls.next();
                let asked = leader.control_shards(now, &order, to);
                return self.controls.begun(to, asked, answer);
            }
            Question::GiveUpVolumes { surrender, answer } => {
                let given_up = leader.give_up_volumes(&surrender);
                Box::new(move || drop(answer.send(given_up)))
            }
        };
        if let Some(leader) = &mut self.leader {
            leader.defer(answer);
        }
    }

    fn shown(&self, now: Time, counters: Counters) -> Option<Shown> {
        let mut status = self.leader.as_ref()?.status(now)?;
        if let Some(refusal) = &self.refusal {
            status.refusal.clone_from(refusal);
        }
        Some(Shown {
            status,
            counters,
            keeping: Keeping::Objects(self.name.clone()),
        })
    }

    /// What cannot be noted for long is shown all the same, with the reason.
    fn show_what_waits(&mut self, now: Time, counters: Counters) {
        let leader = self.leader.as_ref();
        let is_stuck = leader.is_some_and(|leader| leader.wait(now).is_some());
        let mut onlookers = core::mem::take(&mut self.onlookers);
        onlookers.show(is_stuck || self.refusal.is_some(), || {
            self.shown(now, counters)
        });
        self.onlookers = onlookers;
    }

    /// Closes a connection on which something came that makes no sense, and ends its session.
    fn close_member(&mut self, now: Time, connection: u64, io: &mut Io) {
        let closed = self.members.closed(connection);
        io.close(connection);
        if let Closed::Interrupted(session) | Closed::Over(session) = closed {
            self.members.end(session, io);
            if let Some(leader) = &mut self.leader {
                leader.member_closed(now, session);
            }
        }
    }

    /// Does what the leader says.
    fn carry_out(&mut self, io: &mut Io) {
        while let Some(effect) = self.leader.as_mut().and_then(Leader::take_effect) {
            match effect {
                LeaderEffect::State(News::Request(id, request)) => {
                    // Nobody takes it if the program is ending.
                    let _ = self.requests.send((id, request));
                }
                LeaderEffect::State(News::Leads { cluster_id, is_new }) => {
                    self.leads(cluster_id, is_new)
                }
                LeaderEffect::Reply(to, payload) => {
                    if !self.controls.replied(to, &payload) {
                        io.send(to.connection, to.nonce, &[&payload]);
                    }
                }
                LeaderEffect::SendMember(session, message) => {
                    let (what, encoded) = (What::of(&message), message.encode_to_vec());
                    self.members.say(session, what, encoded, io);
                }
                LeaderEffect::CloseMember(session) => self.members.end(session, io),
                LeaderEffect::Deferred(answer) => answer(),
                LeaderEffect::Report(event) => report(event.level(), &event),
                LeaderEffect::EndProcess => end_process(),
                LeaderEffect::State(News::Ended(ending, text)) => self.ended(ending, text),
            }
        }
    }

    fn leads(&mut self, cluster_id: u64, is_new: bool) {
        self.leads = true;
        let status = self
            .leader
            .as_ref()
            .and_then(|leader| leader.status(net::now()));
        let Some(status) = status.filter(|_| !is_new) else {
            tracing::info!("nothing was noted: a new, empty store {cluster_id:016x}");
            return;
        };
        tracing::info!(
            members = status.members.len(),
            tables = status.table_count,
            leases = status.client_lease_count,
            term = status.term,
            "going on with store {cluster_id:016x}"
        );
    }

    fn ended(&mut self, ending: Ending, text: String) {
        if ending == Ending::Deposed {
            tracing::warn!("{text}");
            std::process::exit(EXIT_DEPOSED);
        }
        let text = match text.starts_with("State") {
            true => text,
            false => format!("{}: {text}", ending.name()),
        };
        tracing::error!("this coordinator was elected, and must not lead: {text}");
        self.refusal = Some(text.clone());
        self.be(Role::Refused(text));
    }

    /// While the state is not loaded, somebody may want to know why.
    fn say_what_keeps_it(&self, now: Time) {
        let wait = self.leader.as_ref().and_then(|leader| leader.wait(now));
        let why = wait.filter(|_| !self.leads).map(|wait| wait.why);
        self.standing.send_if_modified(|standing| {
            let is_taking_over = standing.role == Role::TakingOver;
            let is_news = is_taking_over && standing.trouble != why;
            if is_news {
                standing.trouble.clone_from(&why);
            }
            is_news
        });
    }
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        if listener != self.client_listener {
            self.members.opened(now, connection, io.peer(connection));
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        let Some(leader) = &mut self.leader else {
            return;
        };
        if !self.members.contains(connection) {
            return leader.request(now, ReplyTo { connection, nonce }, payload);
        }
        match self.members.hear(connection, payload, io) {
            Told::Message(session, message) => leader.member_message(now, session, *message),
            Told::Resumed(session) => leader.member_resumed(now, session),
            Told::Nothing => {}
            Told::Wrong(why) => {
                let from = self.members.from(connection);
                tracing::warn!("closed the member connection {from}: {why}");
                self.close_member(now, connection, io);
            }
        }
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, _io: &mut Io) {
        if !self.members.contains(connection) {
            if let Some(leader) = &mut self.leader {
                leader.connection_closed(connection);
            }
            return;
        }
        let closed = self.members.ended(connection, &reason);
        let Some(leader) = &mut self.leader else {
            return;
        };
        match closed {
            Closed::Interrupted(session) => leader.member_interrupted(now, session),
            Closed::Over(session) => leader.member_closed(now, session),
            Closed::Nothing => {}
        }
    }

    fn woken(&mut self, now: Time, io: &mut Io) {
        while let Ok(event) = self.events.try_recv() {
            match (event, &mut self.leader) {
                (Event::Elected, _) => self.elected(now),
                (Event::Answered(id, answer), Some(leader)) => leader.answered(now, id, answer),
                (Event::Answered(..), None) => {}
            }
        }
        while let Ok(question) = self.questions.try_recv() {
            self.question(now, question, io.counters());
        }
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        while let Some(connection) = self.members.take_overdue(now) {
            self.close_member(now, connection, io);
        }
        let next = self.leader.as_mut().map(|leader| leader.tick(now));
        self.carry_out(io);
        self.say_what_keeps_it(now);
        self.show_what_waits(now, io.counters());
        if let Some(coordinator) = self.leader.as_ref().and_then(Leader::coordinator) {
            set_log_level(coordinator.settings().log_level);
        }
        next.unwrap_or(Time::NEVER)
            .min(self.members.next_deadline())
    }
}
