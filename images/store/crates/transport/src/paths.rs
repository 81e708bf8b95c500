//! Which way to take to a server that can be reached in several.

use core::time::Duration;
use std::collections::VecDeque;

use base::ids::TableId;
use base::map::Map;
use base::time::Time;
use wire::hash::key_hash;
use wire::locator::{self, Locator};

/// How long a way is left alone that failed once; twice as long with each failure in a row, up to [`AVOID_MAX`].
const AVOID_MIN: Duration = Duration::from_secs(1);
const AVOID_MAX: Duration = Duration::from_secs(16);
/// Ways that are remembered for having failed.
const MAX_REMEMBERED: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    avoid_until: Time,
}

/// What is known of ways.
#[derive(Debug)]
pub struct Paths {
    /// What the driver speaks, the best first.
    protocols: Vec<&'static str>,
    /// Each who looks has another one: of ports that are alike some prefer one and some the other, so that the load is on all.
    taste: u64,
    failed: Map<String, Failed>,
}

impl Paths {
    pub fn new(protocols: Vec<&'static str>, taste: u64) -> Paths {
        Paths {
            protocols,
            taste,
            failed: Map::default(),
        }
    }

    /// The locators of a list that the driver can use, the best first; those that failed a short while ago come last. `None`: it is no list of locators.
    pub fn alternatives(&self, now: Time, list: &str) -> Option<VecDeque<String>> {
        let list = locator::parse_list(list).ok()?;
        let mut usable: Vec<_> = list
            .iter()
            .filter_map(|locator| {
                let text = locator.to_string();
                let is_avoided = self.avoided_until(&text) > now;
                Some((is_avoided, self.rank(locator)?, text))
            })
            .collect();
        // Stable: what is alike stays in the order of the list.
        usable.sort_by_key(|(is_avoided, rank, _)| (*is_avoided, *rank));
        Some(usable.into_iter().map(|(.., text)| text).collect())
    }

    /// The protocol counts first, and then, if it is one of datagrams, taste.
    fn rank(&self, locator: &Locator) -> Option<(usize, u64)> {
        locator.host_and_port().ok()?;
        let protocols = &self.protocols;
        let position = protocols
            .iter()
            .position(|protocol| *protocol == locator.protocol())?;
        let taste = match locator.protocol() {
            "tcp" => 0,
            _ => key_hash(TableId(self.taste), locator.original().as_bytes()),
        };
        Some((position, taste))
    }

    /// The best locator of a list, if it is better than `present`, and from when on it may be tried.
    pub fn better(&self, list: &str, present: &str) -> Option<(String, Time)> {
        let present = self.rank(&Locator::parse(present).ok()?)?;
        let list = locator::parse_list(list).ok()?;
        let ranked = list
            .iter()
            .filter_map(|one| Some((self.rank(one)?, self.avoided_until(one.original()), one)));
        let best = ranked
            .filter(|(rank, ..)| *rank < present)
            .min_by_key(|(rank, until, _)| (*until, *rank));
        best.map(|(_, until, one)| (one.to_string(), until))
    }

    fn avoided_until(&self, locator: &str) -> Time {
        let failed = self.failed.get(locator);
        failed.map_or(Time::ZERO, |failed| failed.avoid_until)
    }

    pub fn failed(&mut self, now: Time, locator: &str) {
        if self.failed.len() >= MAX_REMEMBERED {
            self.failed.clear();
        }
        let failed = self.failed.entry(locator.to_owned()).or_insert(Failed {
            times: 0,
            avoid_until: now,
        });
        let avoid = (AVOID_MIN * (1 << failed.times.min(8))).min(AVOID_MAX);
        failed.times += 1;
        failed.avoid_until = now + avoid;
    }

    pub fn works(&mut self, locator: &str) {
        self.failed.remove(locator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "tcp:host=1.2.3.4,port=1;fast+udp:host=1.2.3.4,port=2;infrc:host=a,port=3;fast+dpdk:host=1.2.4.4,port=2";
    const TCP: &str = "tcp:host=1.2.3.4,port=1";
    const UDP: &str = "fast+udp:host=1.2.3.4,port=2";
    const DPDK: &str = "fast+dpdk:host=1.2.4.4,port=2";

    fn all() -> Paths {
        Paths::new(vec!["fast+dpdk", "fast+udp", "tcp"], 7)
    }

    #[test]
    fn the_best_that_the_driver_speaks_comes_first() {
        let alternatives = |paths: &Paths| paths.alternatives(Time(5), LIST);
        assert_eq!(alternatives(&all()).unwrap(), [DPDK, UDP, TCP]);
        assert_eq!(alternatives(&Paths::new(vec!["tcp"], 7)).unwrap(), [TCP]);
        assert_eq!(all().alternatives(Time(5), "x"), None);
    }

    #[test]
    fn what_failed_is_tried_last_and_again_after_a_while() {
        let mut paths = all();
        let now = Time(5);
        paths.failed(now, DPDK);
        assert_eq!(paths.alternatives(now, LIST).unwrap(), [UDP, TCP, DPDK]);
        assert_eq!(paths.better(LIST, TCP), Some((UDP.to_owned(), Time::ZERO)));
        assert_eq!(
            paths.better(LIST, UDP),
            Some((DPDK.to_owned(), now + AVOID_MIN))
        );
        paths.failed(now, DPDK);
        assert_eq!(
            paths.better(LIST, UDP),
            Some((DPDK.to_owned(), now + 2 * AVOID_MIN))
        );
        for _ in 0..20 {
            paths.failed(now, DPDK);
        }
        assert_eq!(
            paths.better(LIST, UDP),
            Some((DPDK.to_owned(), now + AVOID_MAX))
        );
        paths.works(DPDK);
        assert_eq!(paths.better(LIST, UDP), Some((DPDK.to_owned(), Time::ZERO)));
        assert_eq!(paths.better(LIST, DPDK), None);
    }

    #[test]
    fn ports_that_are_alike_share_the_load() {
        const PORTS: [&str; 2] = [
            "fast+dpdk:host=10.0.0.1,port=2",
            "fast+dpdk:host=10.0.1.1,port=2",
        ];
        let list = [TCP, PORTS[0], PORTS[1]].join(";");
        let now = Time(5);
        let mut first = [0; 2];
        for taste in 0..1000 {
            let mut paths = Paths::new(vec!["fast+dpdk", "tcp"], taste);
            let order = paths.alternatives(now, &list).unwrap();
            assert_eq!(order[2], TCP);
            let preferred = usize::from(order[0] == PORTS[1]);
            first[preferred] += 1;
            let (preferred, other) = (PORTS[preferred], PORTS[1 - preferred]);
            // When the one is lost, the other has it all, until the one can be tried again.
            paths.failed(now, preferred);
            assert_eq!(
                paths.alternatives(now, &list).unwrap(),
                [other, TCP, preferred]
            );
            assert_eq!(
                paths.better(&list, other),
                Some((preferred.to_owned(), now + AVOID_MIN))
            );
            assert_eq!(paths.better(&list, preferred), None);
        }
        assert!(first.iter().all(|count| *count > 400), "{first:?}");
    }
}
