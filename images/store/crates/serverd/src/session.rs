//! A shard's connection to its coordinator: when to connect, when to give up, when to try again.

use std::time::Duration;

use base::time::Time;
use net::Address;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// How long the coordinator may take to answer a Hello. From its Welcome on, the shard itself watches for silence.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to be done about the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    Connect(Address),
    /// Nothing was heard for too long.
    GiveUp(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        until: Time,
    },
    /// The driver ends a connect that takes too long.
    Connecting {
        connection: u64,
    },
    Open {
        connection: u64,
        opened: Time,
        welcomed: bool,
    },
}

#[derive(Debug)]
pub struct Session {
    /// Where coordinators listen for members, tried in turn.
    coordinators: Vec<Address>,
    next: usize,
    state: State,
    delay: Duration,
    random: u64,
}

impl Session {
    /// `random` spreads the moments at which shards connect again.
    pub fn new(coordinators: Vec<Address>, random: u64) -> Session {
        Session {
            coordinators,
            next: 0,
            state: State::Waiting { until: Time::ZERO },
            delay: FIRST_DELAY,
            random: random | 1,
        }
    }

    /// The connection, once it is open.
    pub fn open_connection(&self) -> Option<u64> {
        match self.state {
            State::Open { connection, .. } => Some(connection),
            _ => None,
        }
    }

    /// The connection, open or not yet.
    pub fn connection(&self) -> Option<u64> {
        match self.state {
            State::Waiting { .. } => None,
            State::Connecting { connection } | State::Open { connection, .. } => Some(connection),
        }
    }

    pub fn is(&self, connection: u64) -> bool {
        self.connection() == Some(connection)
    }

    /// What to do now.
    pub fn due(&self, now: Time) -> Due {
        match self.state {
            State::Waiting { until } if now >= until => match self.coordinators.get(self.next) {
                Some(address) => Due::Connect(address.clone()),
                None => Due::Nothing,
            },
            State::Open { connection, .. } if now >= self.next_deadline() => {
                Due::GiveUp(connection)
            }
            _ => Due::Nothing,
        }
    }

    /// When to ask [`Session::due`] again.
    pub fn next_deadline(&self) -> Time {
        match self.state {
            State::Waiting { until } => until,
            State::Open {
                opened,
                welcomed: false,
                ..
            } => opened + HANDSHAKE_TIMEOUT,
            _ => Time::NEVER,
        }
    }

    pub fn connecting(&mut self, connection: u64) {
        self.state = State::Connecting { connection };
    }

    pub fn opened(&mut self, now: Time, connection: u64) {
        self.state = State::Open {
            connection,
            opened: now,
            welcomed: false,
        };
    }

    /// The coordinator let the shard in.
    pub fn welcomed(&mut self) {
        if let State::Open { welcomed, .. } = &mut self.state {
            *welcomed = true;
        }
        self.delay = FIRST_DELAY;
    }

    /// The coordinator is there, and has reasons to let the shard in later.
    pub fn heard(&mut self, now: Time) {
        if let State::Open { opened, .. } = &mut self.state {
            *opened = now;
        }
    }

    /// The coordinator will never let this process in again.
    pub fn end(&mut self) {
        self.state = State::Waiting { until: Time::NEVER };
    }

    /// The connection broke, and the session with this coordinator may go on: it is tried once more at once.
    pub fn interrupted(&mut self, now: Time) {
        self.state = State::Waiting { until: now };
    }

    /// The connection is gone, or could not be made: the next coordinator of the list is tried, after a while.
    pub fn lost(&mut self, now: Time) {
        self.next = (self.next + 1) % self.coordinators.len().max(1);
        // Between half of the delay and all of it.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = self.delay / 2;
        let jitter = half.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64);
        self.state = State::Waiting {
            until: now + half + jitter,
        };
        self.delay = (2 * self.delay).min(LONGEST_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn coordinators_are_tried_in_turn_with_growing_delays() {
        let (one, two) = (Address::new("one", 1), Address::new("two", 2));
        let mut session = Session::new(vec![one.clone(), two.clone()], 7);
        let mut now = seconds(1);
        let mut waits = Vec::new();
        for attempt in 0..10 {
            let expected = if attempt % 2 == 0 { &one } else { &two };
            assert_eq!(session.due(now), Due::Connect(expected.clone()));
            session.connecting(attempt);
            assert_eq!(
                session.due(now + Duration::from_secs(60)),
                Due::Nothing,
                "the driver ends slow connects"
            );
            session.lost(now);
            assert_eq!(session.due(now), Due::Nothing);
            waits.push(session.next_deadline().since(now));
            now = session.next_deadline();
        }
        assert!(
            waits[0] <= FIRST_DELAY && waits[9] <= LONGEST_DELAY && waits[9] >= LONGEST_DELAY / 2,
            "{waits:?}"
        );
    }

    #[test]
    fn a_coordinator_that_does_not_answer_is_given_up_and_a_welcome_forgets_former_failures() {
        let mut session = Session::new(vec![Address::new("one", 1)], 7);
        for _ in 0..8 {
            session.lost(seconds(1));
        }
        session.connecting(5);
        assert_eq!((session.open_connection(), session.is(5)), (None, true));
        session.opened(seconds(2), 5);
        assert_eq!(session.open_connection(), Some(5));
        assert_eq!(session.due(seconds(6)), Due::Nothing);
        assert_eq!(session.due(seconds(7)), Due::GiveUp(5));
        session.welcomed();
        assert_eq!(
            (session.due(seconds(7)), session.next_deadline()),
            (Due::Nothing, Time::NEVER)
        );
        session.lost(seconds(8));
        assert!(session.next_deadline() <= seconds(8) + FIRST_DELAY);
        assert_eq!(session.open_connection(), None);
        session.end();
        assert_eq!(session.due(seconds(1000)), Due::Nothing);
    }
}
