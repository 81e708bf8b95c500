//! A store with many tables: its coordinator's pairs, through the sizes that are used, into objects that an API server takes.

use std::collections::BTreeMap;

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::state::Pair;
use coordinator::state::objects::{Keeper, KeeperEffect, Settings, Tuning};
use coordinator::{Config, Coordinator};
use wire::member::{self, ToCoordinator, coordinator::Kind, shard};

use crate::common::{Action, Recorder, create_table, hello};
use coordinator::state::objects::testing::ApiServer;

const TABLES: usize = 10_000;
/// Kubernetes takes no ConfigMap or Secret that is longer.
const MAX_OBJECT_BYTES: usize = 1 << 20;

fn keeper(nonce: u64) -> Keeper {
    Keeper::new(Settings {
        nonce,
        leader: "leader".to_owned(),
        new_cluster_id: 1,
        awaits_seed: false,
        tuning: Tuning::default(),
    })
}

/// Answers everything at once; gives what was loaded.
fn serve(keeper: &mut Keeper, server: &mut ApiServer, committed: &mut u64) -> Option<Vec<Pair>> {
    let mut loaded = None;
    while let Some(effect) = keeper.take_effect() {
        match effect {
            KeeperEffect::Request(id, request) => {
                let answer = server.execute(&request, 0).0;
                keeper.answered(Time(1), id, answer);
            }
            KeeperEffect::Loaded { pairs, .. } => loaded = Some(pairs),
            KeeperEffect::Committed(number) => *committed = number,
            KeeperEffect::Empty => panic!("nobody awaits a seed here"),
            KeeperEffect::Ended(ending, text) => panic!("{ending:?}: {text}"),
        }
    }
    loaded
}

fn sorted(pairs: impl IntoIterator<Item = Pair>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    pairs
        .into_iter()
        .map(|pair| (pair.key, pair.value))
        .collect()
}

fn says(store: &mut Coordinator, connection: u64, kind: shard::Kind, out: &mut Recorder) {
    let message = ToCoordinator::from(kind);
    store.member_message(Time(1), connection, message, out);
}

/// Makes a table; its servers do what they are told.
fn create(store: &mut Coordinator, number: usize) {
    let (mut out, mut done) = (Recorder::default(), Recorder::default());
    let name = format!("{}-{number}", "a-long-name".repeat(20));
    let to = ReplyTo {
        connection: 1,
        nonce: number as u64,
    };
    store.request(Time(1), to, &create_table(&name, 10), &mut out);
    for action in out.actions {
        if let Action::Send(connection, Kind::TakeTablet(order)) = action {
            let sequence = order.sequence;
            let kind = shard::Kind::TabletDone(member::TabletDone { sequence });
            says(store, connection, kind, &mut done);
        }
    }
}

#[test]
fn ten_thousand_tables_come_back() {
    let config = Config::new(1, 0, "test");
    let mut store = Coordinator::new(config.clone(), Time(1));
    for member in 0..20 {
        let hello = hello(&format!("m{member}"), member + 1, 0, 1);
        says(
            &mut store,
            1 + member,
            shard::Kind::Hello(hello),
            &mut Recorder::default(),
        );
    }
    let mut server = ApiServer::new(MAX_OBJECT_BYTES);
    let (mut first, mut committed) = (keeper(1), 0);
    first.start(Time(1));
    let nothing = serve(&mut first, &mut server, &mut committed);
    assert_eq!(nothing, Some(Vec::new()));
    for number in 0..TABLES {
        create(&mut store, number);
        let expected = first.commit(Time(1), store.take_changes(Time(1)));
        serve(&mut first, &mut server, &mut committed);
        assert_eq!(committed, expected);
    }
    let root = server.root().expect("it was written");
    let bytes: u64 = root.runs.iter().map(|run| run.bytes()).sum();
    let chunks = root.chunks().count();
    println!(
        "{bytes} bytes in {chunks} chunks, {} in the tail",
        root.tail.bytes()
    );
    assert!(bytes > 2 << 20, "a few megabytes: {bytes}");

    let mut second = keeper(2);
    second.start(Time(2));
    let loaded = serve(&mut second, &mut server, &mut committed).expect("it leads");
    assert_eq!(sorted(loaded.clone()), sorted(store.pairs()));
    let restored = Coordinator::restore(config, loaded, Time(2)).expect("it fits together");
    let status = restored.cluster_status(Time(2));
    assert_eq!(status.table_count, TABLES as u64);
}
