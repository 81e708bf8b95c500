//! A recovery alone: no coordinator, no sessions.

use base::bugs::{Bug, plant};
use base::ids::ServerId;
use base::time::Time;
use wire::member::coordinator::Kind;
use wire::member::{LogInventory, Recover, Recovered, ReplicaFound};

use super::Recoveries;
use crate::alone::{self, MOMENT, Said, index};
use crate::directory::tables::NOBODY;
use crate::resource::Resource;
use crate::store::Store;

struct Alone {
    store: Store,
    recoveries: Recoveries,
    out: Said,
    now: Time,
    dead: ServerId,
}

impl Alone {
    /// Server 1 of three is dead, and had both tablets.
    fn new() -> Alone {
        let (mut store, _) = alone::store(3);
        let (mut recoveries, mut out, now) = (Recoveries::default(), Said::default(), Time(2000));
        let dead = alone::id(&store, 1);
        let death = store.members.end_process("m1").expect("it lives");
        recoveries.begin(&mut store, now, "m1", &death.servers, &mut out);
        Alone {
            store,
            recoveries,
            out,
            now,
            dead,
        }
    }

    fn look(&mut self) -> Vec<(u64, Kind)> {
        self.now += MOMENT;
        let (store, out) = (&mut self.store, &mut self.out);
        self.recoveries.look(store, self.now, out);
        self.out.take()
    }

    /// A backup has the head of the dead server's log, of this length.
    fn has_head(&mut self, backup: u64, bytes: u32) {
        let inventory = LogInventory {
            log: self.dead.0,
            replicas: vec![ReplicaFound {
                segment_id: 7,
                bytes,
                is_open: true,
                ..ReplicaFound::default()
            }],
        };
        let at = index(&self.store, backup);
        self.recoveries.inventory(&self.store, at, inventory);
    }

    fn done(&mut self, master: u64, order: &Recover) -> Vec<(u64, Kind)> {
        let recovered = Recovered {
            recovery_id: order.recovery_id,
            from_segment: 1,
            objects: 10,
            ..Recovered::default()
        };
        let at = index(&self.store, master);
        let (store, out) = (&mut self.store, &mut self.out);
        self.recoveries
            .recovered(store, self.now, at, 100 + master, &recovered, out);
        self.out.take()
    }

    fn orphans(&self) -> usize {
        let tablets = self.store.tables.tablets();
        tablets.filter(|(_, one)| one.owner == NOBODY).count()
    }
}

fn orders(said: Vec<(u64, Kind)>) -> Vec<(u64, Recover)> {
    let orders = said.into_iter().filter_map(|(on, kind)| match kind {
        Kind::Recover(order) => Some((on - 100, order)),
        _ => None,
    });
    orders.collect()
}

fn is_committed(said: &[(u64, Kind)]) -> bool {
    let mut said = said.iter();
    said.any(|(_, kind)| matches!(kind, Kind::CommitRecovery(_)))
}

#[test]
fn what_a_dead_server_had_is_brought_back() {
    let mut alone = Alone::new();
    assert_eq!(alone.orphans(), 2);
    let log = alone.dead;
    assert_eq!(alone.recoveries.dead.take_changed(), [log].into());
    let asked = alone.look();
    let asks = |on| asked.iter().any(|(to, _)| *to == on);
    assert!(asks(102) && asks(103), "{asked:?}");
    alone.has_head(2, 500);
    alone.has_head(3, 500);
    let orders = orders(alone.look());
    let masters: Vec<u64> = orders.iter().map(|(master, _)| *master).collect();
    assert_eq!(masters, [2, 3], "a part for each");
    for (master, order) in &orders {
        assert!(is_committed(&alone.done(*master, order)));
    }
    assert_eq!(alone.orphans(), 0);
    alone.look();
    assert_eq!(alone.recoveries.count_under_way(), 0);
    let ended = alone.recoveries.shown();
    assert_eq!((ended.len(), ended[0].objects), (1, 20));
    assert!(
        alone.recoveries.is_worth_a_checkpoint(),
        "the log's head is noted"
    );
}

/// Two orders about one log that have found different heads of it: whoever ends first is believed, and the other begins anew. Whether that is so.
fn only_one_head_is_believed() -> bool {
    let mut alone = Alone::new();
    alone.look();
    alone.has_head(2, 500);
    alone.has_head(3, 500);
    let first = orders(alone.look());
    // The session of server 3 ends and begins anew, and a backup has found a longer replica meanwhile.
    let third = index(&alone.store, 3);
    alone.recoveries.give_up_orders_of(third);
    alone.has_head(2, 900);
    let second = orders(alone.look());
    assert_eq!(second.len(), 1, "{second:?}");
    let (master, order) = &first[0];
    assert!(is_committed(&alone.done(*master, order)));
    let (master, order) = &second[0];
    let said = alone.done(*master, order);
    let is_given_up = said
        .iter()
        .any(|(_, kind)| matches!(kind, Kind::GiveUpRecovery(_)));
    is_given_up && !is_committed(&said) && alone.orphans() == 1
}

#[test]
fn all_tablets_come_from_one_head() {
    assert!(only_one_head_is_believed());
    plant(Some(Bug::TakeAnotherHead));
    let is_missed = only_one_head_is_believed();
    plant(None);
    assert!(!is_missed, "the planted bug is not found");
}
