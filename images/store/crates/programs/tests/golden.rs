//! Messages between RAMCloud's own client, coordinator and master, captured on the wire, replayed against real processes:
//! the answers must be the same bytes, but for the fields named here.

mod common;

use common::{Coordinator, Rpc, Server, hex, to_hex};

/// Who the request goes to.
enum To {
    Coordinator,
    Master,
}
use To::{Coordinator as C, Master as M};

/// One captured request with its captured answer.
struct Captured {
    to: To,
    nonce: u64,
    request: &'static str,
    answer: &'static str,
    /// Bytes of the answer that carry the time, from and to.
    time: Option<(usize, usize)>,
}

const fn same(to: To, nonce: u64, request: &'static str, answer: &'static str) -> Captured {
    Captured {
        to,
        nonce,
        request,
        answer,
        time: None,
    }
}

/// The captured session, without the RPCs that this version does not serve (below). In the place of its INCREMENT, which
/// made an object "ctr" with version 2, stands a WRITE of "ctr" with the same lease and RPC id, so that versions stay the same.
fn session() -> Vec<Captured> {
    vec![
        // CREATE_TABLE "cap".
        same(
            C,
            1,
            "0a000200040000000100000063617000",
            "000000000100000000000000",
        ),
        // GET_TABLE_ID "cap", and "nope", which is not there.
        same(C, 2, "0b0002000400000063617000", "000000000100000000000000"),
        same(
            C,
            3,
            "0b000200050000006e6f706500",
            "020000000000000000000000",
        ),
        // RENEW_LEASE: lease id 1; expiration and timestamp are times.
        Captured {
            to: C,
            nonce: 4,
            request: "3c0002000000000000000000",
            answer: "0000000001000000000000007b788118a40100007b28250001000000",
            time: Some((12, 28)),
        },
        // GET_TABLE_CONFIG.
        same(
            C,
            5,
            "120002000100000000000000",
            "000000003f0000000a3d0801100018ffffffffffffffffff012000290100000000000000321d7463703a686f73743d3132372e302e302e312c706f72743d3131313031\
             40004800",
        ),
        // WRITE abc=hello, READ it, WRITE it again.
        same(
            M,
            1,
            "0e000000010000000000000001000000000000007b788118a40100007b28250001000000010000000000000000000000000000000b0000000000000000000000000000\
             000001030061626368656c6c6f",
            "000000000100000000000000",
        ),
        same(
            M,
            2,
            "0d00000001000000000000000300000000000000000000000000616263",
            "0000000001000000000000000500000068656c6c6f",
        ),
        same(
            M,
            3,
            "0e000000010000000000000001000000000000007b788118a40100007b28250001000000020000000000000001000000000000000c0000000000000000000000000000\
             000001030061626368656c6c6f32",
            "000000000200000000000000",
        ),
        // WRITE that its reject rules forbid (the object exists): the version is told all the same.
        same(
            M,
            4,
            "0e000000010000000000000001000000000000007b788118a40100007b2825000100000003000000000000000200000000000000070000000000000000000000000100\
             000001030061626378",
            "040000000200000000000000",
        ),
        // READ of an absent object.
        same(
            M,
            5,
            "0d000000010000000000000003000000000000000000000000007a7a7a",
            "03000000000000000000000000000000",
        ),
        // In the place of INCREMENT: WRITE ctr.
        same(
            M,
            7,
            "0e000000010000000000000001000000000000007b788118a40100007b28250001000000040000000000000003000000000000000e0000000000000000000000000000\
             00000103006374720500000000000000",
            "000000000200000000000000",
        ),
        // MULTI_OP: two WRITE parts.
        same(
            M,
            8,
            "1900000002000000030000000100000000000000070000000000000000000000000000000102006d3276320100000000000000070000000000000000000000000000000102\
             006d317631",
            "0000000002000000000000000300000000000000000000000400000000000000",
        ),
        // REMOVE, REMOVE of what is absent now, WRITE: the version goes on from what was removed.
        same(
            M,
            12,
            "0f000000010000000000000001000000000000007b788118a40100007b28250001000000050000000000000004000000000000000300000000000000000000000000\
             616263",
            "000000000200000000000000",
        ),
        same(
            M,
            13,
            "0f000000010000000000000001000000000000007b788118a40100007b28250001000000060000000000000005000000000000000300000000000000000000000000\
             616263",
            "000000000000000000000000",
        ),
        same(
            M,
            14,
            "0e000000010000000000000001000000000000007b788118a40100007b28250001000000070000000000000006000000000000000b0000000000000000000000000000\
             0000010300616263616761696e",
            "000000000500000000000000",
        ),
        same(
            M,
            25,
            "0d000000010000000000000002000000000000000000000000006d32",
            "000000000300000000000000020000007632",
        ),
        // DROP_TABLE; READ then meets no tablet, and the table's config is empty.
        same(C, 11, "0c0002000400000063617000", "00000000"),
        same(
            M,
            26,
            "0d000000010000000000000002000000000000000000000000006d32",
            "01000000000000000000000000000000",
        ),
        same(C, 12, "120002000100000000000000", "0000000000000000"),
    ]
}

