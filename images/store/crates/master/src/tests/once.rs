//! Numbered RPCs take effect once; leases end.

use base::time::Time;
use proptest::prelude::*;
use wire::member::{LeaseAnswer, Ping, coordinator, shard};
use wire::rpc::{Lease, RejectRules, RetryResponse};
use wire::status::Status;

use super::harness::*;
use crate::Durability;
use crate::data::results::MAX_RPC_ID;

fn plain() -> RejectRules {
    RejectRules::default()
}

#[test]
fn a_repeated_rpc_is_answered_as_the_first_time() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    assert_eq!(driver.write(1, b"key", b"1"), (Status::Ok, 1));
    assert_eq!(driver.write(2, b"key", b"2"), (Status::Ok, 2));
    assert_eq!(driver.write(1, b"key", b"1"), (Status::Ok, 1));
    assert_eq!(driver.read(b"key"), (Status::Ok, 2, b"2".to_vec()));
    assert_eq!(driver.remove(3, b"key"), (Status::Ok, 2));
    assert_eq!(driver.write(4, b"key", b"3"), (Status::Ok, 3));
    assert_eq!(driver.remove(3, b"key"), (Status::Ok, 2));
    assert_eq!(driver.read(b"key").0, Status::Ok);
    assert_eq!(driver.shard.stats().duplicates, 2);
}

#[test]
fn a_refusal_is_repeated_too_although_the_object_changed() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let must_exist = RejectRules {
        doesnt_exist: true,
        ..plain()
    };
    let payload = write(lease(1), 1, 0, b"key", b"1", must_exist);
    assert_eq!(driver.simple(&payload), (Status::ObjectDoesntExist, 0));
    assert_eq!(driver.write(2, b"key", b"2"), (Status::Ok, 1));
    assert_eq!(driver.simple(&payload), (Status::ObjectDoesntExist, 0));
    // "Nothing to remove" is an outcome as well.
    assert_eq!(driver.remove(3, b"other"), (Status::Ok, 0));
    assert_eq!(driver.write(4, b"other", b""), (Status::Ok, 2));
    assert_eq!(driver.remove(3, b"other"), (Status::Ok, 0));
    assert_eq!(driver.read(b"other").0, Status::Ok);
}

#[test]
fn what_the_client_is_done_with_is_stale() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    assert_eq!(driver.write(0, b"key", b"").0, Status::StaleRpc);
    for rpc_id in 1..=5 {
        driver.write(rpc_id, b"key", b"");
    }
    assert_eq!(driver.shard.stats().rpc_results, 5);
    let acknowledging = write(lease(1), 6, 4, b"key", b"", plain());
    assert_eq!(driver.simple(&acknowledging), (Status::Ok, 6));
    assert_eq!(driver.shard.stats().rpc_results, 2);
    assert_eq!(driver.write(4, b"key", b"").0, Status::StaleRpc);
    assert_eq!(driver.write(5, b"key", b""), (Status::Ok, 5));
    let nonsense = write(lease(1), 7, 7, b"key", b"", plain());
    assert_eq!(driver.simple(&nonsense).0, Status::StaleRpc);
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[test]
fn a_client_may_be_512_ahead_and_no_more() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for rpc_id in 1..=512 {
        assert_eq!(driver.write(rpc_id, b"key", b""), (Status::Ok, rpc_id));
    }
    let reply = driver.call(&write(lease(1), 513, 0, b"key", b"", plain()));
    assert_eq!(
        RetryResponse::decode(&reply),
        Ok(RetryResponse::new(1000, 2000))
    );
    assert_eq!(driver.write(17, b"key", b""), (Status::Ok, 17));
    let acknowledging = write(lease(1), 513, 1, b"key", b"", plain());
    assert_eq!(driver.simple(&acknowledging), (Status::Ok, 513));
    assert_eq!(driver.shard.stats().rpc_results, 512);
}

