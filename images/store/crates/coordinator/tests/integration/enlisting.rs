//! How the work of letting servers in, and of bringing their tablets back, grows with the number of tablets: docs/performance.md.

#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::time::{Duration, Instant};

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use coordinator::{Config, Coordinator, CoordinatorEffects, CoordinatorEvent};
use wire::member::{
    BackupReport, Hello, LogInventory, Pong, Recovered, TabletLoad, TabletRange, ToCoordinator,
    ToShard, coordinator as to_shard, shard,
};

use crate::common::replicated::{open_head, with_replicas};
use crate::common::{CLUSTER, create_table, hello};

/// Spans of each table: as many as a table may have.
const SPAN: u32 = 1024;

/// What was sent since the last call.
#[derive(Default)]
struct Sent(Vec<(u64, to_shard::Kind)>);

impl CoordinatorEffects for Sent {
    fn reply(&mut self, _: ReplyTo, _: &[u8]) {}
    fn send_member(&mut self, connection: u64, message: ToShard) {
        self.0.extend(message.kind.map(|kind| (connection, kind)));
    }
    fn close_member(&mut self, _: u64) {}
    fn report(&mut self, _: CoordinatorEvent) {}
}

struct Store {
    coordinator: Coordinator,
    now: Time,
    sent: Sent,
    ids: Vec<ServerId>,
    /// Of each server.
    tablets: Vec<Vec<TabletRange>>,
}

impl Store {
    /// A store of servers that own `tablets` together, dealt out to them in turn.
    fn new(servers: u64, tablets: u32, replicas: u32) -> Store {
        let config = Config::new(CLUSTER, 0, "test");
        let mut store = Store {
            coordinator: Coordinator::new(config, Time(1000)),
            now: Time(1000),
            sent: Sent::default(),
            ids: Vec::new(),
            tablets: vec![Vec::new(); servers as usize],
        };
        for number in 0..servers {
            store.ids.push(ServerId::INVALID);
            let welcome = store.enlist(number, Store::hello(number, 1, replicas));
            store.ids[number as usize] = ServerId(welcome.0);
        }
        for table in 0..tablets / SPAN {
            let to = ReplyTo {
                connection: 1,
                nonce: u64::from(table),
            };
            let request = create_table(&format!("t{table}"), SPAN);
            store
                .coordinator
                .request(store.now, to, &request, &mut store.sent);
        }
        for (connection, kind) in std::mem::take(&mut store.sent.0) {
            if let to_shard::Kind::TakeTablet(order) = kind {
                store.tablets[connection as usize - 100].push(order.tablet);
            }
        }
        store.coordinator.take_changes(store.now);
        store
    }

    fn hello(number: u64, process: u64, replicas: u32) -> Hello {
        Hello {
            replicas,
            ..hello(&format!("m{number}"), process, 0, 1)
        }
    }

    fn says(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        let (coordinator, sent) = (&mut self.coordinator, &mut self.sent);
        coordinator.member_message(self.now, connection, message, sent);
        coordinator.take_changes(self.now);
    }

    /// Its id, and the tablets that the server was told.
    fn enlist(&mut self, number: u64, hello: Hello) -> (u64, Vec<TabletRange>) {
        let connection = 100 + number;
        self.says(connection, shard::Kind::Hello(hello));
        if let Some((_, to_shard::Kind::Ping(_))) = self.sent.0.last() {
            self.says(connection, shard::Kind::Pong(Pong::default()));
        }
        let said = std::mem::take(&mut self.sent.0).into_iter();
        let mut welcomes = said.filter_map(|(_, kind)| match kind {
            to_shard::Kind::Welcome(welcome) => Some((welcome.server_id, welcome.tablets)),
            _ => None,
        });
        welcomes.next().expect("a welcome")
    }

