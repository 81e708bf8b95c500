//! Messages captured between RAMCloud's own client and coordinator, replayed.

use crate::common::{Action, Harness, hello, hex};
use wire::member;

/// One master that listens where the captured one did.
fn store() -> Harness {
    let mut harness = Harness::new();
    let mut first = hello("a", 1, 0, 1);
    first.locator = "tcp:host=127.0.0.1,port=11101".to_owned();
    harness.enlist(100, first);
    harness
}

/// Sends a request and carries out every order to the shard; returns the reply.
fn exchange(harness: &mut Harness, request: &str) -> Vec<u8> {
    let mut actions = harness.request(&hex(request));
    loop {
        match actions.pop().expect("a reply in the end") {
            Action::Send(
                connection,
                member::coordinator::Kind::TakeTablet(order)
                | member::coordinator::Kind::DropTablet(order),
            ) => actions.extend(harness.done(connection, order.sequence)),
            Action::Reply(_, bytes) => return bytes,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn answers_equal_the_captured_ones() {
    let mut harness = store();
    let captured = [
        // CREATE_TABLE "cap", GET_TABLE_ID "cap" and "nope".
        (
            "0a000200040000000100000063617000",
            "000000000100000000000000",
        ),
        ("0b0002000400000063617000", "000000000100000000000000"),
        ("0b000200050000006e6f706500", "020000000000000000000000"),
        // GET_TABLE_CONFIG 1.
        (
            "120002000100000000000000",
            "000000003f0000000a3d0801100018ffffffffffffffffff012000290100000000000000321d7463703a686f73743d3132372e302e302e312c706f72743d313131303140004800",
        ),
        // DROP_TABLE "cap", then its config.
        ("0c0002000400000063617000", "00000000"),
        ("120002000100000000000000", "0000000000000000"),
    ];
    for (request, response) in captured {
        assert_eq!(
            exchange(&mut harness, request),
            hex(response),
            "request {request}"
        );
    }
}

/// Captured: 000000000100000000000000 7b788118a4010000 7b28250001000000. Lease id and term are the same; the two times are
/// this store's.
#[test]
fn a_lease_equals_the_captured_one_but_for_the_time() {
    let mut harness = store();
    harness.now += std::time::Duration::from_nanos(0x1_0025_287b);
    let answer = exchange(&mut harness, "3c0002000000000000000000");
    assert_eq!(
        answer,
        hex("0000000001000000000000007b788118a40100007b28250001000000"),
        "with the clock at the captured time even those are equal"
    );
}
