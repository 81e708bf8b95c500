//! Caches, leases, RPC ids, limits.

use super::*;

#[test]
fn a_known_table_costs_one_message() {
    let mut script = Script::ready();
    let first = script.read(b"a");
    let second = script.read(b"b");
    let (to_first, to_second) = (script.take_sent(13), script.take_sent(13));
    assert_eq!(to_first.session, to_second.session);
    assert_eq!(to_second.nonce, to_first.nonce + 1);
    // In any order.
    script.answer(&to_second, &object(1, b"2"));
    script.answer(&to_first, &object(1, b"1"));
    assert_eq!(script.completed().0, second);
    assert_eq!(script.completed().0, first);
    // An answer that nobody waits for is dropped.
    script.answer(&to_first, &object(1, b"1"));
    script.quiet();
}

#[test]
fn each_key_goes_to_the_server_of_its_hash() {
    let mut script = Script::new();
    let half = 1u64 << 63;
    let hash = |key: &[u8]| wire::hash::key_hash(TABLE, key);
    let low = (0u8..).find(|key| hash(&[*key]) < half).unwrap();
    let high = (0u8..).find(|key| hash(&[*key]) >= half).unwrap();
    script.read(&[low]);
    script.expect_connect(COORDINATOR);
    script.read(&[high]);
    assert_eq!(script.out.sent.len(), 1, "one fetch serves both");
    script.answer_last(&config(vec![
        tablet(half, u64::MAX, Some("tcp:host=h,port=2")),
        tablet(0, half - 1, Some("tcp:host=l,port=1")),
    ]));
    let to_low = script.expect_connect("tcp:host=l,port=1");
    assert_eq!(script.take_sent(13).session, to_low);
    let to_high = script.expect_connect("tcp:host=h,port=2");
    assert_eq!(script.take_sent(13).session, to_high);
}

#[test]
fn unknown_tablet_fetches_the_table_again_but_not_too_often() {
    let mut script = Script::ready();
    script.read(b"k");
    script.answer_last(&version(Status::UnknownTablet, 0));
    assert_eq!(script.wait(), 10 * MILLI, "counted from the last fetch");
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=n,port=2"));
    script.expect_connect("tcp:host=n,port=2");
    script.expect_sent(13);
    script.now += 50 * MILLI;
    script.answer_last(&version(Status::UnknownTablet, 0));
    script.expect_sent(18);
}

#[test]
fn only_the_config_that_misled_is_dropped() {
    let mut script = Script::ready();
    script.now += 50 * MILLI;
    script.read(b"a");
    script.read(b"b");
    let (a, b) = (script.take_sent(13), script.take_sent(13));
    script.answer(&a, &version(Status::UnknownTablet, 0));
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=m,port=1"));
    let a = script.take_sent(13);
    // The other request was sent by the old config: it finds the new one already there.
    script.answer(&b, &version(Status::UnknownTablet, 0));
    script.take_sent(13);
    script.answer(&a, &object(1, b""));
    assert!(script.completed().1.is_ok());
    script.quiet();
}

#[test]
fn a_recovering_tablet_is_polled() {
    let mut script = Script::new();
    let id = script.read(b"k");
    script.expect_connect(COORDINATOR);
    for _ in 0..3 {
        script.expect_sent(18);
        script.answer_last(&config(vec![tablet(0, u64::MAX, None)]));
        script.quiet();
        assert_eq!(script.wait(), 10 * MILLI);
    }
    script.answer_last(&whole("tcp:host=m,port=1"));
    script.expect_connect("tcp:host=m,port=1");
    script.answer_last(&object(1, b""));
    assert_eq!(script.completed().0, id);
}

#[test]
fn a_table_that_is_not_there_is_said_to_all_and_asked_for_again() {
    let mut script = Script::new();
    script.read(b"a");
    script.read(b"b");
    script.expect_connect(COORDINATOR);
    script.answer_last(&config(Vec::new()));
    for _ in 0..2 {
        assert_eq!(
            script.completed().1,
            Err(Error::status(Status::TableDoesntExist))
        );
    }
    script.quiet();
    script.read(b"a");
    assert_eq!(script.wait(), 10 * MILLI);
    script.expect_sent(18);
}

#[test]
fn rpc_ids_count_up_and_acknowledge() {
    let mut script = Script::ready();
    script.write(b"a", b"1");
    script.write(b"b", b"2");
    let (first, second) = (script.take_sent(14), script.take_sent(14));
    assert_eq!((ids(&first), ids(&second)), ((9, 1, 0), (9, 2, 0)));
    script.answer(&second, &version(Status::Ok, 1));
    script
        .client
        .remove(script.now, TABLE, b"c", &NO_RULES, &mut script.out);
    assert_eq!(ids(&script.take_sent(15)), (9, 3, 0));
    script.answer(&first, &version(Status::Ok, 1));
    script.write(b"d", b"");
    assert_eq!(ids(&script.take_sent(14)), (9, 4, 2));
}

