//! What must hold of all machines between two rounds.

use crate::root::Coordinator;

impl Coordinator {
    /// Looks at everything. Slow: for tests and simulation.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn audit(&self) -> Result<(), String> {
        self.store.members.audit()?;
        self.store.tables.audit()?;
        self.store.leases.audit()?;
        self.recoveries.audit(&self.store)?;
        self.movement.audit(&self.store)?;
        self.keeping.audit()
    }
}
