//! Captured bytes, the order of the checks, round trips, and bytes that nobody would send.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ids::{ServerId, TableId};
use crate::keys::KeysAndValue;
use crate::proto;
use prost::Message as _;

const CAPTURED: &str = include_str!("../../testdata/captured.txt");

/// Captured payloads of one kind, in order.
fn captured(kind: &str, rpc: &str) -> Vec<Vec<u8>> {
    let lines = CAPTURED.lines().filter(|line| !line.starts_with('#'));
    let found: Vec<_> = lines
        .filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [line_kind, _peer, _nonce, line_rpc, hex] = words[..] else {
                assert_eq!(line, "");
                return None;
            };
            (line_kind == kind && line_rpc == rpc).then(|| bytes_of_hex(hex))
        })
        .collect();
    assert!(!found.is_empty(), "no {kind} {rpc}");
    found
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0.iter();
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// Decodes every captured message of a kind, checks that it encodes to the same bytes, and calls `check` with all of them.
macro_rules! check_captured {
    ($kind:literal, $rpc:literal, $type:ident, $check:expr) => {{
        let payloads = captured($kind, $rpc);
        let decoded: Vec<_> = payloads
            .iter()
            .map(|payload| {
                let message = $type::decode(payload).unwrap();
                assert_eq!(encoded(|out| message.encode(out)), *payload);
                message
            })
            .collect();
        let check: fn(&[$type]) = $check;
        check(&decoded);
    }};
}

#[test]
fn captured_table_messages() {
    check_captured!("request", "CREATE_TABLE", CreateTableRequest, |all| {
        assert_eq!(
            all,
            [CreateTableRequest {
                name: b"cap",
                server_span: 1
            }]
        );
    });
    check_captured!("response", "CREATE_TABLE", CreateTableResponse, |all| {
        assert_eq!(all[0].table_id, TableId(1));
    });
    check_captured!("request", "GET_TABLE_ID", GetTableIdRequest, |all| {
        assert_eq!(all[0].name, b"cap");
        assert_eq!(all[1].name, b"nope");
    });
    check_captured!("response", "GET_TABLE_ID", GetTableIdResponse, |all| {
        assert_eq!(all[0].table_id, TableId(1));
        assert_eq!(all[1].status, Status::TableDoesntExist);
    });
    check_captured!("request", "DROP_TABLE", DropTableRequest, |all| {
        assert_eq!(all[0].name, b"cap");
    });
    check_captured!("response", "DROP_TABLE", DropTableResponse, |all| {
        assert_eq!(all[0].status, Status::Ok);
    });
    check_captured!("request", "RENEW_LEASE", RenewLeaseRequest, |all| {
        assert_eq!(all[0].lease_id, 0);
    });
    check_captured!("response", "RENEW_LEASE", RenewLeaseResponse, |all| {
        let lease = all[0].lease;
        assert_eq!(lease.id, 1);
        assert_eq!(lease.expiration_ns - lease.timestamp_ns, 1_800_000_000_000);
    });
}

#[test]
fn captured_table_configs_and_server_lists() {
    check_captured!(
        "request",
        "GET_TABLE_CONFIG",
        GetTableConfigRequest,
        |all| {
            assert!(all.iter().all(|request| request.table_id == TableId(1)));
        }
    );
    check_captured!(
        "response",
        "GET_TABLE_CONFIG",
        GetTableConfigResponse,
        |all| {
            let config = proto::TableConfig::decode(all[0].table_config).unwrap();
            assert_eq!(config.encode_to_vec(), all[0].table_config);
            let tablet = &config.tablet[0];
            assert_eq!(tablet.end_key_hash, u64::MAX);
            assert_eq!(tablet.state(), proto::TabletState::Normal);
            let locator = tablet.service_locator.as_deref();
            assert_eq!(locator, Some("tcp:host=127.0.0.1,port=11101"));
            assert_eq!(all.last().unwrap().table_config, b"");
        }
    );
    let list = &captured("response", "GET_SERVER_LIST")[0][8..];
    let decoded = proto::ServerList::decode(list).unwrap();
    assert_eq!(decoded.encode_to_vec(), list);
    assert_eq!(decoded.server[0].services, 9);
}

