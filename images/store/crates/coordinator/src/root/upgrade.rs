//! Orders of people about formats.

use crate::orders::{Finalize, FinalizeError};
use crate::output::Output;
use crate::root::Coordinator;

impl Coordinator {
    /// Puts a format in force that every member reads, and tells them. Answers the one that is in force then. Asking for what is so already changes nothing.
    ///
    /// # Errors
    /// Somebody does not read it.
    pub fn finalize_upgrade(
        &mut self,
        finalize: &Finalize,
        out: &mut impl Output,
    ) -> Result<u32, FinalizeError> {
        if let Some(why) = self.refusal() {
            return Err(FinalizeError::DoesNotLead(why.to_owned()));
        }
        self.check_store(finalize.expected_cluster_id)
            .map_err(FinalizeError::OtherStore)?;
        let members = &mut self.store.members;
        self.upgrades.finalize(members, finalize.format, out)
    }
}
