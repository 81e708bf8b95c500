//! Messages between RAMCloud's own client, coordinator and master, captured on the wire, replayed in their order against real
//! processes: the answers must be the same bytes, but for what is named here.

use std::collections::BTreeSet;

use crate::common::{Coordinator, Rpc, Server, hex, to_hex};
use base::ids::TableId;
use wire::keys::KeysAndValue;
use wire::rpc::{
    self, EnumerateRequest, EnumerateResponse, EnumeratedObject, Lease, MultiWritePart, PerfStats,
    RejectRules, RemoveRequest, RenewLeaseRequest, RenewLeaseResponse, ServerControlAllResponse,
    ServerControlResponse,
};
use wire::status::Status;

const CAPTURED: &str = include_str!("../../../wire/testdata/captured.txt");
const TABLE: TableId = TableId(1);

/// One captured request with its answer, if that was kept.
struct Captured {
    is_for_master: bool,
    nonce: u64,
    rpc: &'static str,
    request: Vec<u8>,
    answer: Option<Vec<u8>>,
}

fn captured() -> Vec<Captured> {
    let mut all: Vec<Captured> = Vec::new();
    for line in CAPTURED.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["request", peer @ ("coord" | "master"), nonce, rpc, payload] => all.push(Captured {
                is_for_master: peer == "master",
                nonce: nonce.parse().unwrap(),
                rpc,
                request: hex(payload),
                answer: None,
            }),
            ["response", _, _, rpc, payload] => {
                let request = all.last_mut().unwrap();
                assert_eq!(request.rpc, rpc);
                request.answer = Some(hex(payload));
            }
            _ => assert!(line.is_empty() || line.starts_with('#'), "{line}"),
        }
    }
    all
}

struct Replay {
    _coordinator: Coordinator,
    _server: Server,
    client: Rpc,
    master: Rpc,
    /// Of another client, which does what RPCs that this version does not serve did to the table.
    other: Rpc,
    lease: Lease,
}