#[test]
fn ids_at_the_end_of_their_range_do_no_harm() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let call = |driver: &mut Driver, rpc_id, ack_id| {
        driver.simple(&write(lease(1), rpc_id, ack_id, b"key", b"", plain()))
    };
    let last = MAX_RPC_ID;
    assert_eq!(call(&mut driver, last - 4, last - 5).0, Status::Ok);
    assert_eq!(call(&mut driver, last, last - 1).0, Status::Ok);
    assert_eq!(driver.shard.stats().rpc_results, 1);
    for beyond in [last + 1, u64::MAX] {
        let refused = call(&mut driver, beyond, beyond - 1).0;
        assert_eq!(refused, Status::RequestFormatError);
    }
    assert_eq!(driver.shard.stats().rpc_results, 1);
    assert_eq!(driver.shard.audit(), Ok(()));
}

/// What nobody can be done with: an RPC that has yet to begin. Whoever says so is not the client.
#[test]
fn an_acknowledgement_that_cannot_be_true_is_not_taken() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    assert_eq!(driver.write(1, b"key", b"1"), (Status::Ok, 1));
    assert_eq!(driver.write(2, b"key", b"2"), (Status::Ok, 2));
    let forged = [(3, u64::MAX), (3, 3), (u64::MAX, u64::MAX), (0, 7)];
    for (rpc_id, ack_id) in forged.into_iter().chain([(u64::MAX, u64::MAX - 1)]) {
        let requests = [
            write(lease(1), rpc_id, ack_id, b"key", b"", plain()),
            remove(lease(1), rpc_id, ack_id, b"key", plain()),
        ];
        for request in requests {
            let refused = driver.simple(&request).0;
            let expected = [Status::StaleRpc, Status::RequestFormatError];
            assert!(
                expected.contains(&refused),
                "{rpc_id} {ack_id}: {refused:?}"
            );
        }
    }
    assert_eq!(driver.shard.stats().rpc_results, 2, "both are still needed");
    assert_eq!(driver.write(1, b"key", b"1"), (Status::Ok, 1), "once");
    assert_eq!(driver.write(3, b"key", b"3"), (Status::Ok, 3));
    assert_eq!(driver.shard.audit(), Ok(()));
}

/// The lease is looked at before anything is taken in that comes with it.
#[test]
fn an_ended_lease_acknowledges_nothing() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let short = Lease {
        expiration_ns: 1500,
        ..lease(1)
    };
    assert_eq!(
        driver.simple(&write(short, 1, 0, b"key", b"", plain())).0,
        Status::Ok
    );
    driver.order(coordinator::Kind::Ping(Ping {
        sequence: 1,
        cluster_time_ns: 2000,
        ..Default::default()
    }));
    let late = driver.simple(&write(short, 9, 8, b"key", b"", plain()));
    assert_eq!(late.0, Status::Retry, "the coordinator is asked");
    assert_eq!(driver.shard.stats().rpc_results, 1);
}

#[test]
fn clients_are_bounded() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for client in 1..=16 {
        let payload = write(lease(client), 1, 0, b"key", b"", plain());
        assert_eq!(driver.simple(&payload).0, Status::Ok);
    }
    let payload = write(lease(17), 1, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&payload).0, Status::Retry);
    assert_eq!(driver.read(b"key").1, 16);
}

/// The lease questions that the shard asked since the last call.
#[test]
fn results_of_all_clients_together_are_bounded() {
    let config = crate::Config {
        max_result_slots: 2 * 512,
        ..small(Durability::Unreplicated)
    };
    let mut driver = Driver::enlisted(config);
    // One client that never acknowledges takes its window, and no more than that.
    for rpc_id in 1..=512 {
        let status = driver
            .simple(&write(lease(1), rpc_id, 0, b"key", b"", plain()))
            .0;
        assert_eq!(status, Status::Ok, "RPC {rpc_id}");
    }
    // There is room for the first steps of 64 others, but not for a second window beside them.
    for client in 2..10 {
        assert_eq!(
            driver
                .simple(&write(lease(client), 1, 0, b"key", b"", plain()))
                .0,
            Status::Ok
        );
    }
    for rpc_id in 2..=8 {
        assert_eq!(
            driver
                .simple(&write(lease(2), rpc_id, 0, b"key", b"", plain()))
                .0,
            Status::Ok
        );
    }
    let ninth = write(lease(2), 9, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&ninth).0, Status::Retry);
    // A client that acknowledges goes on in the room that it has.
    let acknowledging = write(lease(2), 9, 4, b"key", b"", plain());
    assert_eq!(driver.simple(&acknowledging).0, Status::Ok);
    assert_eq!(
        driver
            .simple(&write(lease(1), 512, 0, b"key", b"", plain()))
            .0,
        Status::Ok
    );
}

