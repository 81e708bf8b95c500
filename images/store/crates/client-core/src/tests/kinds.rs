//! Multi-ops of every kind: what holds for multi-writes holds for all of them.

use super::*;
use wire::keys::KeysAndValue;
use wire::rpc::{
    IncrementResponse, MultiIncrementPart, MultiKind, MultiReadPart, MultiReadPartResponse,
    MultiRemovePart, MultiRequest, MultiResponse, MultiWritePart, RequestPart, ResponsePart,
};

const MULTI_OP: u8 = 25;
const HALF: u64 = 1 << 63;
const KINDS: [MultiKind; 4] = [
    MultiKind::Increment,
    MultiKind::Read,
    MultiKind::Remove,
    MultiKind::Write,
];

type Key = [u8; 4];

fn keys(count: u32) -> Vec<Key> {
    (0..count).map(u32::to_le_bytes).collect()
}

fn start(script: &mut Script, kind: MultiKind, keys: &[Key]) -> OperationId {
    let by_key: Vec<KeyObject<'_>> = keys
        .iter()
        .map(|key| KeyObject {
            table: TABLE,
            key,
            rules: NO_RULES,
        })
        .collect();
    let multi = match kind {
        MultiKind::Read => Multi::reads(&by_key),
        MultiKind::Remove => Multi::removes(&by_key),
        MultiKind::Write => Multi::writes(
            &by_key
                .iter()
                .map(|&KeyObject { table, key, rules }| WriteObject {
                    table,
                    key,
                    value: key,
                    rules,
                })
                .collect::<Vec<_>>(),
        ),
        MultiKind::Increment => Multi::increments(
            &by_key
                .iter()
                .map(|&KeyObject { table, key, rules }| IncrementObject {
                    table,
                    key,
                    by: Increment {
                        int64: i64::from(number(key)),
                        double: 0.0,
                    },
                    rules,
                })
                .collect::<Vec<_>>(),
        ),
    };
    script
        .client
        .multi(script.now, multi.unwrap(), &mut script.out)
}

fn number(key: &[u8]) -> u32 {
    u32::from_le_bytes(key.try_into().unwrap())
}

/// The keys in a request, which is of this kind.
fn keys_of(kind: MultiKind, sent: &Sent) -> Vec<Vec<u8>> {
    fn of<'a, P: RequestPart<'a>>(payload: &'a [u8]) -> Vec<Vec<u8>> {
        let request = MultiRequest::<P>::decode(payload).unwrap();
        request
            .parts()
            .map(|part| part.place().1.to_vec())
            .collect()
    }
    assert_eq!(MultiKind::of_request(&sent.payload), Ok(kind));
    match kind {
        MultiKind::Read => of::<MultiReadPart<'_>>(&sent.payload),
        MultiKind::Write => of::<MultiWritePart<'_>>(&sent.payload),
        MultiKind::Remove => of::<MultiRemovePart<'_>>(&sent.payload),
        MultiKind::Increment => of::<MultiIncrementPart<'_>>(&sent.payload),
    }
}

fn answer(script: &mut Script, kind: MultiKind, sent: &Sent, statuses: &[Status]) {
    script.answer(sent, &response(kind, sent, statuses));
}

/// An answer with as many parts as there are statuses, at most: versions are 100 more than the numbers in the keys, refused ones
/// 7, values the keys, sums the numbers.
fn response(kind: MultiKind, sent: &Sent, statuses: &[Status]) -> Vec<u8> {
    fn all<'a, P: ResponsePart<'a>>(parts: Vec<P>) -> Vec<u8> {
        encode(|out| MultiResponse::encode_parts(Status::Ok, &parts, out))
    }
    let keys = keys_of(kind, sent);
    let parts = keys.iter().zip(statuses).map(|(key, &status)| {
        let version = match status {
            Status::Ok => 100 + u64::from(number(key)),
            _ => 7,
        };
        (key, status, version)
    });
    match kind {
        MultiKind::Write | MultiKind::Remove => all(parts
            .map(|(_, status, version)| WriteResponse { status, version })
            .collect()),
        MultiKind::Increment => all(parts
            .map(|(key, status, version)| IncrementResponse {
                status,
                version,
                new_value: u64::from(number(key)).to_le_bytes(),
            })
            .collect()),
        MultiKind::Read => all(parts
            .map(|(key, status, version)| MultiReadPartResponse {
                status,
                version,
                object: (status == Status::Ok).then(|| KeysAndValue::single(key, key).unwrap()),
            })
            .collect()),
    }
}