#[test]
fn captured_object_messages() {
    check_captured!("request", "READ", ReadRequest, |all| {
        assert_eq!(all[0].key, b"abc");
        assert_eq!(all[0].rules, RejectRules::default());
    });
    check_captured!("response", "READ", ReadResponse, |all| {
        assert_eq!(all[0].value, b"hello");
        assert_eq!(
            (all[1].status, all[1].version),
            (Status::ObjectDoesntExist, 0)
        );
        assert_eq!(all[3].status, Status::UnknownTablet);
    });
    check_captured!("request", "WRITE", WriteRequest, |all| {
        assert_eq!(all[0].object.primary_key(), b"abc");
        assert_eq!(all[1].object.value(), b"hello2");
        assert_eq!((all[1].rpc_id, all[1].ack_id), (2, 1));
        assert!(all[2].rules.exists);
        assert_eq!(all[0].lease.id, 1);
        assert_eq!(all.last().unwrap().object.key_count(), 2);
    });
    check_captured!("response", "WRITE", WriteResponse, |all| {
        assert_eq!((all[2].status, all[2].version), (Status::ObjectExists, 2));
    });
    check_captured!("request", "REMOVE", RemoveRequest, |all| {
        assert_eq!(
            (all[0].key, all[0].rpc_id, all[0].ack_id),
            (&b"abc"[..], 5, 4)
        );
    });
    check_captured!("response", "REMOVE", RemoveResponse, |all| {
        assert_eq!((all[0].version, all[1].version), (2, 0));
    });
}

#[test]
fn captured_increments_and_keys_with_values() {
    check_captured!("request", "INCREMENT", IncrementRequest, |all| {
        assert_eq!((all[0].key, all[0].by), (&b"ctr"[..], Increment::int64(5)));
        assert_eq!((all[0].rpc_id, all[0].ack_id), (4, 3));
    });
    check_captured!("response", "INCREMENT", IncrementResponse, |all| {
        assert_eq!((all[0].version, all[0].value), (2, 5i64.to_le_bytes()));
    });
    check_captured!(
        "request",
        "READ_KEYS_AND_VALUE",
        ReadKeysAndValueRequest,
        |all| assert_eq!(all[0].key, b"abc")
    );
    check_captured!(
        "response",
        "READ_KEYS_AND_VALUE",
        ReadKeysAndValueResponse,
        |all| {
            let object = KeysAndValue::single(b"abc", b"hello2").unwrap();
            assert_eq!((all[0].version, all[0].object), (2, Some(object)));
        }
    );
}

/// Decodes a captured multi-op, and builds the same bytes from its parts.
macro_rules! check_multi {
    ($number:literal, $request:ident, $response:ident) => {{
        let payload = captured("request", "MULTI_OP").remove($number);
        let request = $request::decode(&payload).unwrap();
        assert_eq!(encoded(|out| request.encode(out)), payload);
        let built = encoded(|out| $request::encode_parts(request.parts(), out));
        assert_eq!(built, payload);
        let payload = captured("response", "MULTI_OP").remove($number);
        let response = $response::decode(&payload).unwrap();
        assert_eq!(response.parts().len(), request.parts().len());
        assert_eq!(encoded(|out| response.encode(out)), payload);
        let built = encoded(|out| $response::encode_parts(Status::Ok, response.parts(), out));
        assert_eq!(built, payload);
    }};
}

