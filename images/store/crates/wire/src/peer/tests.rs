//! Bytes of messages between masters and backups.

use super::*;

const REPLICA: ReplicaId = ReplicaId {
    log: ServerId(0x0000_0002_0000_0007),
    segment_id: 9,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn bytes_are_what_they_were() {
    let append = Append {
        replica: REPLICA,
        role: Role::Side,
        offset: 0x100,
        closes: true,
        crc: 0xa1b2_c3d4,
        data: b"abc",
    };
    let bytes = [&append.fixed_bytes()[..], append.data].concat();
    assert_eq!(
        hex(&bytes),
        "01070000000200000009000000000000000101 00010000 d4c3b2a1 616263".replace(' ', "")
    );
    assert_eq!(Request::decode(&bytes), Ok(Request::Append(append)));
    assert_eq!(append.end(), 0x103);
    let keep_alive = KeepAlive { log: REPLICA.log };
    assert_eq!(hex(&keep_alive.to_bytes()), "020700000002000000");
    assert_eq!(
        Request::decode(&keep_alive.to_bytes()),
        Ok(Request::KeepAlive(keep_alive))
    );
    let free = Free { replica: REPLICA };
    assert_eq!(hex(&free.to_bytes()), "0307000000020000000900000000000000");
    assert_eq!(Request::decode(&free.to_bytes()), Ok(Request::Free(free)));
    let read = Read {
        replica: REPLICA,
        offset: 5,
        bytes: 6,
    };
    assert_eq!(
        hex(&read.to_bytes()),
        "04070000000200000009000000000000000500000006000000"
    );
    assert_eq!(Request::decode(&read.to_bytes()), Ok(Request::Read(read)));
    let answer = Answer {
        status: Status::Missing,
        bytes: 0x102,
    };
    assert_eq!(hex(&answer.to_bytes()), "0402010000");
    assert_eq!(Answer::decode(&answer.to_bytes()), Ok(answer));
    let data = [&Data::fixed_bytes(Status::Ok)[..], b"xyz"].concat();
    assert_eq!(
        Data::decode(&data),
        Ok(Data {
            status: Status::Ok,
            data: b"xyz"
        })
    );
}

#[test]
fn what_recoveries_and_returning_backups_need() {
    let tablets = [(1, 2, 3), (4, 5, u64::MAX)].map(|(table_id, start, end)| TabletRange {
        table_id,
        start_key_hash: start,
        end_key_hash: end,
    });
    let mut bytes = Vec::new();
    ReadEntries::encode(REPLICA, 7, 8, &tablets, &mut bytes);
    assert_eq!(
        hex(&bytes[..25]),
        "05070000000200000009000000000000000700000008000000"
    );
    assert_eq!(hex(&bytes[25..33]), "0100000000000000");
    let Ok(Request::ReadEntries(read)) = Request::decode(&bytes) else {
        panic!("not what was written");
    };
    assert_eq!((read.replica, read.offset, read.bytes), (REPLICA, 7, 8));
    assert!(read.tablets.tablets().eq(tablets));
    assert_eq!(Request::decode(&bytes[..50]), Err(Malformed::Short));
    bytes.resize(25 + 24 * (MAX_FILTER_TABLETS + 1), 0);
    assert_eq!(Request::decode(&bytes), Err(Malformed::TooLarge));
    let unordered = |tablets: &[(u64, u64, u64)]| {
        let mut bytes = Vec::new();
        let tablets = tablets.iter().map(|&(table_id, start, end)| TabletRange {
            table_id,
            start_key_hash: start,
            end_key_hash: end,
        });
        let tablets: Vec<TabletRange> = tablets.collect();
        ReadEntries::encode(REPLICA, 0, 0, &tablets, &mut bytes);
        Request::decode(&bytes) == Err(Malformed::Unordered)
    };
    assert!(unordered(&[(1, 3, 2)]));
    assert!(unordered(&[(2, 0, 1), (1, 0, 1)]));
    assert!(unordered(&[(1, 0, 5), (1, 5, 9)]), "they overlap");
    assert!(!unordered(&[(1, 0, 5), (1, 6, 9), (2, 0, 0)]));
    assert!(!unordered(&[]));

    let list = List { log: REPLICA.log };
    assert_eq!(hex(&list.to_bytes()), "060700000002000000");
    assert_eq!(Request::decode(&list.to_bytes()), Ok(Request::List(list)));
    let fixed = Entries::fixed_bytes(Status::Ok, 0x203);
    assert_eq!(hex(&fixed), "0003020000");
    let entries = Entries {
        status: Status::Ok,
        next_offset: 0x203,
        data: b"ab",
    };
    assert_eq!(Entries::decode(&[&fixed[..], b"ab"].concat()), Ok(entries));
    let closed = Held::Closed { bytes: 5, crc: 6 };
    let replicas = [closed, Held::Nothing, Held::OpenHead].map(|held| Listed {
        segment_id: 4,
        held,
    });
    let listing = Listing {
        status: Status::Ok,
        replicas: replicas.to_vec(),
    };
    let mut bytes = Vec::new();
    listing.encode(&mut bytes);
    assert_eq!(
        hex(&bytes[..18]),
        "00 0400000000000000 01 05000000 06000000".replace(' ', "")
    );
    assert_eq!(bytes[26], 0);
    assert_eq!(bytes[43], 2);
    assert_eq!(Listing::decode(&bytes), Ok(listing));
    assert_eq!(Listing::decode(&bytes[..20]), Err(Malformed::Short));
    bytes[43] = 3;
    assert_eq!(Listing::decode(&bytes), Err(Malformed::UnknownValue(3)));
}

#[test]
fn what_is_no_message_is_refused() {
    assert_eq!(Request::decode(b""), Err(Malformed::Short));
    assert_eq!(Request::decode(&[9]), Err(Malformed::UnknownKind(9)));
    let mut append = Append {
        replica: REPLICA,
        role: Role::Head,
        offset: 0,
        closes: false,
        crc: 0,
        data: &[],
    }
    .fixed_bytes();
    for length in 0..append.len() {
        assert_eq!(Request::decode(&append[..length]), Err(Malformed::Short));
    }
    let oversized = [&append[..], &vec![0; MAX_APPEND_BYTES + 1]].concat();
    assert_eq!(Request::decode(&oversized), Err(Malformed::TooLarge));
    append[19..23].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        Request::decode(&[&append[..], b"x"].concat()),
        Err(Malformed::TooLarge)
    );
    append[17] = 2;
    assert_eq!(Request::decode(&append), Err(Malformed::UnknownValue(2)));
    append[17] = 0;
    append[18] = 7;
    assert_eq!(Request::decode(&append), Err(Malformed::UnknownValue(7)));
    let keep_alive = KeepAlive { log: REPLICA.log }.to_bytes();
    assert_eq!(
        Request::decode(&[&keep_alive[..], b"x"].concat()),
        Err(Malformed::Long)
    );
    assert_eq!(
        Answer::decode(&[6, 0, 0, 0, 0]),
        Err(Malformed::UnknownValue(6))
    );
    assert_eq!(Answer::decode(&[0]), Err(Malformed::Short));
    assert_eq!(Data::decode(&[]), Err(Malformed::Short));
}
