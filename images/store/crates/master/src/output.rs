//! What a shard says to its driver.

use wire::ids::ReplyTo;
use wire::member::ToCoordinator;

/// Where a shard's words go. The driver writes them straight into its buffers.
pub trait Output {
    /// Answers a request; the parts, one behind the other, are one payload.
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]);
    fn send_coordinator(&mut self, message: ToCoordinator);
    /// `level`: 1 error, 2 warning, 3 notice, 4 debug.
    fn log_message(&mut self, level: u32, text: &str);
}

/// What is to become of the connection to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    Continue,
    /// Close it and connect again later.
    Close,
}