/// The versions that came out; values and sums are held against the numbers in the keys.
fn versions(kind: MultiKind, result: Result<Owned, Error>) -> Vec<Result<u64, Error>> {
    match (kind, result) {
        (MultiKind::Write | MultiKind::Remove, Ok(Owned::Versions(all))) => all,
        (MultiKind::Increment, Ok(Owned::IncrementedAll(all))) => {
            let version = |(version, sum)| {
                assert_eq!(u64::from_le_bytes(sum), version - 100);
                version
            };
            all.into_iter().map(|one| one.map(version)).collect()
        }
        (MultiKind::Read, Ok(Owned::Objects(all))) => {
            let version = |(version, object): (u64, &[u8])| {
                let object = KeysAndValue::parse(object).unwrap();
                assert_eq!(object.primary_key(), object.value());
                assert_eq!(u64::from(number(object.value())), version - 100);
                version
            };
            all.iter().map(|one| one.map(version)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn completed(script: &mut Script, kind: MultiKind, id: OperationId) -> Vec<Result<u64, Error>> {
    let (done, result) = script.completed();
    assert_eq!(done, id);
    versions(kind, result)
}

#[test]
fn parts_go_to_their_servers_and_come_back_in_order() {
    for kind in KINDS {
        let mut script = Script::new();
        let keys = keys(45);
        let id = start(&mut script, kind, &keys);
        script.expect_connect(COORDINATOR);
        script.answer_last(&config(vec![
            tablet(0, HALF - 1, Some("tcp:host=l,port=1")),
            tablet(HALF, u64::MAX, Some("tcp:host=h,port=2")),
        ]));
        let mut high = None;
        while let Some((session, locator)) = script.out.connects.pop_front() {
            if locator.contains("host=h") {
                high = Some(session);
            }
            script
                .client
                .connected(script.now, session, &mut script.out);
        }
        let mut requests = [0, 0];
        // The last request is answered first.
        while let Some(sent) = script.out.sent.pop_back() {
            let is_high = Some(sent.session) == high;
            requests[usize::from(is_high)] += 1;
            for key in keys_of(kind, &sent) {
                assert_eq!(wire::hash::key_hash(TABLE, &key) >= HALF, is_high);
            }
            answer(&mut script, kind, &sent, &[Status::Ok; 20]);
        }
        assert!(requests[0] > 0 && requests[1] > 0, "{requests:?}");
        let expected: Vec<_> = (100..145).map(Ok).collect();
        assert_eq!(completed(&mut script, kind, id), expected, "{kind:?}");
        script.quiet();
    }
}

#[test]
fn only_parts_that_had_no_outcome_go_out_again() {
    for kind in KINDS {
        let mut script = Script::ready();
        script.now += 20 * MILLI;
        let id = start(&mut script, kind, &keys(5));
        let sent = script.take_sent(MULTI_OP);
        // The fifth part is missing.
        let statuses = [
            Status::Ok,
            Status::Retry,
            Status::WrongVersion,
            Status::UnknownTablet,
        ];
        answer(&mut script, kind, &sent, &statuses);
        script.quiet();
        assert!(script.wait() >= MILLI, "RETRY waits");
        script.answer_last(&whole("tcp:host=m,port=1"));
        let again = script.take_sent(MULTI_OP);
        let mut asked: Vec<u32> = keys_of(kind, &again)
            .iter()
            .map(|key| number(key))
            .collect();
        asked.sort_unstable();
        assert_eq!(asked, [1, 3, 4]);
        answer(&mut script, kind, &again, &[Status::Ok; 3]);
        let refused = Err(Error::Refused {
            status: Status::WrongVersion,
            version: 7,
        });
        let expected = [Ok(100), Ok(101), refused, Ok(103), Ok(104)];
        assert_eq!(completed(&mut script, kind, id), expected, "{kind:?}");
        script.quiet();
    }
}

#[test]
fn what_a_short_answer_leaves_out_goes_out_again() {
    for kind in KINDS {
        let mut script = Script::ready();
        let id = start(&mut script, kind, &keys(6));
        for expected in [&[0, 1, 2, 3, 4, 5][..], &[2, 3, 4, 5], &[4, 5]] {
            let sent = script.take_sent(MULTI_OP);
            let asked: Vec<u32> = keys_of(kind, &sent).iter().map(|key| number(key)).collect();
            assert_eq!(asked, expected);
            answer(&mut script, kind, &sent, &[Status::Ok; 2]);
        }
        let expected: Vec<_> = (100..106).map(Ok).collect();
        assert_eq!(completed(&mut script, kind, id), expected, "{kind:?}");
    }
}

#[test]
fn a_part_that_is_cut_off_counts_as_missing() {
    for kind in KINDS {
        let mut script = Script::ready();
        let id = start(&mut script, kind, &keys(2));
        let sent = script.take_sent(MULTI_OP);
        let whole = response(kind, &sent, &[Status::Ok; 2]);
        script.answer(&sent, &whole[..whole.len() - 1]);
        let again = script.take_sent(MULTI_OP);
        assert_eq!(keys_of(kind, &again), [1u32.to_le_bytes()]);
        answer(&mut script, kind, &again, &[Status::Ok]);
        assert_eq!(completed(&mut script, kind, id), [Ok(100), Ok(101)]);
    }
}

#[test]
fn a_request_that_is_put_off_or_lost_goes_out_again_as_it_was() {
    for kind in KINDS {
        let mut script = Script::ready();
        script.now += 20 * MILLI;
        let id = start(&mut script, kind, &keys(3));
        let first = script.take_sent(MULTI_OP);
        script.answer(&first, &retry(3000, 3000));
        assert_eq!(script.wait(), 3 * MILLI);
        let second = script.take_sent(MULTI_OP);
        assert_eq!(second.payload, first.payload);
        script
            .client
            .disconnected(script.now, second.session, &mut script.out);
        script.answer_last(&whole("tcp:host=n,port=2"));
        script.expect_connect("tcp:host=n,port=2");
        let third = script.take_sent(MULTI_OP);
        assert_eq!(third.payload, first.payload, "{kind:?}");
        answer(&mut script, kind, &third, &[Status::Ok; 3]);
        assert!(completed(&mut script, kind, id).iter().all(Result::is_ok));
    }
}

#[test]
fn a_multi_op_that_is_given_up_sends_nothing_more() {
    for kind in KINDS {
        let mut script = Script::ready();
        let id = start(&mut script, kind, &keys(300));
        let first = script.take_sent(MULTI_OP);
        script.client.set_deadline(id, script.now + 5 * MILLI);
        script.out.sent.clear();
        script.wait();
        assert_eq!(script.completed(), (id, Err(Error::Deadline)));
        answer(&mut script, kind, &first, &[Status::Ok; 20]);
        script.quiet();
        assert_eq!(script.client.pending(), 0);
    }
}

#[test]
fn none_at_all_is_done_at_once() {
    for kind in KINDS {
        let mut script = Script::new();
        let id = start(&mut script, kind, &[]);
        assert_eq!(completed(&mut script, kind, id), []);
        script.quiet();
    }
}