fn start() -> Replay {
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    // The captured master told its clients this locator; the replay finds the real port by itself.
    let server = Server::start(
        &coordinator,
        "m0",
        &["--advertise", "tcp:host=127.0.0.1,port=11101"],
    );
    server.wait_ready();
    Replay {
        client: Rpc::connect(coordinator.client),
        master: Rpc::connect(server.shards[0]),
        other: Rpc::connect(server.shards[0]),
        lease: Lease::default(),
        _coordinator: coordinator,
        _server: server,
    }
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

impl Replay {
    fn send(&mut self, captured: &Captured) -> Vec<u8> {
        let connection = if captured.is_for_master {
            &mut self.master
        } else {
            &mut self.client
        };
        connection.send(captured.nonce, &captured.request);
        let (nonce, answer) = connection.receive();
        assert_eq!(nonce, captured.nonce);
        answer
    }

    /// Goes on with an enumeration until it ends; the last answer, and all objects.
    fn enumerate(&mut self, first: Vec<u8>) -> (Vec<u8>, BTreeSet<Object>) {
        let (mut answer, mut objects) = (first, BTreeSet::new());
        loop {
            let response = EnumerateResponse::decode(&answer).unwrap();
            assert_eq!(response.status, Status::Ok);
            objects.extend(enumerated(&answer));
            if response.objects.is_empty() && response.tablet_first_hash == 0 {
                return (answer, objects);
            }
            let next = EnumerateRequest {
                table_id: TABLE,
                keys_only: false,
                tablet_first_hash: response.tablet_first_hash,
                iterator: response.iterator,
            };
            answer = self.master.call(&encoded(|bytes| next.encode(bytes)));
        }
    }

    fn write(&mut self, key: &[u8], value: &[u8]) {
        let part = MultiWritePart {
            table_id: TABLE,
            rules: RejectRules::default(),
            object: KeysAndValue::single(key, value).unwrap(),
        };
        let request = encoded(|bytes| rpc::MultiWriteRequest::encode_parts(&[part], bytes));
        assert_eq!(self.other.status(&request), 0);
    }

    fn remove(&mut self, key: &[u8]) {
        let request = RemoveRequest {
            table_id: TABLE,
            lease: self.lease,
            rpc_id: 1,
            ack_id: 0,
            rules: RejectRules::default(),
            key,
        };
        assert_eq!(
            self.other.status(&encoded(|bytes| request.encode(bytes))),
            0
        );
    }

    /// What transactions did to the table before this request, which is for the master.
    fn stand_in(&mut self, nonce: u64) {
        match nonce {
            17 => {
                self.write(b"tw", b"T");
                self.remove(b"ctr");
            }
            // Version 7 was used up.
            21 => self.write(b"tx", b""),
            _ => {}
        }
    }
}

/// Key, version and value.
type Object = (Vec<u8>, u64, Vec<u8>);

fn enumerated(response: &[u8]) -> BTreeSet<Object> {
    let response = EnumerateResponse::decode(response).unwrap();
    let objects = EnumeratedObject::decode_all(response.objects).map(Result::unwrap);
    objects
        .map(|object| {
            let (key, value) = (object.object.primary_key(), object.object.value());
            (key.to_vec(), object.version, value.to_vec())
        })
        .collect()
}

fn check_counters(control: &[u8]) {
    let response = ServerControlResponse::decode(control).unwrap();
    // The captured answer began with the same 16 bytes: OK, server 1.0, 416 bytes of output.
    assert_eq!(to_hex(&control[..16]), "000000000100000000000000a0010000");
    let stats = PerfStats::decode(response.output).unwrap();
    assert!(stats.read_count > 0 && stats.write_count > 0 && stats.collection_time > 0);
    assert!(stats.network_input_bytes > 0 && stats.dispatch_active_cycles > 0);
}

#[test]
fn captured_requests_get_the_captured_answers() {
    let mut replay = start();
    let mut compared = 0;
    let mut end_of_enumeration = Vec::new();
    for captured in captured() {
        if captured.is_for_master {
            replay.stand_in(captured.nonce);
        }
        let mut answer = replay.send(&captured);
        let status = rpc::status(&answer).unwrap();
        let mut expected = captured.answer.clone().unwrap_or_default();
        let what = format!("{} {}", captured.rpc, captured.nonce);
        match (captured.rpc, captured.nonce) {
            ("TX_PREPARE" | "CREATE_INDEX" | "LOOKUP_INDEX_KEYS" | "READ_HASHES", _) => {
                assert_eq!(
                    answer,
                    rpc::status_bytes(Status::UnimplementedRequest),
                    "{what}"
                );
                continue;
            }
            // In another order, in more steps (a bounded part of the hash table each), with another state.
            ("ENUMERATE", 19) => {
                let (last, objects) = replay.enumerate(answer);
                assert_eq!(objects, enumerated(&expected));
                end_of_enumeration = last;
                continue;
            }
            ("ENUMERATE", _) => answer.clone_from(&end_of_enumeration),
            // Without the index.
            ("GET_TABLE_CONFIG", 7) => {
                assert_eq!(status, Status::Ok);
                continue;
            }
            ("SERVER_CONTROL", _) => {
                check_counters(&answer);
                continue;
            }
            ("SERVER_CONTROL_ALL", _) => {
                let all = ServerControlAllResponse::decode(&answer).unwrap();
                assert_eq!(to_hex(&answer[..16]), "000000000100000001000000b0010000");
                check_counters(all.responses);
                continue;
            }
            // Expiration and timestamp are times.
            ("RENEW_LEASE", _) => {
                let lease = RenewLeaseResponse::decode(&answer).unwrap().lease;
                assert_eq!(lease.expiration_ns - lease.timestamp_ns, 1_800_000_000_000);
                answer[12..].fill(0);
                expected[12..].fill(0);
                let renew = RenewLeaseRequest { lease_id: 0 };
                let other = replay.client.call(&encoded(|bytes| renew.encode(bytes)));
                replay.lease = RenewLeaseResponse::decode(&other).unwrap().lease;
            }
            _ => {}
        }
        assert_eq!(to_hex(&answer), to_hex(&expected), "{what}");
        compared += 1;
    }
    assert_eq!(compared, 29);
}
