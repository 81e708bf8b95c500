//! What must hold of all machines between two rounds.

use crate::root::Coordinator;

impl Coordinator {
    /// Looks at everything. Slow: for tests and simulation.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn audit(&self) -> Result<(), String> {
        for resource in self.resources() {
            resource.audit()?;
        }
        self.recoveries.audit_orders(&self.store)?;
        self.movement.audit(&self.store)?;
        self.keeping.audit()
    }
}