#[test]
fn captured_multi_ops() {
    check_multi!(0, MultiWriteRequest, MultiWriteResponse);
    check_multi!(1, MultiReadRequest, MultiReadResponse);
    check_multi!(2, MultiIncrementRequest, MultiIncrementResponse);
    check_multi!(3, MultiRemoveRequest, MultiRemoveResponse);

    let requests = captured("request", "MULTI_OP");
    let kinds = requests
        .iter()
        .map(|payload| MultiKind::of_request(payload));
    let expected = [
        MultiKind::Write,
        MultiKind::Read,
        MultiKind::Increment,
        MultiKind::Remove,
    ];
    assert!(kinds.eq(expected.map(Ok)));
    let mut unknown = requests[0].clone();
    unknown[8] = 4;
    let unimplemented = Err(Status::UnimplementedRequest);
    assert_eq!(MultiKind::of_request(&unknown), unimplemented);
    for other in &requests[1..] {
        let other = MultiWriteRequest::decode(other).map(|_| ());
        assert_eq!(other, Err(Status::UnimplementedRequest));
    }

    let write = MultiWriteRequest::decode(&requests[0]).unwrap();
    let objects: Vec<_> = write.parts().map(|part| part.object).collect();
    let single = |key, value| KeysAndValue::single(key, value).unwrap();
    assert_eq!(objects, [single(b"m2", b"v2"), single(b"m1", b"v1")]);
    let increment = MultiIncrementRequest::decode(&requests[2]).unwrap();
    assert_eq!(increment.parts().next().unwrap().by, Increment::int64(2));

    let responses = captured("response", "MULTI_OP");
    let read = MultiReadResponse::decode(&responses[1]).unwrap();
    let objects: Vec<_> = read.parts().map(|part| part.object).collect();
    assert_eq!(objects, [None, Some(single(b"m1", b"v1"))]);
}

#[test]
fn every_cut_of_a_multi_op_is_noticed() {
    for payload in captured("request", "MULTI_OP") {
        for length in 0..payload.len() {
            let cut = &payload[..length];
            let decoded = [
                MultiReadRequest::decode(cut).map(drop),
                MultiWriteRequest::decode(cut).map(drop),
                MultiRemoveRequest::decode(cut).map(drop),
                MultiIncrementRequest::decode(cut).map(drop),
            ];
            assert!(!decoded.contains(&Ok(())), "{length} bytes");
            assert!(
                decoded.contains(&Err(Status::MessageTooShort)),
                "{length} bytes"
            );
        }
    }
}

