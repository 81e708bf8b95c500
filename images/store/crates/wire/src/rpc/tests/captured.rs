//! Messages that were captured between programs of RAMCloud decode, and encode to the same bytes.

use super::*;

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