/// Captured requests that this version does not serve.
const NOT_SERVED: &[(To, &str)] = &[
    // READ_KEYS_AND_VALUE
    (
        M,
        "4000000001000000000000000300000000000000000000000000616263",
    ),
    // INCREMENT
    (
        M,
        "2b000000010000000000000001000000000000007b788118a40100007b2825000100000004000000000000000300000000000000030005000000000000000000000000000000000000000000000000000000637472",
    ),
    // MULTI_OP of READ, INCREMENT and REMOVE parts
    (
        M,
        "190000000200000001000000010000000000000002000000000000000000000000006d33010000000000000002000000000000000000000000006d31",
    ),
    (
        M,
        "1900000001000000000000000100000000000000030002000000000000000000000000000000000000000000000000000000637472",
    ),
    (
        M,
        "190000000100000002000000010000000000000002000000000000000000000000006d31",
    ),
    // ENUMERATE
    (M, "16000000010000000000000000000000000000000000000000"),
    // CREATE_INDEX, GET_SERVER_LIST, SPLIT_TABLET
    (C, "450002000100000000000000000101"),
    (C, "1100020003000000"),
    (C, "3100020004000000000000000000008063617000"),
    // SERVER_CONTROL_ALL with GET_PERF_STATS
    (C, "3e000200ef03000000000000"),
];

const UNIMPLEMENTED_REQUEST: u32 = 8;

fn start() -> (Coordinator, Server, Rpc, Rpc) {
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    // The captured master told its clients this locator; the replay finds the real port by itself.
    let server = Server::start(
        &coordinator,
        "m0",
        &["--advertise", "tcp:host=127.0.0.1,port=11101"],
    );
    server.wait_ready();
    let (client, master) = (
        Rpc::connect(coordinator.client),
        Rpc::connect(server.shards[0]),
    );
    (coordinator, server, client, master)
}

#[test]
fn captured_requests_get_the_captured_answers() {
    let (_coordinator, _server, mut client, mut master) = start();
    for captured in session() {
        let connection = match captured.to {
            C => &mut client,
            M => &mut master,
        };
        connection.send(captured.nonce, &hex(captured.request));
        let (nonce, mut answer) = connection.receive();
        let mut expected = hex(captured.answer);
        if let Some((from, to)) = captured.time {
            assert_eq!(answer.len(), expected.len());
            answer[from..to].fill(0);
            expected[from..to].fill(0);
        }
        assert_eq!(nonce, captured.nonce);
        assert_eq!(
            to_hex(&answer),
            to_hex(&expected),
            "answer to {}",
            captured.request
        );
    }
}

#[test]
fn a_lease_lasts_as_long_as_ramclouds() {
    let (_coordinator, _server, mut client, _) = start();
    let answer = client.call(&hex("3c0002000000000000000000"));
    let field = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
    assert_eq!(
        field(12) - field(20),
        1_800_000_000_000,
        "expiration - timestamp"
    );
}

#[test]
fn captured_requests_that_are_not_served_say_so() {
    let (_coordinator, _server, mut client, mut master) = start();
    client.call_until_done(&hex("0a000200040000000100000063617000"));
    for (to, request) in NOT_SERVED {
        let connection = match to {
            C => &mut client,
            M => &mut master,
        };
        assert_eq!(
            connection.status(&hex(request)),
            UNIMPLEMENTED_REQUEST,
            "{request}"
        );
    }
}
