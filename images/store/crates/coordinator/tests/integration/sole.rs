//! A coordinator whose state is in a file, on a disk that takes its time.

use core::time::Duration;

use base::bugs::{Bug, plant};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use coordinator::leader::TIME_AHEAD;
use coordinator::outbox::Limits;
use coordinator::sole::{Sole, SoleEffect};
use coordinator::state::file::{FileKeeper, Write, Written};
use coordinator::state::journal;
use coordinator::{Config, Coordinator};
use wire::member::{Hello, Ping, Pong, ToCoordinator, Welcome, coordinator::Kind, shard};
use wire::rpc;
use wire::status::Status;

use crate::common::{create_table, encode, hello, renew_lease};

struct Bench {
    sole: Sole<u32>,
    now: Time,
    under_way: Option<Write>,
    disk: Vec<u8>,
    left: Vec<SoleEffect<u32>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Limits::default())
    }

    fn with(limits: Limits) -> Bench {
        let now = Time(1_000_000_000);
        let mut coordinator = Coordinator::new(Config::new(1, 5, "test"), now);
        coordinator.begin_term(11, 0);
        let mut bench = Bench {
            sole: Sole::new(coordinator, Some(FileKeeper::new()), limits),
            now,
            under_way: None,
            disk: Vec::new(),
            left: Vec::new(),
        };
        bench.settle();
        bench
    }

    fn tick(&mut self) {
        self.sole.tick(self.now).unwrap();
        while let Some(effect) = self.sole.take_effect() {
            match effect {
                SoleEffect::State(write) => {
                    assert!(self.under_way.is_none(), "two writes at one time");
                    self.under_way = Some(write);
                }
                SoleEffect::Report(_) => {}
                effect => self.left.push(effect),
            }
        }
    }

    /// The disk has what was being written.
    fn complete(&mut self) {
        match self.under_way.take() {
            None => return,
            Some(Write::Append(bytes)) => self.disk.extend(bytes),
            Some(Write::Replace(bytes)) => self.disk = bytes,
        }
        self.sole.written(self.now, Written::Done).unwrap();
        self.tick();
    }

    /// The disk takes no time.
    fn settle(&mut self) {
        self.tick();
        while self.under_way.is_some() {
            self.complete();
        }
    }

    fn request(&mut self, nonce: u64, payload: &[u8]) -> Vec<SoleEffect<u32>> {
        let to = ReplyTo {
            connection: 1000,
            nonce,
        };
        self.sole.request(self.now, to, payload);
        self.tick();
        self.take()
    }

    fn says(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        self.sole.member_message(self.now, connection, message);
        self.tick();
    }

    fn take(&mut self) -> Vec<SoleEffect<u32>> {
        std::mem::take(&mut self.left)
    }

    /// As `time` goes by, a member answers pings, and the disk does nothing.
    fn passes(&mut self, time: Duration) -> Vec<SoleEffect<u32>> {
        let end = self.now + time;
        let mut left = Vec::new();
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.tick();
            for ping in pings_in(&self.left) {
                let sequence = ping.sequence;
                let pong = Pong {
                    sequence,
                    ..Pong::default()
                };
                self.says(1, shard::Kind::Pong(pong));
            }
            left.extend(self.take());
        }
        left
    }

    /// The coordinator that is started after this one has ended now.
    fn next(&self) -> Coordinator {
        let mut loaded = journal::load(&self.disk).unwrap();
        Coordinator::restore(Config::new(1, 5, "test"), loaded.take_pairs(), self.now).unwrap()
    }
}

fn pings_in(effects: &[SoleEffect<u32>]) -> Vec<Ping> {
    let pings = effects.iter().filter_map(|effect| match effect {
        SoleEffect::SendMember(_, message) => match &message.kind {
            Some(Kind::Ping(ping)) => Some(ping.clone()),
            _ => None,
        },
        _ => None,
    });
    pings.collect()
}

fn welcome_in(effects: &[SoleEffect<u32>]) -> Option<Welcome> {
    effects.iter().find_map(|effect| match effect {
        SoleEffect::SendMember(1, message) => match &message.kind {
            Some(Kind::Welcome(welcome)) => Some(welcome.clone()),
            _ => None,
        },
        _ => None,
    })
}

fn statuses(effects: &[SoleEffect<u32>]) -> Vec<Status> {
    let replies = effects.iter().filter_map(|effect| match effect {
        SoleEffect::Reply(_, payload) => Some(rpc::status(payload).unwrap()),
        _ => None,
    });
    replies.collect()
}

fn get_table_id() -> Vec<u8> {
    encode(|out| rpc::GetTableIdRequest { name: b"a" }.encode(out))
}

fn ping_of(caller: ServerId) -> Vec<u8> {
    encode(|out| rpc::PingRequest { caller }.encode(out))
}

fn ping() -> Vec<u8> {
    ping_of(ServerId::INVALID)
}

