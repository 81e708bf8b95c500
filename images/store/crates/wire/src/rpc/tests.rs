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
fn captured_multi_ops() {
    let requests = captured("request", "MULTI_OP");
    let write = MultiWriteRequest::decode(&requests[0]).unwrap();
    assert_eq!(encoded(|out| write.encode(out)), requests[0]);
    let parts: Vec<_> = write.parts().collect();
    assert_eq!(parts[0].object, KeysAndValue::single(b"m2", b"v2").unwrap());
    assert_eq!(parts[1].object, KeysAndValue::single(b"m1", b"v1").unwrap());
    let built = encoded(|out| MultiWriteRequest::encode_parts(&parts, out));
    assert_eq!(built, requests[0]);
    for other in &requests[1..] {
        assert_eq!(
            MultiWriteRequest::decode(other),
            Err(Status::RequestFormatError)
        );
    }

    let read = MultiReadRequest::decode(&requests[1]).unwrap();
    assert_eq!(encoded(|out| read.encode(out)), requests[1]);
    let keys: Vec<_> = read.parts().map(|part| part.key).collect();
    assert_eq!(keys, [b"m3", b"m1"]);
    let increment = MultiIncrementRequest::decode(&requests[2]).unwrap();
    assert_eq!(encoded(|out| increment.encode(out)), requests[2]);
    let part = increment.parts().next().unwrap();
    assert_eq!(
        (part.key, part.by.int64, part.by.double),
        (&b"ctr"[..], 2, 0.0)
    );
    let remove = MultiRemoveRequest::decode(&requests[3]).unwrap();
    assert_eq!(encoded(|out| remove.encode(out)), requests[3]);
    assert_eq!(remove.parts().next().unwrap().key, b"m1");
    let kinds: Vec<_> = requests
        .iter()
        .map(|request| MultiKind::of_request(request).unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            MultiKind::Write,
            MultiKind::Read,
            MultiKind::Increment,
            MultiKind::Remove
        ]
    );
    let mut unknown = requests[0].clone();
    unknown[8] = 4;
    assert_eq!(
        MultiKind::of_request(&unknown),
        Err(Status::RequestFormatError)
    );
    assert_eq!(
        MultiKind::of_request(&unknown[..11]),
        Err(Status::MessageTooShort)
    );

    let responses = captured("response", "MULTI_OP");
    let read = MultiReadResponse::decode(&responses[1]).unwrap();
    assert_eq!(encoded(|out| read.encode(out)), responses[1]);
    let parts: Vec<_> = read.parts().collect();
    assert_eq!(
        (parts[0].status, parts[0].object),
        (Status::ObjectDoesntExist, None)
    );
    assert_eq!(
        (parts[1].version, parts[1].object.unwrap().value()),
        (4, &b"v1"[..])
    );
    let increment = MultiIncrementResponse::decode(&responses[2]).unwrap();
    assert_eq!(encoded(|out| increment.encode(out)), responses[2]);
    let part = increment.parts().next().unwrap();
    assert_eq!((part.version, u64::from_le_bytes(part.new_value)), (3, 7));
    let remove = MultiRemoveResponse::decode(&responses[3]).unwrap();
    assert_eq!(encoded(|out| remove.encode(out)), responses[3]);

    let response = &responses[0];
    let decoded = MultiWriteResponse::decode(response).unwrap();
    assert_eq!(encoded(|out| decoded.encode(out)), *response);
    let versions: Vec<_> = decoded.parts().map(|part| part.version).collect();
    assert_eq!(versions, [3, 4]);
}

#[test]
fn captured_increment() {
    check_captured!("request", "INCREMENT", IncrementRequest, |all| {
        assert_eq!(
            (all[0].key, all[0].by.int64, all[0].rpc_id),
            (&b"ctr"[..], 5, 4)
        );
    });
    check_captured!("response", "INCREMENT", IncrementResponse, |all| {
        assert_eq!(
            (all[0].version, u64::from_le_bytes(all[0].new_value)),
            (2, 5)
        );
    });
}

#[test]
fn captured_read_keys_and_value() {
    for bytes in captured("request", "READ_KEYS_AND_VALUE") {
        let request = ReadRequest::decode(&bytes).unwrap();
        assert_eq!(encoded(|out| request.encode_for_keys_and_value(out)), bytes);
    }
    check_captured!("response", "READ_KEYS_AND_VALUE", ReadResponse, |all| {
        let object = KeysAndValue::parse(all[0].value).unwrap();
        assert_eq!(
            (all[0].version, object.primary_key(), object.value()),
            (2, &b"abc"[..], &b"hello2"[..])
        );
    });
}

