//! A coordinator's process ends, and the next one goes on with what was noted.

use std::time::Duration;

use crate::common::{
    Action, CLUSTER, Harness, create_table, drop_table, encode, hello, removal, renew_lease,
};
use base::ids::ServerId;
use base::time::Time;
use coordinator::state::Pair;
use coordinator::{Config, Coordinator, LEASE_TERM_NS};
use wire::member::{Hello, OpenFloor, RefusedReason, coordinator::Kind, shard};
use wire::rpc;
use wire::status::Status;

fn store() -> Harness {
    Harness::with(|config| config.cluster_tag = 5)
}

fn renew(store: &mut Harness, id: u64) -> rpc::Lease {
    let answer = store.answer(&renew_lease(id));
    rpc::RenewLeaseResponse::decode(&answer).unwrap().lease
}

/// The lease's id, or 0 if it has ended.
fn known_lease(store: &mut Harness, lease_id: u64) -> u64 {
    let request = encode(|out| rpc::GetLeaseInfoRequest { lease_id }.encode(out));
    let answer = store.answer(&request);
    rpc::RenewLeaseResponse::decode(&answer).unwrap().lease.id
}

fn cluster_time_ns(store: &Harness) -> u64 {
    store.coordinator.cluster_status(store.now).cluster_time_ns
}

fn holding(mut hello: Hello, id: u64) -> Hello {
    (hello.cluster_id, hello.server_id) = (CLUSTER, id);
    hello
}

#[test]
fn servers_resume_and_tables_are_where_they_were() {
    let mut store = store();
    let (first, _) = store.enlist(1, hello("m0", 7, 0, 1));
    store.enlist(2, hello("m1", 8, 0, 1));
    let table = store.create("fruit", 2);
    let before = store.config(table);
    store.restart(Duration::from_secs(5));

    let status = store.coordinator.cluster_status(store.now);
    assert_eq!((status.cluster_id, status.cluster_tag), (CLUSTER, 5));
    assert_eq!(
        store.config(table),
        before,
        "with locators, before anybody is back"
    );
    store.advance(Duration::from_secs(10));
    let status = store.coordinator.cluster_status(store.now);
    assert_eq!(
        (status.members.len(), status.losses.len()),
        (2, 0),
        "nobody is dead"
    );

    let again = holding(hello("m0", 7, 0, 1), first.server_id);
    let (welcome, _) = store.enlist(11, again);
    assert_eq!(welcome.server_id, first.server_id);
    assert_eq!(
        (welcome.cluster_id, welcome.first_version),
        (CLUSTER, first.first_version)
    );
    assert_eq!(welcome.tablets.len(), 1);
    // A table made again answers at once: its servers are told when they come.
    let answer = store.answer(&create_table("fruit", 2));
    assert_eq!(
        rpc::TableIdResponse::decode(&answer).unwrap().table_id,
        table
    );
}

#[test]
fn nothing_is_given_out_twice() {
    let mut store = store();
    store.enlist(1, hello("m0", 7, 0, 2));
    store.enlist(2, hello("m0", 7, 1, 2));
    let first = store.create("a", 1);
    let lease = renew(&mut store, 0);
    // The newest of everything is gone again before the process ends.
    store.request(&drop_table("a"));
    store.enlist(3, hello("m1", 1, 0, 1));
    let now = store.now;
    let removed = removal("m1");
    let coordinator = &mut store.coordinator;
    coordinator
        .remove_member(now, &removed, &mut store.out)
        .unwrap();
    store.take();
    store.restart(Duration::ZERO);

    let refused = store.refused(12, hello("m1", 1, 0, 1));
    assert_eq!(
        refused.reason,
        RefusedReason::Superseded as i32,
        "{}",
        refused.text
    );
    let (welcome, _) = store.enlist(13, hello("m1", 2, 0, 1));
    assert_eq!(ServerId(welcome.server_id), ServerId::new(4, 0));
    assert_eq!(store.create("a", 1).0, first.0 + 1);
    assert_eq!(renew(&mut store, 0).id, lease.id + 1);
}

#[test]
fn generations_and_processes_of_the_past_are_remembered() {
    let mut store = store();
    store.enlist(1, hello("m0", 1, 0, 1));
    store.create("fruit", 1);
    store.close(1);
    let (second, _) = store.enlist(2, hello("m0", 2, 0, 1));
    store.restart(Duration::ZERO);
    let refused = store.refused(3, hello("m0", 1, 0, 1));
    assert_eq!(
        refused.reason,
        RefusedReason::Superseded as i32,
        "{}",
        refused.text
    );
    let (again, _) = store.enlist(4, hello("m0", 2, 0, 1));
    assert_eq!(again.server_id, second.server_id);
    store.close(4);
    let (third, _) = store.enlist(5, hello("m0", 3, 0, 1));
    assert_eq!(ServerId(third.server_id), ServerId::new(1, 2));
    assert!(third.first_version > second.first_version);
    let status = store.coordinator.cluster_status(store.now);
    assert_eq!(
        status.losses.len(),
        2,
        "the loss from before the restart, and one more"
    );
}

