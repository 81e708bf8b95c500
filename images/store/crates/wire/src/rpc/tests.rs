//! Captured bytes, the order of the checks, round trips, and bytes that nobody would send.

mod captured;
mod properties;

use super::*;
use crate::keys::KeysAndValue;
use crate::proto;
use base::ids::{ServerId, TableId};
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
