//! The network for datagrams: it loses, repeats, changes and delays them, and sometimes it is dead while byte streams get through.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use fast::Config;

use crate::net::network::Host;
use crate::random::{Random, Streams};
use crate::scenario::fast::{FastScenario, Weather};
use crate::scenario::{MILLI, SECOND, Scenario};

/// Seeds of the usual kind that have datagrams, of a thousand.
const SEEDS_PER_MILLE: u64 = 150;
/// The longest value there: with the least segments that there are then, one of them holds several.
const MAX_VALUE_BYTES: u64 = 5400;

/// Once faults have ended, at most so many of a thousand datagrams are lost, changed or late.
const MOST_IN_FAIR_WEATHER: u64 = 10;

/// The network in a run.
pub struct Datagrams {
    /// Of what happens to each datagram.
    fates: Random,
    secrets: Random,
    weather: Weather,
    /// Ways (protocol, from, to) on which nothing gets through, and until when.
    dead: BTreeMap<(usize, Host, Host), u64>,
}

/// Where a port of this protocol is, of [`crate::cluster::ports::PROTOCOLS`].
pub fn address(kind: usize, host: Host, udp_port: u16) -> SocketAddrV4 {
    let [.., high, low] = host.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, kind as u8, high, low), udp_port)
}

/// Protocol and host.
pub fn place(address: SocketAddrV4) -> (usize, Host) {
    let [_, kind, high, low] = address.ip().octets();
    (kind.into(), u32::from_be_bytes([0, 0, high, low]))
}

/// Whether there are to be datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Always,
    /// In some seeds.
    Perhaps,
    Never,
}

/// Whether a seed has datagrams, and how they fare. Values may be longer then, so that they are lent.
pub fn draw(streams: &mut Streams, wish: Wish, scenario: &mut Scenario) -> Option<Datagrams> {
    let random = streams.of("ports");
    let is_drawn = random.chance(SEEDS_PER_MILLE);
    if !(wish == Wish::Always || wish == Wish::Perhaps && is_drawn) {
        return None;
    }
    let longest = u64::from(scenario.segment_bytes / 3).min(MAX_VALUE_BYTES);
    if random.chance(600) && !scenario.is_overwriting {
        scenario.max_value_bytes = scenario.max_value_bytes.max(longest);
    }
    // A small log with little but long values: what is lent is in the way of the cleaner.
    let is_tight = random.chance(400) && scenario.replicated.is_none();
    if is_tight {
        scenario.segments = 8;
        scenario.keys = 8;
        scenario.concurrency = 6;
        scenario.max_value_bytes = longest;
        scenario.operations_per_client = scenario.operations_per_client.max(200);
    }
    let max_delay = scenario.network.max_delay;
    let mut fast = FastScenario {
        kinds: random.between(1, 2) as usize,
        config: Config {
            datagram_bytes: match is_tight {
                true => 548,
                false => *random.pick(&[548, 1472]),
            },
            sessions: *random.pick(&[2, 100, 100, 100]),
            slots: *random.pick(&[2, 8, 64, 64]),
            window_bytes: *random.pick(&[2 << 10, 16 << 10, 256 << 10]),
            buffer_bytes: *random.pick(&[1 << 20, 512 << 20]),
            ..Config::default()
        },
        lend_bytes: match is_tight {
            true => 520,
            false => *random.pick(&[520, 1000, 2000]),
        },
        weather: Weather {
            lost: *random.pick(&[0, 10, 50, 200]),
            repeated: *random.pick(&[0, 10, 100]),
            changed: *random.pick(&[0, 10, 50]),
            late: *random.pick(&[0, 10, 100]),
            min_delay: scenario.network.min_delay,
            max_delay,
        },
        fault_interval: match scenario.fault_interval {
            0 => 0,
            _ => *random.pick(&[0, 100 * MILLI, SECOND, 3 * SECOND]),
        },
        faults: random.between(1, 40),
    };
    // Full as soon as a few requests of several packets arrive; there is room for few slots, too.
    if random.chance(250) {
        (fast.config.slots, fast.config.buffer_bytes) = (2, 64 << 10);
    }
    scenario.fast = Some(fast);
    Some(Datagrams {
        fates: streams.of("datagrams").fork(),
        secrets: streams.of("secrets").fork(),
        weather: fast.weather,
        dead: BTreeMap::new(),
    })
}

impl Datagrams {
    /// What nobody guesses in a real process.
    pub fn secret(&mut self) -> [u8; 32] {
        let mut secret = [0; 32];
        for word in secret.as_chunks_mut::<8>().0 {
            *word = self.secrets.next().to_le_bytes();
        }
        secret
    }

    /// When which copies of a datagram arrive, and whether one of them was changed on the way.
    pub fn fates(&mut self, datagram: Vec<u8>) -> Vec<(u64, Vec<u8>, bool)> {
        let weather = self.weather;
        let copies = match () {
            () if self.fates.chance(weather.lost) => 0,
            () if self.fates.chance(weather.repeated) => 2,
            () => 1,
        };
        let mut fates = Vec::new();
        for _ in 0..copies {
            let mut delay = self.fates.between(weather.min_delay, weather.max_delay);
            if self.fates.chance(weather.late) {
                delay = self.fates.between(delay, 10 * weather.max_delay);
            }
            let mut copy = datagram.clone();
            let is_changed = self.fates.chance(weather.changed);
            if is_changed {
                self.change(&mut copy);
            }
            fates.push((delay, copy, is_changed));
        }
        fates
    }

    /// Bits that are wrong, or an end that is missing.
    fn change(&mut self, datagram: &mut Vec<u8>) {
        if self.fates.chance(200) {
            let length = self.fates.below(datagram.len());
            return datagram.truncate(length);
        }
        for _ in 0..self.fates.between(1, 3) {
            let at = self.fates.below(datagram.len());
            datagram[at] ^= 1 << self.fates.below(8);
        }
    }

    /// Nothing gets through on a way until then.
    pub fn kill(&mut self, kind: usize, from: Host, to: Host, until: u64) {
        self.dead.insert((kind, from, to), until);
    }

    /// Datagrams get through everywhere, and few are lost. Where a fifth is lost, leases of 200 ms do not hold.
    pub fn end_bad_weather(&mut self) {
        self.dead.clear();
        for share in [
            &mut self.weather.lost,
            &mut self.weather.changed,
            &mut self.weather.late,
        ] {
            *share = (*share).min(MOST_IN_FAIR_WEATHER);
        }
    }

    pub fn is_dead(&self, now: u64, kind: usize, from: Host, to: Host) -> bool {
        let until = self.dead.get(&(kind, from, to));
        until.is_some_and(|until| *until > now)
    }
}
