//! Timers of a client.

use base::ids::TableId;

use crate::operation_id::OperationId;

/// What a timer is for. Timers are never taken back: one that is not needed any more does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    Resume(OperationId),
    Deadline(OperationId),
    FetchTable(TableId),
    ConnectCoordinator,
    RenewLease,
    /// This session goes a slower way than there is: try the faster one.
    TryFaster(u64),
}
