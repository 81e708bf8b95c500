//! The shard's place in the cluster: what it and the coordinator say to each other.

use core::time::Duration;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use wire::member::{self, PortReport, Position, TabletRange, ToCoordinator, shard};

use crate::data::leases::Leases;
use crate::data::tablets::overlap;
use crate::effects::{Session, ShardEffects};
use crate::reports::Refusal;

/// Where the shard stands with the coordinator.
#[derive(Default)]
pub(crate) struct Membership {
    pub enlisted: Option<Enlisted>,
    pub refusal: Option<Refusal>,
    pub superseded: bool,
    /// The highest that a coordinator of this cluster has told; older ones are not obeyed any more.
    pub position: Option<Position>,
    /// Number of the settings in force; 0: what the shard was started with.
    pub settings: u64,
    /// Set while there is a session that the coordinator has welcomed.
    pub link: Option<CoordinatorSession>,
    /// Orders to take a tablet that some objects of are still here from before; with the number to report, if any.
    pub waiting: Vec<(Option<u64>, TabletRange)>,
    /// To be told with the next Pong.
    pub ports: Vec<PortReport>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Enlisted {
    pub cluster_id: u64,
    pub server_id: ServerId,
}

pub(crate) struct CoordinatorSession {
    /// Of the coordinator that let the shard in, if it says.
    pub leader: Option<Position>,
    pub heard: Time,
    pub silence: Duration,
    /// What its last list says of backups that are drained: its number, and which they are.
    pub list_number: u64,
    pub draining: Vec<ServerId>,
}

impl Membership {
    pub fn is_enlisted(&self) -> bool {
        self.enlisted.is_some()
    }

    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    pub fn cluster_id(&self) -> u64 {
        self.enlisted.map_or(0, |enlisted| enlisted.cluster_id)
    }

    pub fn server_id(&self) -> ServerId {
        self.enlisted
            .map_or(ServerId::INVALID, |enlisted| enlisted.server_id)
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Why a coordinator that says this is not to be obeyed; `None`: it is. One that says nothing is of an older build, or begins a new store.
    pub fn outdated(&self, cluster_id: u64, position: Option<Position>) -> Option<Refusal> {
        let known = self.position.filter(|_| self.cluster_id() == cluster_id)?;
        let told = position?;
        if told.is_of_same_leader(&known) || told.term > known.term {
            return None;
        }
        Some(Refusal::OldLeader { told, known })
    }

    /// A coordinator that is obeyed says how far it is.
    pub fn learn_position(&mut self, told: Option<Position>) {
        let is_news = |told: &Position| {
            self.position.is_none_or(|known| told.is_after(&known)) && !is_planted(Bug::ObeyOldTerm)
        };
        if let Some(told) = told.filter(is_news) {
            self.position = Some(told);
        }
    }

    /// Whether a tablet overlaps one that is taken as soon as what was there before is gone.
    pub fn is_about_to_take(&self, tablet: &TabletRange) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|(_, waits)| overlap(waits, tablet))
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    pub fn silence_deadline(&self) -> Time {
        let deadline = |link: &CoordinatorSession| link.heard + link.silence;
        self.link.as_ref().map_or(Time::NEVER, deadline)
    }

    pub fn session(&self, now: Time) -> Session {
        if now < self.silence_deadline() {
            Session::Continue
        } else {
            Session::Close
        }
    }
}

/// Asks the coordinator whether a lease is valid, unless that question is open already or nobody is there to answer.
pub(crate) fn ask_about_lease(
    membership: &Membership,
    leases: &mut Leases,
    lease_id: u64,
    out: &mut impl ShardEffects,
) {
    if membership.link.is_some() && leases.may_ask(lease_id) {
        let query = member::LeaseQuery { lease_id };
        let kind = shard::Kind::LeaseQuery(query);
        out.send_coordinator(ToCoordinator::from(kind));
    }
}
