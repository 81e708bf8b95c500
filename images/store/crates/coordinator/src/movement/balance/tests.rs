//! What holds of every plan, and some examples.

use std::collections::BTreeSet;

use fastrand::Rng;
use wire::member::TabletRange;

use super::plan::{Plan, Server, Step, Tablet, View, plan};
use crate::balancing::Rules;

const MIB: u64 = 1 << 20;

/// A store in which everything that is planned is done at once.
struct Store {
    rules: Rules,
    servers: Vec<Server>,
    tablets: Vec<Tablet>,
    was_uneven: [bool; 2],
    /// Which server gave what to which.
    moves: Vec<(TabletRange, u32, u32)>,
}

fn server(index: u32, capacity_bytes: u64) -> Server {
    Server {
        index,
        name: format!("server {index}.0"),
        takes: true,
        gives: true,
        may_give: true,
        may_take: true,
        has_copies: true,
        capacity_bytes,
        ..Server::default()
    }
}

fn tablet(table_id: u64, owner: u32, bytes: u64, rate: u64) -> Tablet {
    Tablet {
        range: TabletRange {
            table_id,
            start_key_hash: 0,
            end_key_hash: u64::MAX,
        },
        owner,
        bytes,
        rate,
        is_held: false,
        rests: false,
    }
}

impl Store {
    fn new(servers: Vec<Server>, tablets: Vec<Tablet>) -> Store {
        Store {
            rules: Rules::default(),
            servers,
            tablets,
            was_uneven: [false; 2],
            moves: Vec::new(),
        }
    }

    /// `servers` of 1 GiB each, and tables of one tablet.
    fn of(servers: u32, tablets: &[(u32, u64, u64)]) -> Store {
        let servers = (1..=servers).map(|index| server(index, 1 << 30));
        let tablets = tablets.iter().zip(1..);
        let tablets =
            tablets.map(|(&(owner, bytes, rate), table)| tablet(table, owner, bytes, rate));
        Store::new(servers.collect(), tablets.collect())
    }

    fn amounts(&self, of: impl Fn(&Tablet) -> u64) -> Vec<u64> {
        let amount = |server: &Server| {
            let tablets = self.tablets.iter();
            let owned = tablets.filter(|tablet| tablet.owner == server.index);
            owned.map(&of).sum()
        };
        self.servers.iter().map(amount).collect()
    }

    fn plan(&self) -> Plan {
        let mut servers = self.servers.clone();
        for (server, bytes) in servers.iter_mut().zip(self.amounts(|one| one.bytes)) {
            server.used_bytes = bytes;
        }
        plan(View {
            rules: &self.rules,
            servers,
            tablets: self.tablets.clone(),
            under_way: 0,
            evens_out: true,
            was_uneven: self.was_uneven,
        })
    }

    fn check(&self, plan: &Plan) {
        assert!(plan.steps.len() <= self.rules.max_under_way);
        let sources: BTreeSet<u32> = plan.steps.iter().map(|step| step.source).collect();
        let targets: BTreeSet<u32> = plan.steps.iter().map(|step| step.target).collect();
        assert_eq!(
            (sources.len(), targets.len()),
            (plan.steps.len(), plan.steps.len())
        );
        for step in &plan.steps {
            assert_ne!(step.source, step.target);
            let server = |index| self.servers.iter().find(|one| one.index == index).unwrap();
            let (from, to) = (server(step.source), server(step.target));
            assert!(to.takes && !to.is_draining && to.may_take, "{step:?}");
            assert!(from.gives && from.may_give, "{step:?}");
            assert!(to.has_copies || !from.has_copies, "{step:?}");
        }
    }

    fn carry_out(&mut self, step: &Step) {
        let is_it = |one: &Tablet| one.range == step.tablet;
        let at = self.tablets.iter().position(is_it).unwrap();
        assert_eq!(self.tablets[at].owner, step.source);
        assert!(!self.tablets[at].is_held);
        let (first, second) = match step.cut_at {
            None => (None, self.tablets[at].clone()),
            Some(cut_at) => {
                let (first, second) = super::plan::cut(&self.tablets[at], cut_at);
                (Some(first), second)
            }
        };
        self.moves.push((second.range, step.source, step.target));
        self.tablets[at] = Tablet {
            owner: step.target,
            ..second
        };
        self.tablets.extend(first);
    }

    /// Plans and does until nothing is left to do.
    fn settle(&mut self) -> Plan {
        for _ in 0..2000 {
            let plan = self.plan();
            self.check(&plan);
            self.was_uneven = plan.uneven;
            if plan.steps.is_empty() {
                return plan;
            }
            for step in &plan.steps {
                self.carry_out(step);
            }
        }
        let last = &self.moves[self.moves.len() - 6..];
        panic!("moves without end, such as {last:?}");
    }
}

#[test]
fn a_table_of_one_tablet_spreads_over_servers_that_were_added() {
    let mut store = Store::of(4, &[(1, 20 * MIB, 0)]);
    store.rules.min_capacity_percent = 0;
    store.settle();
    assert_eq!(store.amounts(|one| one.bytes), [5 * MIB; 4]);
    assert_eq!(store.moves.len(), 3, "as few pieces as there are servers");
}

#[test]
fn moving_begins_at_25_percent_above_the_share_and_ends_at_10() {
    let tablets = |first: u64| -> Vec<(u32, u64, u64)> {
        let rest = (1..=3).flat_map(|owner| vec![(owner, 4 * MIB, 0); 25]);
        rest.chain([(1, first * MIB, 0)]).collect()
    };
    let mut even = Store::of(3, &tablets(35));
    assert_eq!(even.settle().uneven, [false; 2]);
    assert_eq!(even.moves, []);
    let mut uneven = Store::of(3, &tablets(50));
    assert_eq!(uneven.plan().uneven, [true, false]);
    uneven.settle();
    let most = uneven.amounts(|one| one.bytes).into_iter().max().unwrap();
    assert!(most <= 350 * MIB / 3 * 110 / 100, "{most}");
}