fn questions(driver: &mut Driver) -> Vec<u64> {
    let messages = std::mem::take(&mut driver.said.messages);
    let asked = messages.into_iter().filter_map(|message| match message {
        shard::Kind::LeaseQuery(query) => Some(query.lease_id),
        _ => None,
    });
    asked.collect()
}

fn answer(driver: &mut Driver, lease_id: u64, expiration_ns: u64, cluster_time_ns: u64) {
    driver.order(coordinator::Kind::LeaseAnswer(LeaseAnswer {
        lease_id,
        expiration_ns,
        cluster_time_ns,
    }));
}

#[test]
fn a_lease_that_looks_ended_is_asked_about_once_and_then_believed() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let old = Lease {
        id: 3,
        expiration_ns: 500,
        timestamp_ns: 0,
    };
    let payload = write(old, 1, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&payload).0, Status::Retry);
    assert_eq!(driver.simple(&payload).0, Status::Retry);
    assert_eq!(questions(&mut driver), [3]);
    answer(&mut driver, 3, 9000, 2000);
    assert_eq!(driver.simple(&payload), (Status::Ok, 1));

    let other = write(Lease { id: 4, ..old }, 1, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&other).0, Status::Retry);
    answer(&mut driver, 4, 0, 2000);
    assert_eq!(driver.simple(&other).0, Status::ExpiredLease);
    assert_eq!(questions(&mut driver), [4]);

    let none = write(Lease::default(), 1, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&none).0, Status::ExpiredLease);
    assert_eq!(driver.read(b"key").1, 1);
}

#[test]
fn a_question_is_asked_again_on_the_next_session() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let old = Lease {
        id: 3,
        expiration_ns: 500,
        timestamp_ns: 0,
    };
    let payload = write(old, 1, 0, b"key", b"", plain());
    driver.call(&payload);
    driver.shard.coordinator_lost(driver.now);
    assert_eq!(driver.simple(&payload).0, Status::Retry);
    assert_eq!(questions(&mut driver), [3], "nobody to ask the second time");
    driver.welcome(CLUSTER, driver.shard.server_id(), 1, &[WHOLE_TABLE]);
    driver.call(&payload);
    assert_eq!(questions(&mut driver), [3]);
}

#[test]
fn a_lease_that_is_said_to_last_for_ever_is_asked_about_all_the_same() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let endless = Lease {
        expiration_ns: u64::MAX,
        ..lease(1)
    };
    let payload = write(endless, 1, 0, b"key", b"", plain());
    assert_eq!(driver.simple(&payload), (Status::Ok, 1));
    let later_ns = 3_700_000_000_000;
    driver.now = Time(later_ns);
    driver.order(coordinator::Kind::Ping(Ping {
        sequence: 1,
        cluster_time_ns: later_ns,
        ..Default::default()
    }));
    driver.settle();
    assert_eq!(questions(&mut driver), [1]);
    answer(&mut driver, 1, 0, later_ns);
    assert_eq!(driver.shard.stats().clients, 0);
    assert_eq!(driver.simple(&payload).0, Status::ExpiredLease);
}

