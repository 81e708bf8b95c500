//! Requests equal those captured from RAMCloud's own client.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

#[test]
fn requests_equal_the_captured_ones() {
    let mut script = Script::new();
    let out = &mut script.out;
    script.client.create_table(script.now, b"cap", 1, out);
    script.expect_connect(COORDINATOR);
    let exchange = |script: &mut Script, request: &str, response: &str| {
        let sent = script.take_sent(hex(request)[0]);
        assert_eq!(sent.payload, hex(request));
        script.answer(&sent, &hex(response));
    };
    exchange(
        &mut script,
        "0a000200040000000100000063617000",
        "000000000100000000000000",
    );
    assert_eq!(script.completed().1, Ok(Owned::Table(TableId(1))));
    script.client.table_id(script.now, b"cap", &mut script.out);
    exchange(
        &mut script,
        "0b0002000400000063617000",
        "000000000100000000000000",
    );
    script.client.table_id(script.now, b"nope", &mut script.out);
    exchange(
        &mut script,
        "0b000200050000006e6f706500",
        "020000000000000000000000",
    );
    script.out.completed.clear();

    let table = TableId(1);
    let write = |script: &mut Script, value: &[u8], rules: RejectRules| {
        script
            .client
            .write(script.now, table, b"abc", value, &rules, &mut script.out)
    };
    write(&mut script, b"hello", NO_RULES);
    exchange(
        &mut script,
        "3c0002000000000000000000",
        "0000000001000000000000007b788118a40100007b28250001000000",
    );
    exchange(
        &mut script,
        "120002000100000000000000",
        "000000003f0000000a3d0801100018ffffffffffffffffff012000290100000000000000321d7463703a686f73743d3132372e302e302e312c706f72743d313131303140004800",
    );
    script.expect_connect("tcp:host=127.0.0.1,port=11101");
    exchange(
        &mut script,
        "0e000000010000000000000001000000000000007b788118a40100007b28250001000000010000000000000000000000000000000b0000000000000000000000000000000001030061626368656c6c6f",
        "000000000100000000000000",
    );
    assert_eq!(script.completed().1, Ok(Owned::Version(1)));
    script
        .client
        .read(script.now, table, b"abc", &NO_RULES, &mut script.out);
    exchange(
        &mut script,
        "0d00000001000000000000000300000000000000000000000000616263",
        "0000000001000000000000000500000068656c6c6f",
    );
    assert_eq!(
        script.completed().1,
        Ok(Owned::Object(1, b"hello"[..].into()))
    );
    write(&mut script, b"hello2", NO_RULES);
    exchange(
        &mut script,
        "0e000000010000000000000001000000000000007b788118a40100007b28250001000000020000000000000001000000000000000c0000000000000000000000000000000001030061626368656c6c6f32",
        "000000000200000000000000",
    );
    assert_eq!(script.completed().1, Ok(Owned::Version(2)));
    let exists = RejectRules {
        exists: true,
        ..NO_RULES
    };
    write(&mut script, b"x", exists);
    exchange(
        &mut script,
        "0e000000010000000000000001000000000000007b788118a40100007b2825000100000003000000000000000200000000000000070000000000000000000000000100000001030061626378",
        "040000000200000000000000",
    );
    assert_eq!(
        script.completed().1,
        Err(Error::Refused {
            status: Status::ObjectExists,
            version: 2
        })
    );
    script
        .client
        .read(script.now, table, b"zzz", &NO_RULES, &mut script.out);
    exchange(
        &mut script,
        "0d000000010000000000000003000000000000000000000000007a7a7a",
        "03000000000000000000000000000000",
    );
    assert_eq!(
        script.completed().1,
        Err(Error::status(Status::ObjectDoesntExist))
    );
    script
        .client
        .drop_table(script.now, b"cap", &mut script.out);
    exchange(&mut script, "0c0002000400000063617000", "00000000");
    assert_eq!(script.completed().1, Ok(Owned::Done));
}