#[test]
fn little_is_left_where_it_is() {
    // A MiB, and 2 % of the memory.
    let mut store = Store::of(2, &[(1, 20 * MIB, 9000)]);
    store.settle();
    assert_eq!(store.moves, []);
}

#[test]
fn a_tablet_of_one_hash_is_not_cut() {
    let mut store = Store::of(2, &[(1, 100 * MIB, 0)]);
    store.tablets[0].range.start_key_hash = u64::MAX;
    let plan = store.settle();
    assert_eq!(store.moves, []);
    assert!(
        plan.waits_for[0].contains("no tablet, nor a part"),
        "{plan:?}"
    );
}

#[test]
fn a_busy_table_is_cut_and_spread() {
    let mut store = Store::of(3, &[(1, MIB, 90_000), (2, MIB, 3000)]);
    store.settle();
    let most = store.amounts(|one| one.rate).into_iter().max().unwrap();
    assert!(most <= 31_000 * 110 / 100, "{most}");
}

#[test]
fn what_moves_for_its_load_makes_no_memory_uneven() {
    // All of the load is in what takes most of the memory.
    let big = 400 * MIB;
    let mut store = Store::of(2, &[(1, big, 50_000), (2, big, 0)]);
    store.settle();
    let bytes = store.amounts(|one| one.bytes);
    assert!(
        bytes.iter().all(|&bytes| bytes <= big * 125 / 100),
        "{bytes:?}"
    );
}

#[test]
fn who_drains_is_emptied_whatever_rests_and_gets_nothing() {
    let mut store = Store::of(
        3,
        &[(1, 9 * MIB, 10), (1, 0, 0), (1, MIB, 0), (2, 5 * MIB, 0)],
    );
    store.servers[0].is_draining = true;
    store.servers[0].takes = false;
    for tablet in &mut store.tablets {
        tablet.rests = true;
    }
    let plan = store.plan();
    assert_eq!(
        (plan.tablets_to_evacuate, plan.bytes_to_evacuate),
        (3, 10 * MIB)
    );
    assert_eq!(plan.steps.len(), 1, "one at a time leaves a server");
    store.settle();
    assert_eq!(store.amounts(|_| 1)[0], 0);
}

#[test]
fn a_drain_that_cannot_go_on_says_why() {
    let mut store = Store::of(2, &[(1, 900 * MIB, 0)]);
    store.servers[0].is_draining = true;
    store.servers[0].takes = false;
    let plan = store.plan();
    assert_eq!(plan.steps, []);
    assert!(plan.waits_for[0].contains("has memory for it"), "{plan:?}");
    store.servers[0].gives = false;
    let plan = store.plan();
    assert!(plan.waits_for[0].contains("is not connected"), "{plan:?}");
    assert_eq!(plan.tablets_to_evacuate, 1);
}

fn random_store(random: &mut Rng) -> Store {
    let count = random.u32(1..=8);
    let servers: Vec<Server> = (1..=count)
        .map(|index| {
            let is_draining = random.u8(..) < 40;
            let is_connected = random.u8(..) < 230;
            Server {
                takes: is_connected && !is_draining,
                gives: is_connected && random.u8(..) < 250,
                is_draining,
                may_give: random.u8(..) < 250,
                may_take: random.u8(..) < 250,
                has_copies: random.u8(..) < 240,
                ..server(index, random.u64(1..=8) << 26)
            }
        })
        .collect();
    let tablets = (0..random.u64(0..60))
        .map(|table| {
            let bytes = match random.u8(0..4) {
                0 => 0,
                1 => random.u64(0..MIB),
                _ => random.u64(0..30 * MIB),
            };
            let rate = random.choice([0, 10, 5000, 50_000]).unwrap();
            let one = tablet(table, random.u32(1..=count), bytes, random.u64(0..=rate));
            Tablet {
                is_held: random.u8(..) < 10,
                rests: random.u8(..) < 20,
                ..one
            }
        })
        .collect();
    Store::new(servers, tablets)
}

#[test]
fn from_any_state_moving_ends_within_its_bounds_and_does_not_begin_again() {
    let mut moved = 0;
    for seed in 0..2000 {
        let mut store = random_store(&mut Rng::with_seed(seed));
        store.settle();
        moved += store.moves.len();
        // Nothing has changed since: there is nothing to do, neither for who has been at it nor for who comes anew.
        assert_eq!(store.plan().steps, [], "seed {seed}");
        store.was_uneven = [false; 2];
        assert_eq!(store.plan().steps, [], "seed {seed}");
    }
    assert!(moved > 1000, "{moved}");
}

#[test]
fn bytes_become_even_and_nothing_comes_back_to_where_it_was() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let count = random.u32(2..=8);
        let tablets: Vec<(u32, u64, u64)> = (0..random.u32(1..40))
            .map(|_| (random.u32(1..=count), random.u64(0..40 * MIB), 0))
            .collect();
        let mut store = Store::of(count, &tablets);
        for server in &mut store.servers {
            server.capacity_bytes = random.u64(4..=8) << 28;
        }
        store.settle();
        assert!(!store.plan().uneven[0], "seed {seed}");
        let sources: BTreeSet<u32> = store.moves.iter().map(|&(_, from, _)| from).collect();
        let targets: BTreeSet<u32> = store.moves.iter().map(|&(_, _, to)| to).collect();
        assert!(
            sources.is_disjoint(&targets),
            "seed {seed}: {:?}",
            store.moves
        );
    }
}