#[test]
fn records_of_clients_whose_lease_has_ended_go() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for rpc_id in 1..=3 {
        driver.write(rpc_id, b"key", b"");
    }
    let end_ns = lease(1).expiration_ns;
    driver.now = Time(end_ns);
    driver.order(coordinator::Kind::Ping(Ping {
        sequence: 1,
        cluster_time_ns: end_ns + 1,
        ..Default::default()
    }));
    driver.shard.tick(driver.now, &mut driver.said);
    assert_eq!(questions(&mut driver), [1]);
    // It was renewed: nothing is lost, and the client goes on.
    answer(&mut driver, 1, 2 * end_ns, end_ns + 2);
    assert_eq!(driver.write(3, b"key", b""), (Status::Ok, 3));

    driver.now = Time(2 * end_ns);
    driver.order(coordinator::Kind::Ping(Ping {
        sequence: 2,
        cluster_time_ns: 2 * end_ns + 1,
        ..Default::default()
    }));
    driver.settle();
    assert_eq!(questions(&mut driver), [1]);
    answer(&mut driver, 1, 0, 2 * end_ns + 2);
    let stats = driver.shard.stats();
    assert_eq!((stats.clients, stats.rpc_results), (0, 0));
    assert_eq!(driver.write(3, b"key", b"").0, Status::ExpiredLease);
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[derive(Clone, Debug)]
struct Call {
    client: u64,
    /// 0 writes anew; otherwise the how-manyth last unacknowledged RPC is sent again.
    repeat: usize,
    key: u8,
    is_remove: bool,
    acknowledge: bool,
}

fn any_call() -> impl Strategy<Value = Call> {
    (1u64..4, 0usize..4, 0u8..4, any::<bool>(), 0u8..4).prop_map(
        |(client, repeat, key, is_remove, acknowledge)| Call {
            client,
            repeat,
            key,
            is_remove,
            acknowledge: acknowledge == 0,
        },
    )
}

proptest! {
    /// Whatever is repeated in whatever order, with the cleaner moving records about: every RPC has one answer, and the
    /// objects are as if each had been sent once.
    #[test]
    fn repeats_change_nothing(calls in proptest::collection::vec(any_call(), 1..300)) {
        let mut config = small(Durability::Unreplicated);
        config.segment_bytes = 4096;
        config.log_bytes = 16 * 4096;
        let mut driver = Driver::enlisted(config);
        let mut model = std::collections::BTreeMap::<Vec<u8>, u64>::new();
        // By client: payloads and answers that are not acknowledged, and the last id.
        let mut outstanding: [Vec<(Vec<u8>, Vec<u8>)>; 4] = Default::default();
        let mut last_ids = [0; 4];
        for call in calls {
            let client = call.client as usize;
            let sent = outstanding[client].len();
            if call.repeat > 0 && call.repeat <= sent {
                let (payload, reply) = outstanding[client][sent - call.repeat].clone();
                prop_assert_eq!(driver.call(&payload), reply);
                continue;
            }
            if call.acknowledge || sent >= 500 {
                outstanding[client].clear();
            }
            last_ids[client] += 1;
            let rpc_id = last_ids[client];
            let ack_id = rpc_id - 1 - outstanding[client].len() as u64;
            let key = [call.key];
            let payload = if call.is_remove {
                remove(lease(call.client), rpc_id, ack_id, &key, plain())
            } else {
                write(lease(call.client), rpc_id, ack_id, &key, &[0; 200], plain())
            };
            let reply = driver.call(&payload);
            let response = wire::rpc::WriteResponse::decode(&reply).unwrap();
            prop_assert_eq!(response.status, Status::Ok);
            let old = model.get(&key[..]).copied().unwrap_or(0);
            if call.is_remove {
                prop_assert_eq!(response.version, old);
                model.remove(&key[..]);
            } else {
                prop_assert!(response.version > old);
                model.insert(key.to_vec(), response.version);
            }
            outstanding[client].push((payload, reply));
            driver.settle();
        }
        for key in 0..4 {
            let version = driver.read(&[key]).1;
            prop_assert_eq!(version, model.get(&[key][..]).copied().unwrap_or(0));
        }
        prop_assert_eq!(driver.shard.audit(), Ok(()));
    }
}
