//! A background job: events are forgotten when they are old.

use core::time::Duration;

use base::time::Time;

use super::Events;

/// Of cluster time.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Forgotten in one look.
const AT_ONCE: usize = 32;
/// Between two looks at events that are due.
const PAUSE: Duration = Duration::from_secs(1);

impl Events {
    /// Forgets the oldest, if they are due; when to look again.
    pub fn look(&mut self, cluster_time_ns: u64, now: Time) -> Time {
        for _ in 0..AT_ONCE {
            match self.oldest_lasts(cluster_time_ns) {
                None => return Time::NEVER,
                Some(Duration::ZERO) => self.drop_oldest(),
                Some(left) => return now + left.max(PAUSE),
            }
        }
        now + PAUSE
    }

    /// How long the oldest is kept from now on.
    fn oldest_lasts(&self, cluster_time_ns: u64) -> Option<Duration> {
        let oldest = self.iter().next()?;
        let age_ns = cluster_time_ns.saturating_sub(oldest.cluster_time_ns);
        Some(KEPT_FOR.saturating_sub(Duration::from_nanos(age_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;
    use crate::status::EventKind;

    #[test]
    fn old_events_are_forgotten_some_at_a_time() {
        let (mut events, now) = (Events::default(), Time::ZERO + PAUSE);
        assert_eq!(events.look(0, now), Time::NEVER);
        for number in 0..100 {
            events.happened(number, EventKind::MemberRemoved, String::new());
        }
        let week_ns = 7 * 24 * 3600 * 1_000_000_000;
        assert_eq!(events.look(0, now), now + KEPT_FOR);
        assert_eq!(events.look(week_ns - 1, now), now + PAUSE, "not too often");
        assert_eq!(events.iter().count(), 100);
        drop(events.take_changed());

        assert_eq!(events.look(week_ns + 49, now), now + PAUSE);
        assert_eq!(
            (events.iter().count(), events.take_changed().len()),
            (68, 32)
        );
        assert_eq!(events.look(week_ns + 49, now), now + PAUSE);
        assert_eq!(
            (events.iter().count(), events.take_changed().len()),
            (50, 18)
        );
        assert_eq!(events.look(week_ns + 49, now), now + PAUSE);
        assert!(events.take_changed().is_empty());
        let next = events.look(week_ns - 5_000_000_000, now);
        assert_eq!(next, now + Duration::from_nanos(5_000_000_050));
    }
}
