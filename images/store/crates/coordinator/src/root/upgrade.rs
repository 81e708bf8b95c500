//! Orders of people about formats.

use crate::effects::CoordinatorEffects;
use crate::orders::{Finalize, FinalizeError};
use crate::root::Coordinator;
use crate::status::EventKind;

impl Coordinator {
    /// Puts a format in force that every member reads, and tells them. Answers the one that is in force then. Asking for what is so already changes nothing.
    ///
    /// # Errors
    /// Somebody does not read it.
    pub fn finalize_upgrade(
        &mut self,
        finalize: &Finalize,
        out: &mut impl CoordinatorEffects,
    ) -> Result<u32, FinalizeError> {
        if let Some(why) = self.refusal() {
            return Err(FinalizeError::DoesNotLead(why.to_owned()));
        }
        self.check_store(finalize.expected_cluster_id)
            .map_err(FinalizeError::OtherStore)?;
        let before = self.upgrades.format();
        let members = &mut self.store.members;
        let format = self.upgrades.finalize(members, finalize.format, out)?;
        if format != before {
            let text = format!("format {format} is in force, in place of {before}");
            self.record_order(EventKind::FormatInForce, text);
        }
        Ok(format)
    }
}
