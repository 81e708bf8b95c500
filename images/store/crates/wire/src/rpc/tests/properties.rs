//! Round trips of any messages, and bytes that nobody would send.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

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
