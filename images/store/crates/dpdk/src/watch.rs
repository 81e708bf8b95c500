//! When a NIC's port is to be opened anew: it says that it has a link, and nothing that is given to it leaves.
//!
//! So is a virtual function whose physical function was down, or reset: it has to say hello again, and only some drivers say so. A port that
//! is fine and silent looks the same until it sends: so it is made to announce itself now and then. Pure: time and counters come from outside.

use std::time::Duration;

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// After so long without a frame to send, one is made.
const QUIET: Duration = Duration::from_secs(5);
/// Frames that have not left after so long never will.
const STUCK: Duration = Duration::from_secs(3);
/// After an attempt: at first, and at last.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What is seen of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub link_up: bool,
    /// Its driver has said that it must be opened anew.
    pub asked: bool,
    /// Frames that it has taken from us, by our count.
    pub taken: u64,
    /// Frames that have left it and come to it, by its own count.
    pub left: u64,
    pub received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Nothing,
    /// A frame is wanted that shows whether any leaves.
    Announce,
    OpenAnew(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Asked,
    Stuck,
}

impl Why {
    pub fn text(self) -> &'static str {
        match self {
            Why::Asked => "its driver asks for it: the physical function was reset",
            Why::Stuck => "it shows a link, and nothing leaves it",
        }
    }
}

/// What was seen of one port until now.
#[derive(Default)]
pub(crate) struct Watch {
    last: Option<Seen>,
    asked: bool,
    /// Its own count of what leaves has changed once: drivers that do not count are not to be judged by it.
    counts: bool,
    has_received: bool,
    last_taken_at: Duration,
    /// Since when frames were given to it of which none has left.
    stuck_since: Option<Duration>,
    /// Attempts since something left it.
    attempts: u32,
    not_before: Duration,
}

impl Watch {
    /// Whether it is known to send nothing.
    pub fn is_dead(&self) -> bool {
        self.attempts > 0
    }

    pub fn look(&mut self, now: Duration, seen: Seen) -> Advice {
        self.asked |= seen.asked;
        let Some(last) = self.last.replace(seen) else {
            // Where the port was opened anew, counts begin anew: they are compared from the next look on.
            self.last_taken_at = now;
            return self.advice(now, seen);
        };
        let left = seen.left != last.left;
        let received = seen.received != last.received;
        self.counts |= left;
        self.has_received |= received;
        if left || received || !seen.link_up {
            self.stuck_since = None;
        }
        if left || received {
            self.attempts = 0;
        }
        if seen.taken != last.taken {
            self.last_taken_at = now;
            if seen.link_up && !left && !received {
                self.stuck_since.get_or_insert(now);
            }
        }
        self.advice(now, seen)
    }

    fn advice(&mut self, now: Duration, seen: Seen) -> Advice {
        let may = now >= self.not_before;
        if self.asked && may {
            return Advice::OpenAnew(Why::Asked);
        }
        let can_be_judged = self.counts || !self.has_received;
        let stuck = self.stuck_since.is_some_and(|since| now >= since + STUCK);
        if stuck && can_be_judged && may {
            return Advice::OpenAnew(Why::Stuck);
        }
        if seen.link_up && self.stuck_since.is_none() && now >= self.last_taken_at + QUIET {
            // Asked for again only if it has not come.
            self.last_taken_at = now;
            return Advice::Announce;
        }
        Advice::Nothing
    }

    /// There was an attempt to open it anew, with success or without.
    pub fn attempted(&mut self, now: Duration, succeeded: bool) {
        self.last = None;
        // What could not be opened is asked for again.
        self.asked = !succeeded;
        self.stuck_since = None;
        self.attempts += 1;
        let pause = PAUSE * 2u32.pow(self.attempts.min(8) - 1);
        self.not_before = now + pause.min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
