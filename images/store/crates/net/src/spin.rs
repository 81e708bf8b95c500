//! When to spin, when to give the core away, when to sleep.

use std::time::Duration;

use wire::time::Time;

/// Two looks at the clock with nothing between them that are this far apart mean that somebody else had the core.
const PREEMPTED: Duration = Duration::from_micros(50);
/// How long a thread that was preempted while it spun yields on every round.
const CONTENDED: Duration = Duration::from_millis(20);

/// What to do after a round in which nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Spin,
    /// Spin, but let another thread have the core first.
    Yield,
    Block,
}

/// The polling policy of one thread.
#[derive(Debug)]
pub(crate) struct Spin {
    budget: Duration,
    /// More pollers than cores are known to be there.
    crowded: bool,
    last_work: Time,
    /// When the round before this one ended idle; `None` after work or sleep.
    last_idle: Option<Time>,
    contended_until: Time,
    pub(crate) spun: Duration,
}

impl Spin {
    pub(crate) fn new(budget: Duration, crowded: bool) -> Spin {
        Spin {
            budget,
            crowded,
            last_work: Time::ZERO,
            last_idle: None,
            contended_until: Time::ZERO,
            spun: Duration::ZERO,
        }
    }

    /// Frames were handled, or something was sent that will be answered.
    pub(crate) fn worked(&mut self, now: Time) {
        self.last_work = now;
        self.last_idle = None;
    }

    pub(crate) fn idle(&mut self, now: Time) -> Idle {
        if let Some(before) = self.last_idle {
            let gap = now.since(before);
            self.spun += gap;
            if gap > PREEMPTED {
                self.contended_until = now + CONTENDED;
            }
        }
        if now.since(self.last_work) >= self.budget {
            self.last_idle = None;
            return Idle::Block;
        }
        self.last_idle = Some(now);
        if self.crowded || now < self.contended_until {
            Idle::Yield
        } else {
            Idle::Spin
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    #[test]
    fn spins_for_the_budget_after_work_and_then_blocks() {
        let mut spin = Spin::new(Duration::from_micros(100), false);
        spin.worked(at(1000));
        assert_eq!(spin.idle(at(1001)), Idle::Spin);
        assert_eq!(spin.idle(at(1040)), Idle::Spin);
        assert_eq!(spin.idle(at(1080)), Idle::Spin);
        assert_eq!(spin.idle(at(1100)), Idle::Block);
        assert_eq!(spin.spun, Duration::from_micros(99));
        assert_eq!(spin.idle(at(5000)), Idle::Block, "sleep is no spinning");
        assert_eq!(spin.spun, Duration::from_micros(99));
    }

    #[test]
    fn a_budget_of_zero_never_spins() {
        let mut spin = Spin::new(Duration::ZERO, false);
        spin.worked(at(1000));
        assert_eq!(spin.idle(at(1000)), Idle::Block);
    }

    #[test]
    fn yields_after_it_was_preempted_and_where_pollers_outnumber_cores() {
        let mut spin = Spin::new(Duration::from_secs(1), false);
        spin.worked(at(0));
        assert_eq!(spin.idle(at(1)), Idle::Spin);
        assert_eq!(
            spin.idle(at(100)),
            Idle::Yield,
            "a gap of 99 us without work"
        );
        assert_eq!(spin.idle(at(101)), Idle::Yield);
        spin.worked(at(30_000));
        assert_eq!(spin.idle(at(30_001)), Idle::Spin, "forgotten after a while");

        let mut crowded = Spin::new(Duration::from_secs(1), true);
        crowded.worked(at(0));
        assert_eq!(crowded.idle(at(1)), Idle::Yield);
    }
}
