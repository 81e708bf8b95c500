//! For how long a backup is waited for whose connection broke.

use core::time::Duration;

use base::time::Time;

/// Open replicas wait so long for their backup's next connection. Well below [`wire::peer::SERVING_LEASE`], and the limit for a slow backup.
pub(crate) const GRACE: Duration = Duration::from_millis(50);
/// A connection that breaks again within this is not waited for: it may do so for ever.
const BETWEEN: Duration = Duration::from_secs(1);

/// When the connection to a backup broke, if that is forgiven.
#[derive(Debug, Default)]
pub(crate) struct Interruptions {
    /// Open replicas are kept until then.
    until: Option<Time>,
    /// No other is forgiven before this.
    next_at: Time,
}

impl Interruptions {
    /// The connection broke. False if nothing is to be kept.
    pub fn begin(&mut self, now: Time) -> bool {
        let is_forgiven = now >= self.next_at && self.until.is_none();
        self.until = is_forgiven.then_some(now + GRACE);
        self.next_at = now + BETWEEN;
        is_forgiven
    }

    /// The backup has said what it holds, or is given up. True if it was waited for.
    pub fn end(&mut self) -> bool {
        self.until.take().is_some()
    }

    pub fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub fn is_waited_for(&self) -> bool {
        self.until.is_some()
    }

    pub fn deadline(&self) -> Time {
        self.until.unwrap_or(Time::NEVER)
    }
}