#[test]
fn an_open_floor_never_goes_back() {
    let mut store = store();
    let (welcome, _) = store.enlist(1, hello("m0", 1, 0, 1));
    let raise = |store: &mut Harness, connection, segment_id| {
        let floor = shard::Kind::RaiseOpenFloor(OpenFloor { segment_id });
        match store.shard_says(connection, floor).as_slice() {
            [Action::Send(_, Kind::OpenFloorRaised(raised))] => raised.segment_id,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(raise(&mut store, 1, 9), 9);
    store.restart(Duration::ZERO);
    store.enlist(2, holding(hello("m0", 1, 0, 1), welcome.server_id));
    assert_eq!(raise(&mut store, 2, 4), 9);
}

#[test]
fn cluster_time_goes_on_and_at_most_a_minute_is_left_out() {
    let mut store = store();
    for step in 0..200 {
        let before = cluster_time_ns(&store);
        store.advance(Duration::from_secs(step));
        let last = cluster_time_ns(&store);
        assert_eq!(last - before, step * 1_000_000_000);
        store.restart(Duration::from_millis(1));
        let ahead = cluster_time_ns(&store) - last;
        assert!(ahead <= 60_000_000_000, "{ahead} ns");
    }
}

#[test]
fn what_was_not_noted_was_not_said_either() {
    let mut store = store();
    let now = store.now;
    // Within a minute nothing needs to be noted again; then the time itself, before anything that carries it goes out.
    assert!(
        store
            .coordinator
            .take_changes(now + Duration::from_secs(59))
            .is_empty()
    );
    let changes = store
        .coordinator
        .take_changes(now + Duration::from_secs(60));
    assert_eq!((changes.puts.len(), changes.deletes.len()), (1, 0));
}

#[test]
fn leases_never_end_early_however_often_the_coordinator_starts() {
    let mut store = store();
    let lease = renew(&mut store, 0);
    let renewed_at = store.now;
    // Each restart leaves out nearly a minute of cluster time: all of them together more than the term.
    for restart in 0..100 {
        store.restart(Duration::from_secs(1));
        store.advance(Duration::from_secs(1));
        assert_eq!(
            known_lease(&mut store, lease.id),
            lease.id,
            "after {restart} restarts"
        );
    }
    let term = Duration::from_nanos(LEASE_TERM_NS);
    let left = (renewed_at + term).since(store.now) - Duration::from_secs(1);
    store.advance(left);
    assert_eq!(
        known_lease(&mut store, lease.id),
        lease.id,
        "its term is not over"
    );
    let renewed = renew(&mut store, lease.id);
    assert_eq!(renewed.id, lease.id);
    assert_eq!(renewed.expiration_ns - renewed.timestamp_ns, LEASE_TERM_NS);
    // It does end.
    store.advance(term + Duration::from_secs(1));
    assert_eq!(known_lease(&mut store, lease.id), 0);
    let kept = store.kept.clone();
    store.restart(Duration::ZERO);
    assert_eq!(known_lease(&mut store, lease.id), 0);
    assert!(
        kept.0.keys().all(|key| key[0] != 6),
        "nothing is kept of it"
    );
}

#[test]
fn a_state_that_was_put_back_is_noticed_by_what_servers_were_told() {
    let mut store = store();
    store.coordinator.begin_term(11, 0);
    let (welcome, _) = store.enlist(1, hello("m0", 1, 0, 1));
    let id = welcome.server_id;
    let resumed = |position| Hello {
        position,
        ..holding(hello("m0", 1, 0, 1), id)
    };
    let first = welcome.position.unwrap();
    assert_eq!((first.term, first.nonce, first.sequence), (1, 11, 0));
    store.coordinator.noted(5);
    let backup = store.kept.clone();
    store.create("a", 1);
    store.coordinator.noted(7);
    let (welcome, _) = store.enlist(2, resumed(Some(first)));
    let second = welcome.position.unwrap();
    assert_eq!((second.term, second.nonce, second.sequence), (1, 11, 7));

    // The next process goes on: what was told before is what it came of.
    store.restart(Duration::from_secs(1));
    store.coordinator.begin_term(22, 7);
    let (welcome, _) = store.enlist(3, resumed(Some(second)));
    let third = welcome.position.unwrap();
    assert_eq!((third.term, third.nonce, third.sequence), (2, 22, 7));

    // An older state does not come of it, in whichever term it goes on.
    for starts in 1..4 {
        let mut old = Harness::new();
        old.kept = backup.clone();
        for start in 0..starts {
            old.restart(Duration::from_secs(1));
            old.coordinator.begin_term(33 + start, 5);
            old.commit();
        }
        let refused = old.refused(4, resumed(Some(second)));
        assert!(refused.text.contains("StateRolledBack"), "{}", refused.text);
        assert_eq!(
            old.coordinator.cluster_status(old.now).refusal,
            refused.text
        );
        // Nothing changes any more, and whoever asks is told why.
        let kept = old.kept.clone();
        let answer = old.answer(&create_table("b", 1));
        let retry = rpc::RetryResponse::decode(&answer).unwrap();
        assert!(retry.message.starts_with(b"StateRolledBack"));
        old.refused(5, hello("m1", 2, 0, 1));
        assert_eq!(old.kept, kept);
        assert_eq!(old.coordinator.tick(old.now, &mut old.out), Time::NEVER);
    }
}

/// A state that was noted, and what is wrong about it when `change` was made to its pairs.
fn refusal(change: impl FnOnce(&mut Vec<Pair>)) -> String {
    let mut store = store();
    store.enlist(1, hello("m0", 1, 0, 2));
    store.enlist(2, hello("m0", 1, 1, 2));
    store.create("a", 1);
    store.create("b", 1);
    renew(&mut store, 0);
    let mut pairs: Vec<Pair> = store.kept.pairs().collect();
    change(&mut pairs);
    match Coordinator::restore(Config::new(1, 1, "test"), pairs, Time::ZERO) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

fn drop_kind(kind: u8) -> impl FnOnce(&mut Vec<Pair>) {
    move |pairs| pairs.retain(|pair| pair.key[0] != kind)
}

#[test]
fn what_does_not_fit_together_is_refused_with_advice() {
    assert_eq!(refusal(|_| {}), "");
    let cases: [(&str, String); 7] = [
        ("which store it is of", refusal(drop_kind(1))),
        (
            "there are 2 servers, and members have 0",
            refusal(drop_kind(2)),
        ),
        ("which is not there", refusal(drop_kind(3))),
        (
            "cannot be read",
            refusal(|pairs| pairs[3].value.truncate(3)),
        ),
        (
            "cannot be read",
            refusal(|pairs| {
                let twice = pairs[2].clone();
                pairs.push(twice);
            }),
        ),
        ("cannot be read", refusal(|pairs| pairs[2].key.push(0))),
        ("cannot be read", refusal(|pairs| pairs[2].value.clear())),
    ];
    for (expected, text) in cases {
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(
            text.contains("put a copy of the state from before in its place"),
            "{text}"
        );
    }
}

#[test]
fn a_newer_format_is_named_even_if_its_records_are_unknown() {
    let text = refusal(|pairs| {
        // The first field of the counters is the format's version.
        let meta = pairs.iter_mut().find(|pair| pair.key == [1]).unwrap();
        let at = meta
            .value
            .windows(2)
            .position(|bytes| bytes == [8, 1])
            .unwrap();
        meta.value[at + 1] = 9;
        pairs.push(Pair {
            key: vec![99],
            value: vec![0xff],
        });
    });
    assert!(
        text.contains("in format 9") && text.contains("start a coordinator of that version"),
        "{text}"
    );
}

#[test]
fn an_answer_of_the_past_is_no_answer_now() {
    let mut store = store();
    store.enlist(1, hello("m0", 1, 0, 1));
    store.request(&create_table("a", 1));
    store.restart(Duration::ZERO);
    // The order was lost with the process; the server learns of its tablet from the Welcome, the client by asking again.
    let (welcome, _) = store.enlist(2, hello("m0", 1, 0, 1));
    assert_eq!(welcome.tablets.len(), 1);
    assert_eq!(store.done(2, 1), []);
    let answer = store.answer(&create_table("a", 1));
    assert_eq!(
        rpc::TableIdResponse::decode(&answer).unwrap().status,
        Status::Ok
    );
}

#[test]
fn tablets_of_shards_that_are_gone_are_noted_where_they_went() {
    let mut store = store();
    store.enlist(1, hello("m0", 1, 0, 2));
    store.enlist(2, hello("m0", 1, 1, 2));
    let table = store.create("a", 1);
    store.close(1);
    store.close(2);
    store.enlist(3, hello("m0", 2, 0, 1));
    store.restart(Duration::ZERO);
    assert_eq!(store.owners(table), [ServerId::new(1, 1); 2]);
}
