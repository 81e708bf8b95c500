//! What a leader has its driver do with the state.

use crate::outbox;
use crate::state::objects::{Ending, Request, RequestId};

/// What a leader tells its driver. `A` is the driver's own, see [`super::Leader::defer`].
pub type LeaderEffect<A> = outbox::Effect<A, News>;

/// What concerns the state in objects, and the leadership.
#[derive(Debug)]
pub enum News {
    /// Of the API server. To be answered with [`super::Leader::answered`], exactly once.
    Request(RequestId, Request),
    /// The state is loaded: clients and members are served from now on.
    Leads { cluster_id: u64, is_new: bool },
    /// This leadership is over: nothing that still waits will ever leave, and whoever asks is refused. After [`Ending::Deposed`] this process is to
    /// start anew, as a standby. After anything else people must act; [`super::Leader::status`] goes on saying why.
    Ended(Ending, String),
}
