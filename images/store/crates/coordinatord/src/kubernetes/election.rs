//! Who should try to lead: whoever holds a lease, an object that its holder renews. A state machine without I/O.
//!
//! It only elects. Two may believe for a while that they hold the lease; the root's version decides which of them can write.
//! So nobody's clock has to agree with another's, and a leader that cannot renew, because the API server is away, goes on.

use std::time::Duration;

use base::time::Time;

/// What the lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Empty: nobody holds it.
    pub holder: String,
    /// After so long without renewal others may take it.
    pub duration: Duration,
    /// How often it has changed hands.
    pub transitions: u32,
}

/// The lease's version, as the API server calls it.
pub type Version = String;

/// Carried out one at a time; each is answered by one [`LeaseResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Create(Claim),
    /// If it still has that version.
    Replace(Version, Claim),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    Found(Version, Claim),
    NotFound,
    /// It was written, and has this version now.
    Done(Version),
    Conflict,
    /// Whether anything was written is unknown.
    Failed(String),
}

/// What comes of an event, besides a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// This candidate holds the lease now.
    Elected,
    /// Another one does, which is named. Final.
    Lost(String),
}

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Of a claim.
    pub duration: Duration,
    /// Between two renewals.
    pub renewal: Duration,
    /// Between two looks at somebody else's claim, and after a failure.
    pub look: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            duration: Duration::from_secs(6),
            renewal: Duration::from_millis(1500),
            look: Duration::from_secs(1),
        }
    }
}

/// A lease that says more than this was not written by a coordinator.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// One candidate.
#[derive(Debug)]
pub struct Election {
    me: String,
    timing: Timing,
    role: Role,
    due: Time,
    is_asking: bool,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
enum Role {
    Standby(Option<Watched>),
    /// Somebody else's claim had expired, or there was none: this one was sent.
    Claiming(Claim),
    /// With the version that it had last, as far as that is known.
    Leader(Option<Version>, Claim),
    Lost,
}

/// Somebody else's claim.
#[derive(Debug)]
struct Watched {
    version: Version,
    holder: String,
    /// When it was last seen.
    seen: Time,
    /// For how long it was seen unchanged. Time during which nothing could be seen does not count: its holder could not
    /// renew it either.
    unchanged: Duration,
    /// The last look failed.
    was_blind: bool,
}

/// The lease cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub since: Time,
    pub why: String,
}

impl Election {
    /// `me` names this candidate; a claim under this name is its own, or that of a process that it has taken the place of.
    pub fn new(me: String, timing: Timing, now: Time) -> Election {
        Election {
            me,
            timing,
            role: Role::Standby(None),
            due: now,
            is_asking: false,
            trouble: None,
        }
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(..))
    }

    /// Who holds the lease, as far as this candidate knows.
    pub fn holder(&self) -> Option<&str> {
        match &self.role {
            Role::Standby(watched) => watched.as_ref().map(|watched| watched.holder.as_str()),
            Role::Leader(..) => Some(&self.me),
            Role::Claiming(_) | Role::Lost => None,
        }
    }

    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// When [`Election::next_request`] will have something; never while a request is under way.
    pub fn next_wake(&self) -> Time {
        match (&self.role, self.is_asking) {
            (Role::Lost, _) | (_, true) => Time::NEVER,
            _ => self.due,
        }
    }

    /// What is to be asked now, if anything.
    pub fn next_request(&mut self, now: Time) -> Option<Request> {
        if self.next_wake() > now {
            return None;
        }
        self.is_asking = true;
        Some(match &self.role {
            Role::Leader(Some(version), claim) => Request::Replace(version.clone(), claim.clone()),
            _ => Request::Read,
        })
    }

    /// What came of the request under way, and perhaps another one that is to follow at once.
    pub fn answered(
        &mut self,
        now: Time,
        answer: LeaseResponse,
    ) -> (Option<Request>, Option<News>) {
        self.is_asking = false;
        match &answer {
            LeaseResponse::Failed(why) => {
                let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
                let why = why.clone();
                self.trouble = Some(Trouble { since, why });
            }
            _ => self.trouble = None,
        }
        self.due = now + self.timing.look;
        let (request, news) = match answer {
            LeaseResponse::Found(version, claim) => self.found(now, version, claim),
            LeaseResponse::NotFound => (Some(Request::Create(self.claim(0))), None),
            LeaseResponse::Done(version) => self.written(now, version),
            // Somebody was faster; or it is not known what was written.
            LeaseResponse::Conflict | LeaseResponse::Failed(_) => {
                match &mut self.role {
                    Role::Standby(Some(watched)) => watched.was_blind = true,
                    Role::Standby(None) | Role::Lost => {}
                    Role::Claiming(_) => self.role = Role::Standby(None),
                    Role::Leader(version, _) => *version = None,
                }
                (None, None)
            }
        };
        if let Some(Request::Create(claim) | Request::Replace(_, claim)) = &request {
            if !self.is_leader() {
                self.role = Role::Claiming(claim.clone());
            }
            self.is_asking = true;
        }
        (request, news)
    }

    fn claim(&self, transitions: u32) -> Claim {
        Claim {
            holder: self.me.clone(),
            duration: self.timing.duration,
            transitions,
        }
    }

    fn found(
        &mut self,
        now: Time,
        version: Version,
        claim: Claim,
    ) -> (Option<Request>, Option<News>) {
        let is_mine = claim.holder == self.me;
        if is_mine || claim.holder.is_empty() {
            let next = self.claim(claim.transitions.saturating_add(u32::from(!is_mine)));
            return (Some(Request::Replace(version, next)), None);
        }
        match &mut self.role {
            Role::Leader(..) => {
                self.role = Role::Lost;
                (None, Some(News::Lost(claim.holder)))
            }
            Role::Standby(Some(watched)) if watched.version == version => {
                if !watched.was_blind {
                    watched.unchanged += now.since(watched.seen);
                }
                (watched.seen, watched.was_blind) = (now, false);
                if watched.unchanged < claim.duration.min(MAX_DURATION) {
                    return (None, None);
                }
                let next = self.claim(claim.transitions.saturating_add(1));
                (Some(Request::Replace(version, next)), None)
            }
            Role::Lost => (None, None),
            Role::Standby(_) | Role::Claiming(_) => {
                self.role = Role::Standby(Some(Watched {
                    version,
                    holder: claim.holder,
                    seen: now,
                    unchanged: Duration::ZERO,
                    was_blind: false,
                }));
                (None, None)
            }
        }
    }

    fn written(&mut self, now: Time, version: Version) -> (Option<Request>, Option<News>) {
        self.due = now + self.timing.renewal;
        match core::mem::replace(&mut self.role, Role::Lost) {
            Role::Claiming(claim) => {
                self.role = Role::Leader(Some(version), claim);
                (None, Some(News::Elected))
            }
            Role::Leader(_, claim) => {
                self.role = Role::Leader(Some(version), claim);
                (None, None)
            }
            // An answer to nothing that was asked.
            other => {
                self.role = other;
                (None, None)
            }
        }
    }
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
