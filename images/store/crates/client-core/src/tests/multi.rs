//! Multi-writes.

use super::*;
use wire::rpc::{MultiWriteRequest, MultiWriteResponse};

const HALF: u64 = 1 << 63;

fn keys(count: u32) -> Vec<[u8; 4]> {
    (0..count).map(u32::to_le_bytes).collect()
}

fn start(script: &mut Script, keys: &[[u8; 4]]) -> OperationId {
    let objects: Vec<WriteObject<'_>> = keys
        .iter()
        .map(|key| WriteObject {
            table: TABLE,
            key,
            value: b"v",
            rules: NO_RULES,
        })
        .collect();
    script
        .client
        .multi_write(script.now, &objects, &mut script.out)
}

fn keys_of(sent: &Sent) -> Vec<Vec<u8>> {
    MultiWriteRequest::decode(&sent.payload)
        .unwrap()
        .parts()
        .map(|part| part.object.primary_key().to_vec())
        .collect()
}

fn parts(statuses: impl IntoIterator<Item = (Status, u64)>) -> Vec<u8> {
    let parts: Vec<_> = statuses
        .into_iter()
        .map(|(status, version)| WriteResponse { status, version })
        .collect();
    encode(|out| MultiWriteResponse::encode_parts(Status::Ok, &parts, out))
}

/// Every object's version is the number in its key, plus one.
fn all_written(sent: &Sent) -> Vec<u8> {
    parts(keys_of(sent).iter().map(|key| {
        let number = u32::from_le_bytes(key[..].try_into().unwrap());
        (Status::Ok, u64::from(number) + 1)
    }))
}

#[test]
fn twenty_objects_a_request_ten_requests_at_a_time() {
    let mut script = Script::ready();
    let keys = keys(450);
    let id = start(&mut script, &keys);
    assert_eq!(script.out.sent.len(), 10);
    assert_eq!(keys_of(&script.out.sent[0]), keys[..20]);
    let mut requests = 0;
    while !script.out.sent.is_empty() {
        assert!(script.out.sent.len() <= 10);
        let sent = script.take_sent(25);
        assert!(keys_of(&sent).len() <= 20);
        requests += 1;
        script.answer(&sent, &all_written(&sent));
    }
    assert_eq!(requests, 23);
    let versions = (1..=450).map(Ok).collect();
    assert_eq!(script.completed(), (id, Ok(Owned::Versions(versions))));
}

#[test]
fn objects_are_sorted_by_their_servers() {
    let mut script = Script::new();
    let keys = keys(30);
    start(&mut script, &keys);
    script.expect_connect(COORDINATOR);
    script.answer_last(&config(vec![
        tablet(0, HALF - 1, Some("tcp:host=l,port=1")),
        tablet(HALF, u64::MAX, Some("tcp:host=h,port=2")),
    ]));
    let mut sessions = [0, 0];
    for _ in 0..2 {
        let (session, locator) = script.out.connects.pop_front().unwrap();
        sessions[usize::from(locator.contains("host=h"))] = session;
        script
            .client
            .connected(script.now, session, &mut script.out);
    }
    let mut seen = 0;
    while let Some(sent) = script.out.sent.pop_front() {
        for key in keys_of(&sent) {
            let is_high = wire::hash::key_hash(TABLE, &key) >= HALF;
            assert_eq!(sent.session, sessions[usize::from(is_high)]);
            seen += 1;
        }
        script.answer(&sent, &all_written(&sent));
    }
    assert_eq!(seen, 30);
    assert!(matches!(script.completed().1, Ok(Owned::Versions(all)) if all.len() == 30));
}

#[test]
fn what_a_short_answer_leaves_out_is_sent_again() {
    let mut script = Script::ready();
    let keys = keys(3);
    let id = start(&mut script, &keys);
    script.answer_last(&parts([(Status::Ok, 1)]));
    let again = script.take_sent(25);
    assert_eq!(keys_of(&again), keys[1..]);
    // An answer without any part makes no progress: not again at once.
    script.answer(&again, &parts([]));
    script.quiet();
    assert!(script.wait() >= MILLI);
    script.answer_last(&parts([(Status::Ok, 2), (Status::Ok, 3)]));
    assert_eq!(
        script.completed(),
        (id, Ok(Owned::Versions(vec![Ok(1), Ok(2), Ok(3)])))
    );
}

