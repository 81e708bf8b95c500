//! Random orders of events, and what must hold after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{
    Action, CLUSTER, Harness, create_table, drop_table, hello, removal, renew_lease, split_tablet,
};
use base::ids::{ReplyTo, ServerId};
use proptest::prelude::*;
use wire::member::{self, coordinator::Kind};

#[derive(Clone, Debug)]
enum Event {
    /// A shard of a process says hello, over a new connection; `holds`: it says what it was given before.
    Hello {
        member: u8,
        process: u8,
        shard: u8,
        holds: bool,
    },
    /// One of the open connections is closed by the other side.
    Close(u8),
    /// A shard carries out the oldest order that it has.
    Done(u8),
    Pong(u8),
    Create {
        name: u8,
        span: u8,
    },
    Drop {
        name: u8,
    },
    /// A tablet is split; the hash comes from this number.
    Split {
        name: u8,
        at: u8,
    },
    /// A client renews one of the leases that there were, or wants a new one.
    Lease(u8),
    /// A shard has a new head.
    Floor(u8),
    ClientCloses,
    Remove {
        member: u8,
    },
    Drain {
        member: u8,
        is_draining: bool,
    },
    Pass {
        ms: u16,
    },
    /// The coordinator's process dies, and the next one goes on with what was noted.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..3u8, 0..5u8, 0..3u8, any::<bool>())
            .prop_map(|(member, process, shard, holds)| Event::Hello { member, process, shard, holds }),
        2 => any::<u8>().prop_map(Event::Close),
        6 => any::<u8>().prop_map(Event::Done),
        2 => any::<u8>().prop_map(Event::Pong),
        4 => (0..4u8, 0..5u8).prop_map(|(name, span)| Event::Create { name, span }),
        2 => (0..4u8).prop_map(|name| Event::Drop { name }),
        2 => (0..4u8, any::<u8>()).prop_map(|(name, at)| Event::Split { name, at }),
        2 => any::<u8>().prop_map(Event::Lease),
        2 => any::<u8>().prop_map(Event::Floor),
        1 => Just(Event::ClientCloses),
        1 => (0..3u8).prop_map(|member| Event::Remove { member }),
        1 => (0..3u8, any::<bool>())
            .prop_map(|(member, is_draining)| Event::Drain { member, is_draining }),
        2 => (1..2500u16).prop_map(|ms| Event::Pass { ms }),
        2 => Just(Event::Restart),
    ]
}

/// Shards that a process has: a property of the process, so that every member sees changing counts.
fn shard_count(process: u8) -> u8 {
    [2, 2, 1, 3, 2][process as usize]
}

type Process = (u8, u8);

/// What the world outside the coordinator knows.
struct World {
    harness: Harness,
    /// Open connections: whose they are, and orders that were not carried out yet.
    open: BTreeMap<u64, (Process, Vec<u64>)>,
    next_connection: u64,
    /// Server ids by the process and shard that got them.
    given: BTreeMap<(Process, u8), u64>,
    owner_of_id: BTreeMap<u64, (Process, u8)>,
    /// Processes that must not come in again.
    dead: BTreeSet<Process>,
    present: BTreeMap<u8, Process>,
    unanswered: BTreeSet<ReplyTo>,
    last_table: u64,
    versions: BTreeMap<u32, u64>,
    client: u64,
    leases: Vec<u64>,
    cluster_time_ns: u64,
}

impl World {
    fn new() -> World {
        World {
            // Few losses, so that some are dropped.
            harness: Harness::with(|config| config.limits.max_losses = 2),
            open: BTreeMap::new(),
            next_connection: 1000,
            given: BTreeMap::new(),
            owner_of_id: BTreeMap::new(),
            dead: BTreeSet::new(),
            present: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            last_table: 0,
            versions: BTreeMap::new(),
            client: 1,
            leases: Vec::new(),
            cluster_time_ns: 0,
        }
    }