    /// Every server says how much its tablets are used; then all lose their connections, and come back as what they were. How long the coordinator
    /// needs for their hellos.
    fn all_resume(&mut self) -> Duration {
        let numbers = 0..self.ids.len() as u64;
        for (number, tablets) in numbers.clone().zip(self.tablets.clone()) {
            let loads = tablets.into_iter().map(|tablet| TabletLoad {
                tablet,
                ..TabletLoad::default()
            });
            let pong = Pong {
                loads: loads.collect(),
                ..Pong::default()
            };
            self.says(100 + number, shard::Kind::Pong(pong));
        }
        for number in numbers.clone() {
            let (coordinator, sent) = (&mut self.coordinator, &mut self.sent);
            coordinator.member_closed(self.now, 100 + number, sent);
        }
        self.sent.0.clear();
        let began = Instant::now();
        let mut told = 0;
        for number in numbers {
            let hello = Hello {
                cluster_id: CLUSTER,
                server_id: self.ids[number as usize].0,
                ..Store::hello(number, 1, 0)
            };
            told += self.enlist(number, hello).1.len();
        }
        let took = began.elapsed();
        assert_eq!(told, self.tablets.iter().map(Vec::len).sum::<usize>());
        took
    }

    /// The only server with tablets dies, and four others bring these back; how long the coordinator needs for all of it.
    fn recovered(tablets: u32) -> Duration {
        let mut store = Store::new(1, tablets, 2);
        for number in 1..=4 {
            store.enlist(number, with_replicas(&format!("m{number}"), number));
            let report = BackupReport {
                segment_bytes: 8 << 20,
                frames: 1000,
                frames_free: 1000,
                ..BackupReport::default()
            };
            store.says(100 + number, shard::Kind::BackupReport(report));
        }
        let (coordinator, sent) = (&mut store.coordinator, &mut store.sent);
        coordinator.member_closed(store.now, 100, sent);
        let began = Instant::now();
        store.enlist(0, Store::hello(0, 2, 2));
        let mut brought_back = 0;
        while brought_back < tablets as usize {
            store.now += Duration::from_millis(100);
            let (coordinator, sent) = (&mut store.coordinator, &mut store.sent);
            coordinator.tick(store.now, sent);
            for (connection, kind) in std::mem::take(&mut store.sent.0) {
                match kind {
                    to_shard::Kind::FenceLog(log) => {
                        let replicas = vec![open_head(1, 80, &[])];
                        let found = LogInventory {
                            log: log.log,
                            replicas,
                        };
                        store.says(connection, shard::Kind::LogInventory(found));
                    }
                    to_shard::Kind::Recover(recover) => {
                        brought_back += recover.tablets.len();
                        let recovered = Recovered {
                            recovery_id: recover.recovery_id,
                            from_segment: 7,
                            ..Recovered::default()
                        };
                        store.says(connection, shard::Kind::Recovered(recovered));
                    }
                    _ => {}
                }
            }
        }
        began.elapsed()
    }
}

/// The only server, which has no copies, is replaced by its next process.
fn replaced(tablets: u32) -> Duration {
    let mut store = Store::new(1, tablets, 0);
    let (coordinator, sent) = (&mut store.coordinator, &mut store.sent);
    coordinator.member_closed(store.now, 100, sent);
    let began = Instant::now();
    let (_, told) = store.enlist(0, Store::hello(0, 2, 0));
    let took = began.elapsed();
    assert_eq!(told.len(), tablets as usize);
    took
}

#[test]
#[ignore = "a measurement for docs/performance.md, which asserts nothing: run it with --ignored --nocapture"]
fn what_a_welcome_costs() {
    let best = |measure: &dyn Fn() -> Duration| {
        let best = (0..5).map(|_| measure()).min().unwrap_or_default();
        format!("{:8.2} ms", best.as_secs_f64() * 1000.0)
    };
    for tablets in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        let many = u64::from(tablets / 64);
        println!(
            "{tablets:6} tablets: one server resumes {}, its next process {}, {many:4} servers resume {}, a recovery {}",
            best(&|| Store::new(1, tablets, 0).all_resume()),
            best(&|| replaced(tablets)),
            best(&|| Store::new(many, tablets, 0).all_resume()),
            best(&|| Store::recovered(tablets)),
        );
    }
}
