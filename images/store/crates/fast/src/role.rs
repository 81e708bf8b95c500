//! The two sides of a session.

/// Which side opened a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Initiator,
    /// The other side, of which this is known.
    Acceptor {
        incarnation: u64,
    },
}