#[test]
fn at_most_512_rpc_ids_are_past_the_lowest_unfinished() {
    let mut script = Script::ready();
    let operations: Vec<_> = (0..515).map(|_| script.write(b"k", b"v")).collect();
    assert_eq!(script.out.sent.len(), 512);
    let lowest = script.take_sent(14);
    for _ in 0..511 {
        script.answer_last(&version(Status::Ok, 1));
    }
    assert_eq!(script.out.sent.len(), 0);
    assert!(
        script
            .client
            .cancel(script.now, operations[513], &mut script.out)
    );
    script.answer(&lowest, &version(Status::Ok, 1));
    let ids: Vec<_> = script.out.sent.iter().map(ids).collect();
    assert_eq!(
        ids,
        [(9, 513, 512), (9, 514, 512)],
        "the cancelled one is skipped"
    );
}

#[test]
fn a_lease_is_renewed_in_time_and_not_used_at_its_end() {
    let mut script = Script::ready();
    assert_eq!(script.wait(), Duration::from_secs(900));
    let renewal = script.take_sent(60);
    assert_eq!(u64_at(&renewal.payload, 4), 9);
    script.write(b"k", b"v");
    let sent = script.take_sent(14);
    assert_eq!(ids(&sent).0, 9, "still good");
    script.answer(&sent, &version(Status::Ok, 1));
    assert!(script.completed().1.is_ok());
    script.now = Time(1740 * SECOND_NS);
    script.write(b"k", b"v");
    assert_eq!(script.out.sent.len(), 0, "less than a minute is left");
    // The lease had ended: the coordinator gives a new one.
    script.answer(&renewal, &lease(10, 2000));
    assert_eq!(ids(&script.take_sent(14)), (10, 2, 1));
}

#[test]
fn a_lease_that_has_ended_is_replaced_before_the_next_write() {
    let mut script = Script::ready();
    script.write(b"k", b"v");
    script.answer_last(&rpc::status_bytes(Status::ExpiredLease));
    assert_eq!(
        script.completed().1,
        Err(Error::status(Status::ExpiredLease))
    );
    script.write(b"k", b"v");
    let renewal = script.take_sent(60);
    assert_eq!(u64_at(&renewal.payload, 4), 9);
    script.answer(&renewal, &lease(10, 0));
    assert_eq!(ids(&script.take_sent(14)), (10, 2, 1));
}

#[test]
fn a_refused_lease_fails_who_waits_and_a_put_off_one_does_not() {
    let mut script = Script::new();
    let id = script.write(b"k", b"v");
    script.expect_connect(COORDINATOR);
    script.expect_sent(60);
    script.answer_last(&retry(5000, 5000));
    assert_eq!(script.wait(), 5 * MILLI);
    script.expect_sent(60);
    script.answer_last(&rpc::status_bytes(Status::InternalError));
    assert_eq!(
        script.completed(),
        (id, Err(Error::status(Status::InternalError)))
    );
}

#[test]
fn the_number_of_operations_is_bounded() {
    let mut script = Script::with(COORDINATOR, |config| config.max_operations = 2);
    script.read(b"a");
    script.read(b"b");
    let third = script.read(b"c");
    assert_eq!(script.completed(), (third, Err(Error::TooManyOperations)));
    assert_eq!(script.client.pending(), 2);
}

#[test]
fn what_cannot_be_sent_is_refused_at_once() {
    let mut script = Script::ready();
    let (key, value) = (vec![0; 65_536], vec![0; (1 << 20) + 1]);
    script.read(b"");
    script.read(&key);
    script.write(b"k", &value);
    script
        .client
        .create_table(script.now, b"a\0b", 1, &mut script.out);
    for _ in 0..4 {
        assert!(matches!(script.completed().1, Err(Error::Invalid(_))));
    }
    script.quiet();
    assert_eq!(script.client.pending(), 0);
}

#[test]
fn a_deadline_ends_an_operation_and_a_late_answer_is_dropped() {
    let mut script = Script::ready();
    let id = script.write(b"k", b"v");
    let sent = script.take_sent(14);
    script.client.set_deadline(id, script.now + 20 * MILLI);
    assert_eq!(script.wait(), 20 * MILLI);
    assert_eq!(script.completed(), (id, Err(Error::Deadline)));
    script.answer(&sent, &version(Status::Ok, 1));
    script.quiet();
    script.write(b"k", b"v");
    assert_eq!(ids(&script.take_sent(14)), (9, 2, 1), "its id is done with");
}

#[test]
fn malformed_answers_are_errors() {
    let mut script = Script::ready();
    for answer in [&[][..], &[0, 0], &[0, 0, 0, 0], &[99, 0, 0, 0]] {
        script.read(b"k");
        script.answer_last(answer);
        assert_eq!(
            script.completed().1,
            Err(Error::status(Status::ResponseFormatError))
        );
    }
    // An error may be as short as its status.
    script.read(b"k");
    script.answer_last(&rpc::status_bytes(Status::WrongVersion));
    assert_eq!(
        script.completed().1,
        Err(Error::status(Status::WrongVersion))
    );
}

#[test]
fn control_operations_go_through_the_coordinator() {
    let mut script = Script::ready();
    script
        .client
        .log_message_all(script.now, 3, "hi", &mut script.out);
    let sent = script.take_sent(62);
    assert_eq!(&sent.payload[4..], b"\xf2\x03\0\0\x06\0\0\0\x03\0\0\0hi");
    let response = encode(|out| {
        rpc::ServerControlAllResponse {
            status: Status::Ok,
            server_count: 2,
            response_count: 1,
            responses: &[0; 16],
        }
        .encode(out);
    });
    script.answer(&sent, &response);
    assert_eq!(script.completed().1, Ok(Owned::Control(2, 1, vec![0; 16])));
}
