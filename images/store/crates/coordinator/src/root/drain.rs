//! Orders to drain members, and to let them stay. docs/drain.md says what counts as drained, and why.

use base::time::Time;

use crate::orders::{Drain, DrainError};
use crate::reports::MemberEvent;
use crate::status::Draining;
use crate::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// A member is to leave the store. Refused where it could not end; done already is no error. Returns how far it is.
    pub fn drain_member(
        &mut self,
        now: Time,
        drain: &Drain,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Draining, DrainError> {
        self.gated(out, |it, out| it.drain_now(now, drain, out))
    }

    fn drain_now(
        &mut self,
        now: Time,
        drain: &Drain,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Draining, DrainError> {
        let name = &drain.name;
        let is_draining = self.check_drain(drain)?;
        if !is_draining {
            let reasons = self.departures().why_drain_cannot_end(name);
            if !reasons.is_empty() {
                let member = name.clone();
                return Err(DrainError::CannotEnd { member, reasons });
            }
            self.set_draining(name, true, out);
            let servers = self.departures().servers_of(name);
            let why = "the server that was to have the tablet is being drained";
            self.movement
                .give_up_to(&self.store, now, &servers, why, out);
        }
        Ok(self.departures().draining(name))
    }

    /// A member stays after all. Tablets and copies that have gone elsewhere do not come back by this.
    pub fn undrain_member(
        &mut self,
        drain: &Drain,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), DrainError> {
        if self.check_drain(drain)? {
            self.gated(out, |it, out| it.set_draining(&drain.name, false, out));
        }
        Ok(())
    }

    /// Whether the member is being drained already.
    fn check_drain(&self, drain: &Drain) -> Result<bool, DrainError> {
        if let Some(why) = self.refusal() {
            return Err(DrainError::DoesNotLead(why.to_owned()));
        }
        self.check_store(drain.expected_cluster_id)
            .map_err(DrainError::OtherStore)?;
        match self.store.members.get(&drain.name) {
            Some(member) => Ok(member.is_draining),
            None => Err(DrainError::NotFound {
                member: drain.name.clone(),
            }),
        }
    }

    fn set_draining(&mut self, name: &str, is_draining: bool, out: &mut impl CoordinatorEffects) {
        if self.store.members.set_draining(name, is_draining) {
            let member = name.to_owned();
            let event = match is_draining {
                true => MemberEvent::Drained { member },
                false => MemberEvent::Undrained { member },
            };
            out.report(event.into());
            self.announced.announce(&mut self.store, None, out);
        }
    }

    /// Members that nobody seems to need any more get nothing from now on, not even as the last resort. They are drained when all know that, and nobody
    /// has put anything there before.
    pub(crate) fn end_last_resorts(&mut self, out: &mut impl CoordinatorEffects) {
        for name in self.store.members.last_resorts() {
            let departures = self.departures();
            if departures.tablets_at(&name) == 0
                && departures.why_copies_are_needed(&name).is_empty()
            {
                self.store.members.end_last_resort(&name);
                out.report(MemberEvent::LastResortEnded { member: name }.into());
                self.announced.announce(&mut self.store, None, out);
            }
        }
    }
}
