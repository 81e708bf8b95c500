//! When to spin and when to sleep.

use std::time::Duration;

use base::time::Time;

/// An idle round that takes this long means that somebody else had the core in between.
const PREEMPTED: Duration = Duration::from_micros(50);
/// How long a thread whose core was wanted sleeps at once instead of spinning: who sleeps is woken first.
const CONTENDED: Duration = Duration::from_millis(20);

/// What to do after a round in which nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Offer the core to others, and look again.
    Spin,
    Block,
}

/// The polling policy of one thread.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    last_work: Time,
    /// When the round before this one ended idle; `None` after work or sleep.
    last_idle: Option<Time>,
    contended_until: Time,
    pub(crate) spun: Duration,
}

impl Spin {
    /// Frames were handled, or something was sent that will be answered.
    pub(crate) fn worked(&mut self, now: Time) {
        self.last_work = now;
        self.last_idle = None;
    }

    /// `budget`: how long to spin after the last work.
    pub(crate) fn idle(&mut self, now: Time, budget: Duration) -> Idle {
        if let Some(before) = self.last_idle {
            let gap = now.since(before);
            if gap > PREEMPTED {
                self.contended_until = now + CONTENDED;
            } else {
                self.spun += gap;
            }
        }
        if now.since(self.last_work) >= budget || now < self.contended_until {
            self.last_idle = None;
            return Idle::Block;
        }
        self.last_idle = Some(now);
        Idle::Spin
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
        let mut spin = Spin::default();
        let budget = Duration::from_micros(100);
        spin.worked(at(1000));
        assert_eq!(spin.idle(at(1001), budget), Idle::Spin);
        assert_eq!(spin.idle(at(1040), budget), Idle::Spin);
        assert_eq!(spin.idle(at(1080), budget), Idle::Spin);
        assert_eq!(spin.idle(at(1100), budget), Idle::Block);
        assert_eq!(spin.spun, Duration::from_micros(99));
        assert_eq!(
            spin.idle(at(5000), budget),
            Idle::Block,
            "sleep is no spinning"
        );
        assert_eq!(spin.spun, Duration::from_micros(99));
    }

    #[test]
    fn a_budget_of_zero_never_spins() {
        let mut spin = Spin::default();
        let budget = Duration::ZERO;
        spin.worked(at(1000));
        assert_eq!(spin.idle(at(1000), budget), Idle::Block);
    }

    #[test]
    fn sleeps_for_a_while_where_others_want_the_core() {
        let mut spin = Spin::default();
        let budget = Duration::from_secs(1);
        spin.worked(at(0));
        assert_eq!(spin.idle(at(1), budget), Idle::Spin);
        assert_eq!(
            spin.idle(at(100), budget),
            Idle::Block,
            "99 us in an idle round: others had the core"
        );
        spin.worked(at(10_000));
        assert_eq!(spin.idle(at(10_001), budget), Idle::Block);
        spin.worked(at(30_000));
        assert_eq!(
            spin.idle(at(30_001), budget),
            Idle::Spin,
            "forgotten after a while"
        );
        assert_eq!(
            spin.spun,
            Duration::ZERO,
            "what others did with the core is not counted"
        );
    }
}
