//! For tests: whether an endpoint's lists agree with each other, and the cookies that it gives.

use std::net::SocketAddrV4;

use base::time::Time;

use super::Endpoint;
use crate::role::Role;

impl Endpoint {
    /// Every session is found where it is to be, and nothing else is.
    pub(crate) fn assert_consistent(&self) {
        let sessions = || self.sessions.iter().flatten();
        let (mut accepted, mut initiated) = (0, 0);
        for session in sessions() {
            let name = (session.peer, session.peer_id);
            match session.role {
                Role::Initiator => {
                    initiated += 1;
                    assert!(self.initiated.contains(&session.index));
                }
                Role::Acceptor { incarnation } => {
                    accepted += 1;
                    assert_eq!(self.accepted.get(&name), Some(&session.index));
                    assert_eq!(self.runs[&session.peer].incarnation, incarnation);
                }
            }
        }
        assert_eq!(
            (self.accepted.len(), self.initiated.len()),
            (accepted, initiated)
        );
        let of_runs: usize = self.runs.values().map(|run| run.sessions).sum();
        assert_eq!(
            (of_runs, self.shared.holders.sessions()),
            (accepted, accepted)
        );
        for (name, index) in &self.reached {
            let session = self.sessions[*index as usize].as_ref();
            let is_that = session.is_some_and(|one| (one.peer, one.peer_id) == *name);
            assert!(is_that && self.initiated.contains(index));
        }
        let slots: usize = sessions().map(|session| session.slots.len()).sum();
        assert!(self.shared.deadlines.len() <= slots);
        assert_eq!(self.shared.deadlines.len(), self.shared.arrivals.len());
        let admitted: usize = sessions().map(|session| session.admitted_bytes()).sum();
        assert_eq!(self.shared.holders.admitted_bytes(), admitted);
    }

    pub(crate) fn cookie_of(&self, now: Time, peer: SocketAddrV4, session: u64) -> u64 {
        self.baker.cookie(now, peer, session)
    }
}