#[test]
fn captured_enumeration() {
    use prost::Message;
    check_captured!("request", "ENUMERATE", EnumerateRequest, |all| {
        assert!(all[0].iterator.is_empty());
        let state = crate::proto::EnumerationIterator::decode(all[1].iterator).unwrap();
        assert_eq!(state.frames.len(), 1);
        assert_eq!(state.encode_to_vec(), all[1].iterator);
    });
    let responses = captured("response", "ENUMERATE");
    let response = EnumerateResponse::decode(&responses[0]).unwrap();
    assert_eq!(encoded(|out| response.encode(out)), responses[0]);
    let objects: Vec<_> = EnumeratedObject::decode_all(response.objects)
        .map(Result::unwrap)
        .collect();
    let keys: Vec<_> = objects
        .iter()
        .map(|object| object.object.primary_key())
        .collect();
    assert_eq!(keys, [&b"m2"[..], b"abc", b"tw"]);
    let mut again = Vec::new();
    for object in &objects {
        let content = encoded(|out| object.object.encode(out));
        EnumeratedObject::encode(
            object.timestamp_s,
            object.version,
            object.table_id,
            &content,
            &mut again,
        );
    }
    assert_eq!(again, response.objects);
    let end = EnumerateResponse::decode(&responses[1]).unwrap();
    assert_eq!((end.tablet_first_hash, end.objects.len()), (0, 0));

    let mut broken = response.objects.to_vec();
    broken[10] ^= 1;
    let results: Vec<_> = EnumeratedObject::decode_all(&broken).collect();
    assert_eq!(results, [Err(Status::ResponseFormatError)]);
}

#[test]
fn captured_questions_about_the_store() {
    use prost::Message;
    check_captured!("request", "GET_SERVER_LIST", GetServerListRequest, |all| {
        assert_eq!(all[0].service_mask, 3);
    });
    check_captured!("response", "GET_SERVER_LIST", MessageResponse, |all| {
        let list = crate::proto::ServerList::decode(all[0].message).unwrap();
        assert_eq!(list.encode_to_vec(), all[0].message);
        assert_eq!((list.server[0].services, list.server[0].server_id), (9, 1));
    });
    check_captured!("request", "SPLIT_TABLET", SplitTabletRequest, |all| {
        assert_eq!((all[0].name, all[0].split_key_hash), (&b"cap"[..], 1 << 63));
    });
    check_captured!("request", "SERVER_CONTROL", ServerControlRequest, |all| {
        assert_eq!(
            (all[0].target, all[0].control_op),
            (ControlTarget::Object, control_op::GET_PERF_STATS)
        );
        assert_eq!((all[0].key, all[0].input.len()), (&b"abc"[..], 0));
    });
}

#[test]
fn questions_round_trip() {
    let list = encoded(|out| {
        SetRuntimeOptionRequest {
            option: b"o",
            value: b"",
        }
        .encode(out)
    });
    assert_eq!(
        SetRuntimeOptionRequest::decode(&list),
        Ok(SetRuntimeOptionRequest {
            option: b"o",
            value: b""
        })
    );
    assert_eq!(
        SetRuntimeOptionRequest::decode(&list[..list.len() - 1]),
        Err(Status::MessageTooShort)
    );
    let get = GetRuntimeOptionRequest { option: b"abc" };
    assert_eq!(
        GetRuntimeOptionRequest::decode(&encoded(|out| get.encode(out))),
        Ok(get)
    );
    let ping = ProxyPingRequest {
        server_id: ServerId(5),
        timeout_ns: 7,
    };
    assert_eq!(
        ProxyPingRequest::decode(&encoded(|out| ping.encode(out))),
        Ok(ping)
    );
    let pong = ProxyPingResponse {
        status: Status::Ok,
        reply_ns: 8,
    };
    assert_eq!(
        ProxyPingResponse::decode(&encoded(|out| pong.encode(out))),
        Ok(pong)
    );
    let id = GetServerIdResponse {
        status: Status::Ok,
        server_id: ServerId(9),
    };
    assert_eq!(
        GetServerIdResponse::decode(&encoded(|out| id.encode(out))),
        Ok(id)
    );
    let hint = HintServerCrashedRequest {
        server_id: ServerId(9),
    };
    assert_eq!(
        HintServerCrashedRequest::decode(&encoded(|out| hint.encode(out))),
        Ok(hint)
    );
    let lease = GetLeaseInfoRequest { lease_id: 4 };
    assert_eq!(
        GetLeaseInfoRequest::decode(&encoded(|out| lease.encode(out))),
        Ok(lease)
    );
    let fill = FillWithTestDataRequest {
        object_count: 4,
        object_bytes: 5,
    };
    assert_eq!(
        FillWithTestDataRequest::decode(&encoded(|out| fill.encode(out))),
        Ok(fill)
    );
}

