//! Somebody says that what a recovery misses is gone for good.

use base::ids::ServerId;
use base::time::Time;

use crate::orders::{AcceptLossError, Acceptance};
use crate::status::Loss;
use crate::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// Lets a recovery go on without what is missing: see [`Acceptance`].
    ///
    /// # Errors
    /// Nothing was accepted; the text says why, and what to do.
    pub fn accept_loss(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Loss, AcceptLossError> {
        self.gated(out, |it, out| it.accept_now(now, acceptance, out))
    }

    fn accept_now(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Loss, AcceptLossError> {
        if let Some(why) = self.refusal() {
            return Err(AcceptLossError::DoesNotLead(why.to_owned()));
        }
        self.check_store(acceptance.expected_cluster_id)
            .map_err(AcceptLossError::OtherStore)?;
        let server = ServerId(acceptance.server_id);
        self.recoveries
            .accept_loss(&mut self.store, now, server, &acceptance.token, out)
    }
}
