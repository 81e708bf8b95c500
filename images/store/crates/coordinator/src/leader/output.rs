//! What a leader has its driver do.

use wire::ids::ReplyTo;
use wire::member::ToShard;

use crate::event::Event;
use crate::state::objects::{Ending, Request, RequestId};

/// What a leader tells its driver. `A` is the driver's own, see [`super::Leader::defer`].
#[derive(Debug)]
pub enum Output<A> {
    /// Of the API server. To be answered with [`super::Leader::answered`], exactly once.
    Request(RequestId, Request),
    /// The state is loaded: clients and members are served from now on.
    Leads { cluster_id: u64, is_new: bool },
    /// See [`crate::Output::reply`].
    Reply(ReplyTo, Vec<u8>),
    /// See [`crate::Output::send_member`].
    SendMember(u64, ToShard),
    /// See [`crate::Output::close_member`]. Nothing that comes on the connection counts any more, also what came before this.
    CloseMember(u64),
    /// What was deferred: what it may show is noted.
    Deferred(A),
    /// For people; see [`crate::Output::log_message`].
    Log(u32, String),
    /// See [`crate::Output::report`].
    Event(Event),
    /// See [`crate::Output::end_process`].
    EndProcess,
    /// This leadership is over: nothing that still waits will ever leave, and whoever asks is refused. After [`Ending::Deposed`] this process is to start anew,
    /// as a standby. After anything else people must act; [`super::Leader::status`] goes on saying why.
    Ended(Ending, String),
}