#[test]
fn each_part_has_its_own_fate() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let keys = keys(4);
    let id = start(&mut script, &keys);
    script.answer_last(&parts([
        (Status::Ok, 1),
        (Status::Retry, 0),
        (Status::WrongVersion, 8),
        (Status::UnknownTablet, 0),
    ]));
    script.quiet();
    assert!(script.wait() >= MILLI, "RETRY waits");
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=m,port=1"));
    let mut again = script.take_sent(25);
    assert_eq!(keys_of(&again).len(), 2);
    script.answer(&again, &retry(7000, 7000));
    assert_eq!(script.wait(), 7 * MILLI);
    again = script.take_sent(25);
    script.answer(&again, &all_written(&again));
    let refused = Err(Error::Refused {
        status: Status::WrongVersion,
        version: 8,
    });
    assert_eq!(
        script.completed(),
        (id, Ok(Owned::Versions(vec![Ok(1), Ok(2), refused, Ok(4)])))
    );
}

#[test]
fn a_lost_connection_sends_all_its_objects_again() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let keys = keys(25);
    start(&mut script, &keys);
    let session = script.out.sent[0].session;
    script.out.sent.clear();
    script
        .client
        .disconnected(script.now, session, &mut script.out);
    script.answer_last(&whole("tcp:host=n,port=1"));
    script.expect_connect("tcp:host=n,port=1");
    let mut seen = 0;
    while let Some(sent) = script.out.sent.pop_front() {
        seen += keys_of(&sent).len();
        script.answer(&sent, &all_written(&sent));
    }
    assert_eq!(seen, 25);
    assert!(
        matches!(script.completed().1, Ok(Owned::Versions(all)) if all.iter().all(Result::is_ok))
    );
}

#[test]
fn a_table_that_is_not_there_fails_its_objects_only() {
    let mut script = Script::ready();
    let objects = [TABLE, TableId(8)].map(|table| WriteObject {
        table,
        key: b"k",
        value: b"",
        rules: NO_RULES,
    });
    script
        .client
        .multi_write(script.now, &objects, &mut script.out);
    let fetch = script.take_sent(18);
    script.answer_last(&parts([(Status::Ok, 4)]));
    script.answer(&fetch, &config(Vec::new()));
    let missing = Err(Error::status(Status::TableDoesntExist));
    assert_eq!(
        script.completed().1,
        Ok(Owned::Versions(vec![Ok(4), missing]))
    );
}

#[test]
fn none_and_a_refused_request_complete_too() {
    let mut script = Script::ready();
    start(&mut script, &[]);
    assert_eq!(script.completed().1, Ok(Owned::Versions(Vec::new())));
    start(&mut script, &keys(2));
    script.answer_last(&rpc::status_bytes(Status::UnimplementedRequest));
    let refused = || Err(Error::status(Status::UnimplementedRequest));
    assert_eq!(
        script.completed().1,
        Ok(Owned::Versions(vec![refused(), refused()]))
    );
}

#[test]
fn a_request_stays_within_the_largest_size() {
    let mut script = Script::ready();
    let value = vec![0; 1 << 20];
    let keys = keys(10);
    let objects: Vec<WriteObject<'_>> = keys
        .iter()
        .map(|key| WriteObject {
            table: TABLE,
            key,
            value: &value,
            rules: NO_RULES,
        })
        .collect();
    script
        .client
        .multi_write(script.now, &objects, &mut script.out);
    let mut seen = 0;
    while let Some(sent) = script.out.sent.pop_front() {
        assert!(sent.payload.len() <= rpc::MAX_RPC_BYTES);
        seen += keys_of(&sent).len();
        script.answer(&sent, &all_written(&sent));
    }
    assert_eq!(seen, 10);
}