#[test]
fn captured_enumerations() {
    check_captured!("request", "ENUMERATE", EnumerateRequest, |all| {
        assert_eq!((all[0].tablet_first_hash, all[0].state.len()), (0, 0));
        assert!(!all[1].keys_only);
    });
    let check: fn(&[EnumerateResponse<'_>]) = |all| {
        let objects: Vec<_> = all[0].objects().map(Result::unwrap).collect();
        let keys: Vec<_> = objects
            .iter()
            .map(|found| found.object.primary_key())
            .collect();
        assert_eq!(keys, [&b"m2"[..], b"abc", b"tw"]);
        assert_eq!(objects[1].version, 5);
        let again = encoded(|out| objects.iter().for_each(|object| object.encode(out)));
        assert_eq!(again, all[0].payload, "checksums too");
        let state = proto::EnumerationIterator::decode(all[0].state).unwrap();
        assert_eq!(state.encode_to_vec(), all[0].state);
        assert_eq!(state.frames[0].tablet_end_hash, u64::MAX);
        assert_eq!(state.frames[0].bucket_index, state.frames[0].num_buckets);
        assert_eq!((all[1].payload, all[1].tablet_first_hash), (&b""[..], 0));
    };
    check_captured!("response", "ENUMERATE", EnumerateResponse, check);
}

#[test]
fn enumerated_objects_that_do_not_add_up_end_the_list() {
    let whole = captured("response", "ENUMERATE").remove(0);
    let response = EnumerateResponse::decode(&whole).unwrap();
    for length in 0..response.payload.len() {
        let cut = EnumerateResponse {
            payload: &response.payload[..length],
            ..response
        };
        let objects: Vec<_> = cut.objects().collect();
        let complete = objects.iter().filter(|object| object.is_ok()).count();
        assert_eq!(
            complete,
            usize::from(length >= 35) + usize::from(length >= 74)
        );
        let ends_between = matches!(length, 0 | 35 | 74);
        assert_eq!(objects.len(), complete + usize::from(!ends_between));
    }
}

#[test]
fn numbers_go_up_as_their_type_says() {
    let by = Increment::int64(i64::MAX).apply(1i64.to_le_bytes());
    assert_eq!(i64::from_le_bytes(by), i64::MIN);
    let by = Increment::double(-0.5).apply(2f64.to_le_bytes());
    assert_eq!(f64::from_le_bytes(by), 1.5);
    assert_eq!(Increment::default().apply([7; 8]), [7; 8]);
    let both = Increment {
        int64: 1f64.to_bits() as i64,
        double: 2.0,
    };
    assert_eq!(f64::from_le_bytes(both.apply([0; 8])), 3.0);
}

#[test]
fn an_echo_is_no_longer_than_an_rpc() {
    let echo = |answer_bytes| {
        let data = b"ping";
        encoded(|out| EchoRequest { answer_bytes, data }.encode(out))
    };
    assert!(EchoRequest::decode(&echo(EchoResponse::MAX_BYTES)).is_ok());
    assert_eq!(
        EchoRequest::decode(&echo(EchoResponse::MAX_BYTES + 1)),
        Err(Status::RequestFormatError)
    );
}

#[test]
fn a_cut_multi_write_response_gives_its_whole_parts() {
    let whole = &captured("response", "MULTI_OP")[0];
    for (length, parts) in [(8, 0), (19, 0), (20, 1), (31, 1), (32, 2)] {
        let response = MultiWriteResponse::decode(&whole[..length]).unwrap();
        assert_eq!(response.parts().len(), parts);
    }
}

#[test]
fn generic_checks_come_in_the_protocols_order() {
    assert_eq!(header(&[0, 0, 0]), Err(Status::MessageTooShort));
    assert_eq!(header(&[81, 0, 9, 0]), Err(Status::UnimplementedRequest));
    assert_eq!(header(&[80, 0, 4, 0]), Err(Status::ServiceNotAvailable));
    let read = Header {
        opcode: 13,
        service: 0,
    };
    assert_eq!(header(&[13, 0, 0, 0]), Ok(read));
}

#[test]
fn malformed_strings_and_keys() {
    let create = |length: u32, name: &[u8]| {
        let mut payload = captured("request", "CREATE_TABLE").remove(0);
        payload[4..8].copy_from_slice(&length.to_le_bytes());
        payload.truncate(12);
        payload.extend_from_slice(name);
        payload
    };
    for (length, name, status) in [
        (0, &b"x\0"[..], Status::RequestFormatError),
        (1, b"x", Status::RequestFormatError),
        (3, b"x\0", Status::MessageTooShort),
        (u32::MAX, b"x\0", Status::MessageTooShort),
        (4, b"a\0b\0", Status::RequestFormatError),
    ] {
        let payload = create(length, name);
        assert_eq!(
            CreateTableRequest::decode(&payload),
            Err(status),
            "{name:?}"
        );
    }
    assert_eq!(
        CreateTableRequest::decode(&create(2, b"x\0 more"))
            .unwrap()
            .name,
        b"x"
    );

    let read = captured("request", "READ").remove(0);
    assert_eq!(
        ReadRequest::decode(&read[..25]),
        Err(Status::MessageTooShort)
    );
    assert_eq!(
        ReadRequest::decode(&read[..28]),
        Err(Status::MessageTooShort)
    );
    let mut no_key = read;
    no_key[12] = 0;
    assert_eq!(
        ReadRequest::decode(&no_key),
        Err(Status::RequestFormatError)
    );
}

#[test]
fn reject_rules_in_order() {
    let rules = |given_version, [a, b, c, d]: [bool; 4]| RejectRules {
        given_version,
        doesnt_exist: a,
        exists: b,
        version_le_given: c,
        version_ne_given: d,
    };
    let all = rules(5, [true; 4]);
    assert_eq!(all.check(0), Err(Status::ObjectDoesntExist));
    assert_eq!(all.check(5), Err(Status::ObjectExists));
    let versions = rules(5, [false, false, true, false]);
    assert_eq!(versions.check(0), Ok(()));
    assert_eq!(versions.check(5), Err(Status::WrongVersion));
    assert_eq!(versions.check(6), Ok(()));
    let exact = rules(5, [false, false, false, true]);
    assert_eq!(exact.check(0), Ok(()));
    assert_eq!(exact.check(4), Err(Status::WrongVersion));
    assert_eq!(exact.check(5), Ok(()));
}

#[test]
fn errors_are_as_long_as_their_handler_got() {
    let short = error_response(Status::MessageTooShort, &[0; 25], 26, 16);
    assert_eq!(short.as_bytes(), [7, 0, 0, 0]);
    let long = error_response(Status::RequestFormatError, &[0; 26], 26, 16);
    assert_eq!(long.as_bytes(), [&[9, 0, 0, 0][..], &[0; 12]].concat());
    let error = WriteResponse::decode(&[9, 0, 0, 0]).unwrap();
    assert_eq!(
        (error.status, error.version),
        (Status::RequestFormatError, 0)
    );
    assert_eq!(
        WriteResponse::decode(&[0, 0, 0, 0]),
        Err(Status::ResponseFormatError)
    );
    assert_eq!(status(&[34, 0, 0, 0]), Err(Status::ResponseFormatError));
}

#[test]
fn a_retry_is_no_write_response() {
    let retry = encoded(|out| RetryResponse::new(1000, 2000).encode(out));
    assert_eq!(retry, RetryResponse::to_bytes(1000, 2000));
    let decoded = WriteResponse::decode(&retry).unwrap();
    assert_eq!((decoded.status, decoded.version), (Status::Retry, 0));
    assert_eq!(
        RetryResponse::decode(&retry),
        Ok(RetryResponse::new(1000, 2000))
    );
    assert_eq!(
        RetryResponse::decode(&retry[..12]),
        Ok(RetryResponse::new(100, 200))
    );
    let with_text = RetryResponse {
        min_delay_us: 1,
        max_delay_us: 2,
        message: b"soon",
    };
    let bytes = encoded(|out| with_text.encode(out));
    assert_eq!(bytes[12..], *b"\x05\0\0\0soon\0");
    assert_eq!(RetryResponse::decode(&bytes), Ok(with_text));
}

prop_compose! {
    fn any_rules()(given_version: u64, flags: [bool; 4]) -> RejectRules {
        let [doesnt_exist, exists, version_le_given, version_ne_given] = flags;
        RejectRules { given_version, doesnt_exist, exists, version_le_given, version_ne_given }
    }
}

prop_compose! {
    fn any_lease()(id: u64, expiration_ns: u64, timestamp_ns: u64) -> Lease {
        Lease { id, expiration_ns, timestamp_ns }
    }
}

fn any_status() -> impl Strategy<Value = Status> {
    proptest::sample::select(Status::ALL)
        .prop_filter("RETRY has its own form", |status| *status != Status::Retry)
}

/// Checks that a message decodes to itself, and that no prefix of it is taken for a whole request.
macro_rules! prop_request_round_trips {
    ($type:ident, $request:expr) => {{
        let request = $request;
        let bytes = encoded(|out| request.encode(out));
        prop_assert!(bytes.len() >= $type::FIXED_BYTES);
        prop_assert_eq!($type::decode(&bytes), Ok(request));
        for cut in [0, $type::FIXED_BYTES - 1, bytes.len() - 1] {
            prop_assert_eq!($type::decode(&bytes[..cut]), Err(Status::MessageTooShort));
        }
    }};
}

/// Checks that the parts come back, and that no prefix is taken for the whole request.
macro_rules! prop_multi_round_trips {
    ($type:ident, $parts:expr) => {{
        let parts: Vec<_> = $parts.collect();
        let bytes = encoded(|out| $type::encode_parts(&parts, out));
        prop_assert_eq!(
            $type::decode(&bytes).unwrap().parts().collect::<Vec<_>>(),
            parts
        );
        for length in 0..bytes.len() {
            let cut = $type::decode(&bytes[..length]).map(drop);
            prop_assert_eq!(cut, Err(Status::MessageTooShort));
        }
    }};
}

/// Checks that the answers come back, and of every prefix those that are whole.
macro_rules! prop_multi_answers_round_trip {
    ($type:ident, $answers:expr) => {{
        let answers: Vec<_> = $answers.collect();
        let bytes = encoded(|out| $type::encode_parts(Status::Ok, &answers, out));
        let mut whole = 0;
        for length in $type::FIXED_BYTES..=bytes.len() {
            let decoded = $type::decode(&bytes[..length]).unwrap();
            let parts: Vec<_> = decoded.parts().collect();
            prop_assert!(parts.len() >= whole);
            whole = parts.len();
            prop_assert_eq!(&parts[..], &answers[..whole]);
        }
        prop_assert_eq!(whole, answers.len());
    }};
}

macro_rules! prop_response_round_trips {
    ($type:ident, $response:expr) => {{
        let response = $response;
        let bytes = encoded(|out| response.encode(out));
        prop_assert!(bytes.len() >= $type::FIXED_BYTES);
        prop_assert_eq!($type::decode(&bytes), Ok(response));
    }};
}

proptest! {
    #[test]
    fn object_requests_round_trip(
        table_id: u64, rpc_id: u64, ack_id: u64, is_async: bool,
        rules in any_rules(), lease in any_lease(),
        key in vec(any::<u8>(), 1..80), value in vec(any::<u8>(), 0..80),
    ) {
        let table_id = TableId(table_id);
        let object = KeysAndValue::single(&key, &value).unwrap();
        prop_request_round_trips!(ReadRequest, ReadRequest { table_id, rules, key: &key });
        prop_request_round_trips!(
            WriteRequest,
            WriteRequest { table_id, lease, rpc_id, ack_id, rules, is_async, object }
        );
        prop_request_round_trips!(
            RemoveRequest,
            RemoveRequest { table_id, lease, rpc_id, ack_id, rules, key: &key }
        );
        prop_request_round_trips!(
            ReadKeysAndValueRequest,
            ReadKeysAndValueRequest { table_id, rules, key: &key }
        );
        let by = Increment { int64: rpc_id as i64, double: ack_id as f64 };
        prop_request_round_trips!(
            IncrementRequest,
            IncrementRequest { table_id, lease, rpc_id, ack_id, by, rules, key: &key }
        );
    }

    #[test]
    fn other_data_requests_round_trip(
        number: u64, objects: u32, object_bytes: u32, keys_only: bool,
        answer_bytes in 0..=EchoResponse::MAX_BYTES, bytes in vec(any::<u8>(), 0..80),
    ) {
        let table_id = TableId(number);
        prop_request_round_trips!(
            EnumerateRequest,
            EnumerateRequest { table_id, keys_only, tablet_first_hash: number, state: &bytes }
        );
        prop_request_round_trips!(EchoRequest, EchoRequest { answer_bytes, data: &bytes });
        prop_request_round_trips!(
            FillWithTestDataRequest,
            FillWithTestDataRequest { objects, object_bytes }
        );
    }

    #[test]
    fn coordinator_requests_round_trip(
        number: u64, span: u32, name in vec(1u8.., 0..40), input in vec(any::<u8>(), 0..40),
    ) {
        prop_request_round_trips!(
            CreateTableRequest,
            CreateTableRequest { name: &name, server_span: span }
        );
        prop_request_round_trips!(GetTableIdRequest, GetTableIdRequest { name: &name });
        prop_request_round_trips!(DropTableRequest, DropTableRequest { name: &name });
        prop_request_round_trips!(
            GetTableConfigRequest,
            GetTableConfigRequest { table_id: TableId(number) }
        );
        prop_request_round_trips!(RenewLeaseRequest, RenewLeaseRequest { lease_id: number });
        prop_request_round_trips!(PingRequest, PingRequest { caller: ServerId(number) });
        prop_request_round_trips!(
            ServerControlAllRequest,
            ServerControlAllRequest { control_op: span, input: &input }
        );
    }

    #[test]
    fn responses_round_trip(
        status in any_status(), number: u64, count: u32, lease in any_lease(),
        bytes in vec(any::<u8>(), 0..80),
    ) {
        prop_response_round_trips!(ReadResponse, ReadResponse { status, version: number, value: &bytes });
        prop_response_round_trips!(WriteResponse, WriteResponse { status, version: number });
        let object = KeysAndValue::single(b"key", &bytes).unwrap();
        let object = (status == Status::Ok).then_some(object);
        prop_response_round_trips!(
            ReadKeysAndValueResponse,
            ReadKeysAndValueResponse { status, version: number, object }
        );
        let value = number.to_le_bytes();
        prop_response_round_trips!(IncrementResponse, IncrementResponse { status, version: number, value });
        prop_response_round_trips!(EchoResponse, EchoResponse { status, data: &bytes });
        let (payload, state) = bytes.split_at(bytes.len() / 2);
        prop_response_round_trips!(
            EnumerateResponse,
            EnumerateResponse { status, tablet_first_hash: number, payload, state }
        );
        prop_response_round_trips!(StatusResponse, StatusResponse { status });
        prop_response_round_trips!(
            TableIdResponse,
            TableIdResponse { status, table_id: TableId(number) }
        );
        prop_response_round_trips!(
            GetTableConfigResponse,
            GetTableConfigResponse { status, table_config: &bytes }
        );
        prop_response_round_trips!(RenewLeaseResponse, RenewLeaseResponse { status, lease });
        prop_response_round_trips!(
            ServerControlAllResponse,
            ServerControlAllResponse { status, server_count: count, response_count: count, responses: &bytes }
        );
        prop_response_round_trips!(
            ServerControlResponse,
            ServerControlResponse { status, server_id: ServerId(number), output: &bytes }
        );
    }

    #[test]
    fn multi_writes_round_trip(
        objects in vec((any::<u64>(), any_rules(), vec(any::<u8>(), 1..20), vec(any::<u8>(), 0..20)), 0..6),
        versions in vec((any_status(), any::<u64>()), 0..6),
    ) {
        let parts: Vec<_> = objects
            .iter()
            .map(|(table, rules, key, value)| MultiWritePart {
                table_id: TableId(*table),
                rules: *rules,
                object: KeysAndValue::single(key, value).unwrap(),
            })
            .collect();
        let bytes = encoded(|out| MultiWriteRequest::encode_parts(&parts, out));
        let request = MultiWriteRequest::decode(&bytes).unwrap();
        prop_assert_eq!(request.count() as usize, parts.len());
        prop_assert_eq!(request.parts().collect::<Vec<_>>(), parts.clone());
        if !parts.is_empty() {
            let cut = MultiWriteRequest::decode(&bytes[..bytes.len() - 1]);
            // The last part keeps its promise of a length, so a missing byte is noticed.
            prop_assert_eq!(cut, Err(Status::MessageTooShort));
        }

        let answers: Vec<_> = versions
            .iter()
            .map(|&(status, version)| WriteResponse { status, version })
            .collect();
        let bytes = encoded(|out| MultiWriteResponse::encode_parts(Status::Ok, &answers, out));
        let response = MultiWriteResponse::decode(&bytes).unwrap();
        prop_assert_eq!(response.parts().collect::<Vec<_>>(), answers);
    }

    #[test]
    fn other_multi_ops_round_trip(
        keys in vec((any::<u64>(), any_rules(), vec(any::<u8>(), 1..20)), 0..6),
        answers in vec((any_status(), any::<u64>(), vec(any::<u8>(), 0..20)), 0..6),
    ) {
        prop_multi_round_trips!(MultiReadRequest, keys.iter().map(|(table, rules, key)| {
            MultiReadPart { table_id: TableId(*table), rules: *rules, key }
        }));
        prop_multi_round_trips!(MultiRemoveRequest, keys.iter().map(|(table, rules, key)| {
            MultiRemovePart { table_id: TableId(*table), rules: *rules, key }
        }));
        prop_multi_round_trips!(MultiIncrementRequest, keys.iter().map(|(table, rules, key)| {
            let by = Increment { int64: *table as i64, double: key.len() as f64 };
            MultiIncrementPart { table_id: TableId(*table), by, rules: *rules, key }
        }));
        prop_multi_answers_round_trip!(MultiReadResponse, answers.iter().map(|(status, version, value)| {
            let object = KeysAndValue::single(b"key", value).unwrap();
            let object = (*status == Status::Ok).then_some(object);
            ReadKeysAndValueResponse { status: *status, version: *version, object }
        }));
        prop_multi_answers_round_trip!(MultiIncrementResponse, answers.iter().map(|(status, version, _)| {
            IncrementResponse { status: *status, version: *version, value: version.to_le_bytes() }
        }));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(
        known in proptest::sample::select(CAPTURED.lines().filter(|line| line.starts_with("re")).collect::<Vec<_>>()),
        noise in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
        tail in vec(any::<u8>(), 0..100),
        length in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = bytes_of_hex(known.split(' ').next_back().unwrap());
        bytes.extend(tail);
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        decode_everything(&bytes);
    }
}

/// Feeds `bytes` to every decoder of the client protocol.
fn decode_everything(bytes: &[u8]) {
    let _ = header(bytes);
    let _ = status(bytes);
    let _ = RetryResponse::decode(bytes);
    let _ = PingRequest::decode(bytes);
    let _ = CreateTableRequest::decode(bytes);
    let _ = GetTableIdRequest::decode(bytes);
    let _ = DropTableRequest::decode(bytes);
    let _ = GetTableConfigRequest::decode(bytes);
    let _ = RenewLeaseRequest::decode(bytes);
    let _ = ServerControlAllRequest::decode(bytes);
    let _ = ReadRequest::decode(bytes);
    let _ = WriteRequest::decode(bytes);
    let _ = RemoveRequest::decode(bytes);
    let _ = ReadKeysAndValueRequest::decode(bytes);
    let _ = IncrementRequest::decode(bytes);
    let _ = EnumerateRequest::decode(bytes);
    let _ = EchoRequest::decode(bytes);
    let _ = FillWithTestDataRequest::decode(bytes);
    let _ = MultiKind::of_request(bytes);
    if let Ok(request) = MultiReadRequest::decode(bytes) {
        request.parts().for_each(drop);
    }
    if let Ok(request) = MultiWriteRequest::decode(bytes) {
        request.parts().for_each(drop);
    }
    if let Ok(request) = MultiRemoveRequest::decode(bytes) {
        request.parts().for_each(drop);
    }
    if let Ok(request) = MultiIncrementRequest::decode(bytes) {
        request.parts().for_each(drop);
    }
    let _ = StatusResponse::decode(bytes);
    let _ = TableIdResponse::decode(bytes);
    let _ = GetTableConfigResponse::decode(bytes);
    let _ = RenewLeaseResponse::decode(bytes);
    let _ = ServerControlAllResponse::decode(bytes);
    let _ = ServerControlResponse::decode(bytes);
    let _ = ReadResponse::decode(bytes);
    let _ = WriteResponse::decode(bytes);
    let _ = ReadKeysAndValueResponse::decode(bytes);
    let _ = IncrementResponse::decode(bytes);
    let _ = EchoResponse::decode(bytes);
    if let Ok(response) = EnumerateResponse::decode(bytes) {
        response.objects().for_each(drop);
    }
    if let Ok(response) = MultiReadResponse::decode(bytes) {
        response.parts().for_each(drop);
    }
    if let Ok(response) = MultiWriteResponse::decode(bytes) {
        response.parts().for_each(drop);
    }
    if let Ok(response) = MultiIncrementResponse::decode(bytes) {
        response.parts().for_each(drop);
    }
}