#[test]
fn pings_of_both_kinds_are_prompt_while_the_disk_hangs_and_all_else_waits() {
    let mut bench = Bench::new();
    bench.says(1, shard::Kind::Hello(hello("m", 1, 0, 1)));
    bench.settle();
    assert!(welcome_in(&bench.take()).is_some());

    assert!(bench.request(1, &renew_lease(0)).is_empty());
    assert_eq!(statuses(&bench.request(2, &ping())), [Status::Ok]);
    bench.sole.defer(5);
    let left = bench.passes(Duration::from_secs(20));
    let pings = pings_in(&left);
    assert_eq!(pings.len(), left.len(), "{left:?}");
    assert!(pings.len() >= 90, "{} pings in 20 s", pings.len());
    assert!(bench.request(3, &get_table_id()).is_empty());
    // Whether a server is in the store may not be noted yet.
    assert!(bench.request(4, &ping_of(ServerId::new(9, 0))).is_empty());
    assert_eq!(statuses(&bench.request(5, &ping())), [Status::Ok]);

    let wait = bench.sole.status(bench.now).state_wait.expect("it waits");
    assert!(wait.waited_ms >= 19_000 && wait.held >= 3, "{wait:?}");
    assert!(wait.why.contains("disk"), "{}", wait.why);
    bench.settle();
    assert_eq!(
        statuses(&bench.take()),
        [
            Status::Ok,
            Status::TableDoesntExist,
            Status::CallerNotInCluster
        ]
    );
    assert_eq!(bench.sole.status(bench.now).state_wait, None);
}

#[test]
fn a_server_enlists_though_every_write_takes_longer_than_its_patience() {
    let mut bench = Bench::new();
    bench.says(1, shard::Kind::Hello(hello("m", 1, 0, 1)));
    let left = bench.passes(Duration::from_secs(8));
    assert!(welcome_in(&left).is_none());
    assert!(!pings_in(&left).is_empty(), "the server hears nothing");
    bench.complete();
    assert!(welcome_in(&bench.take()).is_some());
}

#[test]
fn nothing_waits_for_cluster_time_and_it_stands_still_before_its_bound() {
    let mut bench = Bench::new();
    bench.says(1, shard::Kind::Hello(hello("m", 1, 0, 1)));
    bench.settle();
    bench.take();
    let mut last_ns = 0;
    for second in 0..600 {
        let left = bench.passes(Duration::from_secs(1));
        for ping in pings_in(&left) {
            assert!(ping.cluster_time_ns >= last_ns);
            last_ns = ping.cluster_time_ns;
        }
        let nonce = 10 + second;
        assert_eq!(
            statuses(&bench.request(nonce, &get_table_id())),
            [Status::TableDoesntExist]
        );
    }
    let ahead = Config::new(1, 5, "test").time_ahead;
    assert!(u128::from(last_ns) < 2 * ahead.as_nanos() && ahead < TIME_AHEAD);
    // The next process tells no time that was told before.
    assert!(bench.next().cluster_status(bench.now).cluster_time_ns > last_ns);
}

#[test]
fn more_than_fits_is_refused_and_in_the_end_the_process() {
    let limits = Limits {
        refuse_count: 10,
        ..Limits::default()
    };
    let mut bench = Bench::with(limits);
    for nonce in 0..11 {
        assert!(bench.request(nonce, &renew_lease(0)).is_empty());
    }
    assert_eq!(
        statuses(&bench.request(11, &renew_lease(0))),
        [Status::Retry]
    );
    assert_eq!(statuses(&bench.request(12, &ping())), [Status::Ok]);
    for member in 0..50 {
        let hello = Hello {
            host_id: format!("host-{member}"),
            ..hello(&format!("m{member}"), member, 0, 1)
        };
        bench.says(100 + member, shard::Kind::Hello(hello));
    }
    let left = bench.take();
    let ends = left
        .iter()
        .filter(|effect| matches!(effect, SoleEffect::EndProcess));
    assert!(ends.count() > 0, "{left:?}");
    assert_eq!(statuses(&left), [], "what waits never leaves");
}

/// Makes tables and leases on a disk that is late at random, and ends at each step: what was told must be there.
fn ends_at_any_time(seed: u64) -> Result<(), String> {
    let mut bench = Bench::new();
    bench.says(1, shard::Kind::Hello(hello("m", 1, 0, 1)));
    bench.settle();
    bench.take();
    let mut random = seed;
    let mut told_leases = 0;
    for step in 0..60_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bench.now += Duration::from_millis(random >> 54);
        let left = match random >> 33 & 3 {
            0 => {
                bench.complete();
                bench.take()
            }
            1 => bench.request(step, &create_table(&format!("t{step}"), 1)),
            2 => bench.request(step, &renew_lease(0)),
            _ => {
                bench.says(1, shard::Kind::Pong(Pong::default()));
                bench.take()
            }
        };
        let next = bench.next().cluster_status(bench.now);
        for effect in &left {
            let SoleEffect::Reply(_, payload) = effect else {
                continue;
            };
            if payload.len() == rpc::RenewLeaseResponse::FIXED_BYTES {
                told_leases += 1;
            }
        }
        let found = next.client_lease_count;
        if found < told_leases {
            return Err(format!(
                "step {step}: {told_leases} leases were told, and {found} are noted"
            ));
        }
    }
    Ok(())
}

#[test]
fn what_was_told_is_noted_whenever_the_process_ends() {
    for seed in 0..200 {
        assert_eq!(ends_at_any_time(seed), Ok(()), "seed {seed}");
    }
    plant(Some(Bug::NoteUnsynced));
    let found = (0..200).any(|seed| ends_at_any_time(seed).is_err());
    plant(None);
    assert!(found, "the planted bug is not found");
}
