//! What a process knows of the lock that leaders hold.

use base::time::Time;

/// What a process knows of the lock, and how it behaves.
#[derive(Default)]
pub struct Election {
    /// The lock's version that it has seen, and since when.
    pub(super) observed: Option<(u64, Time)>,
    pub(super) renewed: Time,
    /// It does not reach the API server until then.
    pub cut_until: u64,
    /// It leads on although it cannot renew the lock.
    pub goes_on: bool,
    /// It must not lead, and holds the lock until people have done something.
    pub is_refused: bool,
    /// It dies when it has said so much more.
    pub dies_after: Option<u64>,
}

impl Election {
    pub fn cut_until(&self) -> u64 {
        self.cut_until
    }
}