    fn pick(&self, at: u8) -> Option<u64> {
        let count = self.open.len();
        (count > 0).then(|| *self.open.keys().nth(at as usize % count).unwrap())
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Hello {
                member,
                process,
                shard,
                holds,
            } => {
                self.say_hello((member, process), shard % shard_count(process), holds);
            }
            Event::Close(at) => {
                if let Some(connection) = self.pick(at) {
                    self.open.remove(&connection);
                    let actions = self.harness.close(connection);
                    self.note(actions);
                }
            }
            Event::Done(at) => {
                if let Some(connection) = self.pick(at)
                    && let Some((_, orders)) = self.open.get_mut(&connection)
                    && !orders.is_empty()
                {
                    let sequence = orders.remove(0);
                    let actions = self.harness.done(connection, sequence);
                    self.note(actions);
                }
            }
            Event::Pong(at) => {
                if let Some(connection) = self.pick(at) {
                    let pong = member::shard::Kind::Pong(member::Pong::default());
                    let actions = self.harness.shard_says(connection, pong);
                    self.note(actions);
                }
            }
            Event::Create { name, span } => {
                let request = create_table(&format!("t{name}"), u32::from(span));
                self.request(&request);
            }
            Event::Drop { name } => self.request(&drop_table(&format!("t{name}"))),
            Event::Split { name, at } => {
                self.request(&split_tablet(&format!("t{name}"), u64::from(at) << 56));
            }
            Event::Lease(at) => self.renew_lease(at),
            Event::Floor(at) => {
                if let Some(connection) = self.pick(at) {
                    let floor = member::OpenFloor {
                        segment_id: u64::from(at) / 16,
                    };
                    let floor = member::shard::Kind::RaiseOpenFloor(floor);
                    let actions = self.harness.shard_says(connection, floor);
                    self.note(actions);
                }
            }
            Event::ClientCloses => {
                self.harness.coordinator.connection_closed(self.client);
                let client = self.client;
                self.unanswered.retain(|to| to.connection != client);
                self.client += 1;
            }
            Event::Remove { member } => self.remove(member),
            Event::Drain {
                member,
                is_draining,
            } => self.drain(member, is_draining),
            Event::Restart => self.restart(),
            Event::Pass { ms } => {
                let actions = self.harness.advance(Duration::from_millis(u64::from(ms)));
                self.note(actions);
            }
        }
    }

    fn request(&mut self, payload: &[u8]) {
        let (to, actions) = self.harness.request_on(self.client, payload);
        self.unanswered.insert(to);
        self.note(actions);
    }

    fn renew_lease(&mut self, at: u8) {
        let known = self.leases.len();
        let renewed = self.leases.get(at as usize % (known + 1)).copied();
        let answer = self.harness.answer(&renew_lease(renewed.unwrap_or(0)));
        let lease = wire::rpc::RenewLeaseResponse::decode(&answer)
            .unwrap()
            .lease;
        match renewed {
            Some(id) => assert_eq!(lease.id, id, "no lease has ended yet"),
            None => {
                assert!(!self.leases.contains(&lease.id), "a lease id came back");
                self.leases.push(lease.id);
            }
        }
    }

    /// All connections are gone; what was noted is not.
    fn restart(&mut self) {
        self.harness.restart(Duration::ZERO);
        self.open.clear();
        self.unanswered.clear();
        self.client += 1;
    }

    fn say_hello(&mut self, process: Process, shard: u8, holds: bool) {
        let connection = self.next_connection;
        self.next_connection += 1;
        let count = shard_count(process.1);
        let number = u64::from(process.1);
        let mut message = hello(
            &format!("m{}", process.0),
            number,
            shard.into(),
            count.into(),
        );
        if holds && let Some(&id) = self.given.get(&(process, shard)) {
            (message.cluster_id, message.server_id) = (CLUSTER, id);
        }
        self.open.insert(connection, (process, Vec::new()));
        let actions = self.harness.hello(connection, message);
        for action in &actions {
            if let Action::Send(to, Kind::Welcome(welcome)) = action {
                assert_eq!(*to, connection);
                self.welcomed(process, shard, welcome);
            }
        }
        self.note(actions);
    }

    fn welcomed(&mut self, process: Process, shard: u8, welcome: &member::Welcome) {
        assert!(!self.dead.contains(&process), "{process:?} came back");
        if let Some(present) = self
            .present
            .get(&process.0)
            .filter(|present| **present != process)
        {
            let is_open = self.open.values().any(|(whose, _)| whose == present);
            assert!(
                !is_open,
                "{process:?} took the place of {present:?}, which is there"
            );
        }
        if let Some(before) = self.present.insert(process.0, process)
            && before != process
        {
            self.dead.insert(before);
        }
        let id = welcome.server_id;
        let owner = *self.owner_of_id.entry(id).or_insert((process, shard));
        assert_eq!(owner, (process, shard), "server id {} reused", ServerId(id));
        let known = *self.given.entry((process, shard)).or_insert(id);
        assert_eq!(known, id, "a process keeps its server id");
        let version = self.versions.entry(ServerId(id).index()).or_default();
        assert!(welcome.first_version >= *version, "versions go back");
        *version = welcome.first_version;
        let mut owned = Vec::new();
        for table in self.harness.coordinator.tables(0, 0).tables {
            for tablet in table.tablets {
                if tablet.server_id == id {
                    owned.push((table.table_id, tablet.start_key_hash, tablet.end_key_hash));
                }
            }
        }
        let told: Vec<_> = welcome
            .tablets
            .iter()
            .map(|tablet| (tablet.table_id, tablet.start_key_hash, tablet.end_key_hash))
            .collect();
        assert_eq!(told, owned);
    }

    fn remove(&mut self, member: u8) {
        let name = format!("m{member}");
        let owned: u64 = self
            .harness
            .coordinator
            .cluster_status(self.harness.now)
            .members
            .iter()
            .filter(|shown| shown.name == name)
            .flat_map(|shown| &shown.shards)
            .map(|shard| shard.tablet_count)
            .sum();
        let now = self.harness.now;
        let result =
            self.harness
                .coordinator
                .remove_member(now, &removal(&name), &mut self.harness.out);
        let actions = self.harness.take();
        self.note(actions);
        let present = self.present.contains_key(&member);
        assert_eq!(result.is_ok(), present && owned == 0, "{result:?}");
        if result.is_ok() {
            let gone = self.present.remove(&member).unwrap();
            self.dead.insert(gone);
        }
    }

    fn drain(&mut self, member: u8, is_draining: bool) {
        let drain = coordinator::Drain {
            name: format!("m{member}"),
            ..Default::default()
        };
        let now = self.harness.now;
        let (core, out) = (&mut self.harness.coordinator, &mut self.harness.out);
        let done = match is_draining {
            true => core.drain_member(now, &drain, out).map(|_| ()),
            false => core.undrain_member(&drain, out),
        };
        let shown = self.draining();
        if done.is_ok() {
            assert_eq!(shown.contains(&drain.name), is_draining);
        } else {
            assert!(is_draining || !self.present.contains_key(&member));
            assert!(!shown.contains(&drain.name));
        }
        let actions = self.harness.take();
        self.note(actions);
    }

    fn members_of(&self, table: u64) -> BTreeSet<String> {
        let tables = self.harness.coordinator.tables(table - 1, 1).tables;
        let tablets = tables.into_iter().flat_map(|table| table.tablets);
        tablets.map(|tablet| tablet.member).collect()
    }

    fn draining(&self) -> BTreeSet<String> {
        let status = self.harness.coordinator.cluster_status(self.harness.now);
        let members = status.members.into_iter();
        let draining = members.filter(|member| member.draining.is_some());
        draining.map(|member| member.name).collect()
    }

    /// Follows what the driver was told.
    fn note(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply(to, _) => {
                    assert!(
                        self.unanswered.remove(&to),
                        "answered twice, or never asked: {to:?}"
                    );
                }
                Action::Close(connection) => {
                    self.open.remove(&connection).expect("closes what is open");
                }
                Action::Send(connection, kind) => {
                    let (_, orders) = self
                        .open
                        .get_mut(&connection)
                        .expect("sends on what is open");
                    if let Kind::TakeTablet(order) | Kind::DropTablet(order) = kind {
                        orders.push(order.sequence);
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        self.harness.commit();
        let status = self.harness.coordinator.cluster_status(self.harness.now);
        assert!(status.cluster_time_ns >= self.cluster_time_ns);
        self.cluster_time_ns = status.cluster_time_ns;
        let mut member_of = BTreeMap::new();
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        for member in &status.members {
            for shard in &member.shards {
                assert!(member_of.insert(shard.server_id, &member.name).is_none());
                if shard.tablet_count > 0 {
                    counted.insert(shard.server_id, shard.tablet_count);
                }
            }
        }
        let tables = self.harness.coordinator.tables(0, 0).tables;
        assert_eq!(status.table_count, tables.len() as u64);
        let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
        for table in &tables {
            let mut next = Some(0);
            for tablet in &table.tablets {
                assert_eq!(Some(tablet.start_key_hash), next, "a gap or an overlap");
                assert!(tablet.start_key_hash <= tablet.end_key_hash);
                next = tablet.end_key_hash.checked_add(1);
                assert_eq!(member_of.get(&tablet.server_id), Some(&&tablet.member));
                *owned.entry(tablet.server_id).or_default() += 1;
            }
            assert_eq!(next, None, "the ranges end before the last hash");
        }
        assert_eq!(owned, counted);
        if let Some(newest) = tables.iter().map(|table| table.table_id).max() {
            self.last_table = self.last_table.max(newest);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_whatever_happens(events in proptest::collection::vec(event(), 1..60)) {
        let mut world = World::new();
        let mut tables_before: BTreeSet<u64> = BTreeSet::new();
        for event in &events {
            let last_table = world.last_table;
            world.apply(event);
            world.check();
            let tables: BTreeSet<u64> = world
                .harness
                .coordinator
                .tables(0, 0)
                .tables
                .iter()
                .map(|table| table.table_id)
                .collect();
            for table in tables.difference(&tables_before) {
                prop_assert!(*table > last_table, "a table id came back");
                let draining = world.draining();
                let owners = world.members_of(*table);
                prop_assert!(owners.is_disjoint(&draining), "{draining:?} got a new tablet");
            }
            tables_before = tables;
        }
        world.apply(&Event::Pass { ms: 8000 });
        world.check();
        prop_assert!(world.unanswered.is_empty(), "never answered: {:?}", world.unanswered);
    }
}