#[test]
fn an_echo_longer_than_any_message_is_refused() {
    let echo = |echo_bytes| EchoRequest {
        echo_bytes,
        bytes: b"abc",
    };
    for (echo_bytes, expected) in [
        (MAX_RPC_BYTES as u32 - 12, Ok(())),
        (MAX_RPC_BYTES as u32 - 11, Err(Status::RequestFormatError)),
        (u32::MAX, Err(Status::RequestFormatError)),
    ] {
        let bytes = encoded(|out| echo(echo_bytes).encode(out));
        assert_eq!(EchoRequest::decode(&bytes).map(drop), expected);
    }
    let bytes = encoded(|out| echo(5).encode(out));
    assert_eq!(
        EchoRequest::decode(&bytes[..bytes.len() - 1]),
        Err(Status::MessageTooShort)
    );
    assert_eq!(EchoRequest::decode(&bytes), Ok(echo(5)));
}

#[test]
fn increments_are_of_integers_or_of_floating_point_numbers() {
    let by = |int64, double| Increment { int64, double };
    assert_eq!(by(2, 0.0).apply(5_i64.to_le_bytes()), 7_i64.to_le_bytes());
    assert_eq!(
        by(1, 0.0).apply(i64::MAX.to_le_bytes()),
        i64::MIN.to_le_bytes()
    );
    assert_eq!(
        by(0, 0.5).apply(1.25_f64.to_le_bytes()),
        1.75_f64.to_le_bytes()
    );
    assert_eq!(by(0, 0.0).apply([9; 8]), [9; 8]);
}

#[test]
fn a_cut_multi_write_response_gives_its_whole_parts() {
    let whole = &captured("response", "MULTI_OP")[0];
    for (length, parts) in [(8, 0), (19, 0), (20, 1), (31, 1), (32, 2)] {
        let response = MultiWriteResponse::decode(&whole[..length]).unwrap();
        assert_eq!((response.count(), response.parts().count()), (parts, parts));
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
    let _ = IncrementRequest::decode(bytes);
    let _ = EnumerateRequest::decode(bytes);
    let _ = EchoRequest::decode(bytes);
    let _ = FillWithTestDataRequest::decode(bytes);
    let _ = MultiKind::of_request(bytes);
    let _ = GetServerListRequest::decode(bytes);
    let _ = GetLeaseInfoRequest::decode(bytes);
    let _ = SplitTabletRequest::decode(bytes);
    let _ = MigrateTabletRequest::decode(bytes);
    let _ = HintServerCrashedRequest::decode(bytes);
    let _ = SetRuntimeOptionRequest::decode(bytes);
    let _ = GetRuntimeOptionRequest::decode(bytes);
    let _ = ProxyPingRequest::decode(bytes);
    let _ = ServerControlRequest::decode(bytes);
    let _ = MessageResponse::decode(bytes);
    let _ = ProxyPingResponse::decode(bytes);
    let _ = GetServerIdResponse::decode(bytes);
    macro_rules! multi {
        ($($message:ident)*) => {$(
            if let Ok(message) = $message::decode(bytes) {
                message.parts().for_each(drop);
            }
        )*};
    }
    multi!(MultiReadRequest MultiWriteRequest MultiRemoveRequest MultiIncrementRequest);
    multi!(MultiReadResponse MultiWriteResponse MultiRemoveResponse MultiIncrementResponse);
    let _ = IncrementResponse::decode(bytes);
    let _ = EchoResponse::decode(bytes);
    if let Ok(response) = EnumerateResponse::decode(bytes) {
        EnumeratedObject::decode_all(response.objects).for_each(drop);
    }
    let _ = StatusResponse::decode(bytes);
    let _ = TableIdResponse::decode(bytes);
    let _ = GetTableConfigResponse::decode(bytes);
    let _ = RenewLeaseResponse::decode(bytes);
    let _ = ServerControlAllResponse::decode(bytes);
    let _ = ServerControlResponse::decode(bytes);
    let _ = ReadResponse::decode(bytes);
    let _ = WriteResponse::decode(bytes);
}
