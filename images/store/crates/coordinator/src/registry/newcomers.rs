//! Processes that would take the place of others, and were asked whether they are alive: their Hello may have been long on its way.

use core::time::Duration;
use std::collections::BTreeMap;

use base::time::Time;
use wire::member::Hello;

/// By connection; since when each was asked, and what it said.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(BTreeMap<u64, (Time, Hello)>);

impl Newcomers {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn asked(&mut self, now: Time, connection: u64, hello: Hello) {
        self.0.insert(connection, (now, hello));
    }

    /// It has answered, or is gone.
    pub fn take(&mut self, connection: u64) -> Option<Hello> {
        self.0.remove(&connection).map(|(_, hello)| hello)
    }

    /// Connections of those that have not answered for so long. They are not waited for any more.
    pub fn take_late(&mut self, now: Time, timeout: Duration) -> Vec<u64> {
        let is_late = |(asked, _): &(Time, Hello)| now.since(*asked) >= timeout;
        let late = self.0.iter().filter(|(_, one)| is_late(one));
        let late: Vec<u64> = late.map(|(connection, _)| *connection).collect();
        for connection in &late {
            self.0.remove(connection);
        }
        late
    }

    /// Connections of all.
    pub fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        core::mem::take(&mut self.0).into_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_waited_for_as_long_as_the_others() {
        let (timeout, mut newcomers) = (Duration::from_secs(3), Newcomers::default());
        for (at, connection) in [(1, 7), (2, 8), (2, 9)] {
            let asked = Time::ZERO + Duration::from_secs(at);
            newcomers.asked(asked, connection, Hello::default());
        }
        assert!(newcomers.take(8).is_some() && newcomers.take(8).is_none());
        let now = Time::ZERO + Duration::from_secs(4);
        assert_eq!(newcomers.take_late(now, timeout), [7]);
        assert_eq!(newcomers.take_late(now, timeout), []);
        assert_eq!(newcomers.take_all().collect::<Vec<u64>>(), [9]);
        assert_eq!(newcomers.count(), 0);
    }
}
