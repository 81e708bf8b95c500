use proptest::prelude::*;

use super::*;
use crate::{HEADERS_BYTES, Sums, Template, set_station};

const US: Interface = Interface {
    ip: Ipv4Addr::new(192, 168, 101, 29),
    mac: [0x94, 0xde, 0x80, 0xab, 0x01, 0x79],
};
const PEER: Interface = Interface {
    ip: Ipv4Addr::new(192, 168, 101, 30),
    mac: [0x94, 0xde, 0x80, 0xab, 0x01, 0x80],
};
const PORT: u16 = 12247;

/// A frame from the peer's port 7 to us.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut headers = [0; HEADERS_BYTES];
    let bytes = u16::try_from(payload.len()).expect("a payload");
    Template::new(PEER, 7, Sums::Software).write(
        &mut headers,
        SocketAddrV4::new(US.ip, PORT),
        bytes,
    );
    set_station(&mut headers, US.mac);
    [&headers, payload].concat()
}

fn decoded(frame: &[u8]) -> Result<Frame, Refused> {
    decode(frame, US, Checked::default())
}

/// Writes the sum of the IPv4 header anew.
fn sum_header(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let sum = !fold(add(0, &frame[14..end]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Writes UDP's sum, for a header without options.
fn sum_udp(frame: &mut [u8]) {
    let bytes = u16::from_be_bytes([frame[38], frame[39]]);
    frame[40..42].fill(0);
    let sum = !fold(add(pseudo_header(PEER.ip, US.ip, bytes), &frame[34..]));
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
}

fn payload_of(frame: &[u8]) -> Vec<u8> {
    match decoded(frame) {
        Ok(Frame::Datagram(datagram)) => frame[datagram.payload].to_vec(),
        other => panic!("no datagram: {other:?}"),
    }
}

/// Byte for byte as it must be on the wire.
#[test]
fn golden_datagram() {
    let text: String = frame(b"ping")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let ethernet = "94de80ab017994de80ab01800800";
    let ipv4 = "45000020000040004011ef40c0a8651ec0a8651d";
    let udp = "00072fd7000c0000";
    assert_eq!(text, format!("{ethernet}{ipv4}{udp}70696e67"));
}

#[test]
fn a_datagram_arrives_as_it_was_sent() {
    let frame = frame(b"hello");
    let expected = Datagram {
        from: SocketAddrV4::new(PEER.ip, 7),
        station: PEER.mac,
        to_port: PORT,
        payload: 42..47,
    };
    assert_eq!(decoded(&frame), Ok(Frame::Datagram(expected)));
}

#[test]
fn what_ethernet_filled_up_is_not_payload() {
    let mut filled = frame(b"x");
    filled.resize(60, 0xee);
    assert_eq!(payload_of(&filled), b"x");
}

#[test]
fn options_are_skipped() {
    let mut frame = frame(b"abc");
    frame.splice(34..34, [1, 1, 1, 0]);
    frame[14] = 0x46;
    frame[17] += 4;
    sum_header(&mut frame);
    assert_eq!(payload_of(&frame), b"abc");
    frame[35] ^= 1;
    assert_eq!(
        decoded(&frame),
        Err(Refused::WrongSum),
        "options are part of the header's sum"
    );
}

#[test]
fn a_priority_is_no_vlan() {
    let mut tagged = frame(b"abc");
    tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x00]);
    assert_eq!(payload_of(&tagged), b"abc");
    tagged[15] = 5;
    assert_eq!(decoded(&tagged), Err(Refused::Vlan));
    assert_eq!(decoded(&tagged[..16]), Err(Refused::Malformed));
}

#[test]
fn what_is_not_for_us_is_refused() {
    let changes: [(usize, u8, Refused); 10] = [
        (0, 0x96, Refused::OtherStation),
        (6, 0x95, Refused::BadSource),
        (12, 0x86, Refused::OtherProtocol),
        (14, 0x65, Refused::Malformed),
        (14, 0x44, Refused::Malformed),
        (20, 0x20, Refused::Fragment),
        (21, 0x01, Refused::Fragment),
        (23, 6, Refused::NotUdp),
        (26, 224, Refused::BadSource),
        (33, 28, Refused::OtherAddress),
    ];
    for (at, byte, refused) in changes {
        let mut frame = frame(b"abc");
        frame[at] = byte;
        sum_header(&mut frame);
        assert_eq!(decoded(&frame), Err(refused), "byte {at}");
    }
    let mut ours = frame(b"abc");
    ours[26..30].copy_from_slice(&US.ip.octets());
    sum_header(&mut ours);
    assert_eq!(decoded(&ours), Err(Refused::BadSource));
    let inside = Checked {
        inside: true,
        ..Checked::default()
    };
    assert!(
        decode(&ours, US, inside).is_ok(),
        "from another of our own ports"
    );
    let mut to_all = frame(b"abc");
    to_all[..6].fill(0xff);
    assert_eq!(decoded(&to_all), Err(Refused::OtherStation));
    let mut from_port_0 = frame(b"abc");
    from_port_0[35] = 0;
    assert_eq!(decoded(&from_port_0), Err(Refused::BadSource));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    for (at, byte) in [(17, 100), (17, 19), (39, 7), (39, 12)] {
        let mut frame = frame(b"abc");
        frame[at] = byte;
        sum_header(&mut frame);
        assert_eq!(decoded(&frame), Err(Refused::Malformed), "byte {at}");
    }
    let frame = frame(b"abc");
    for length in 0..frame.len() {
        assert_eq!(
            decoded(&frame[..length]),
            Err(Refused::Malformed),
            "{length} bytes"
        );
    }
}

#[test]
fn sums_are_checked_unless_the_nic_did() {
    let mut summed = frame(b"abcd");
    sum_udp(&mut summed);
    assert_eq!(payload_of(&summed), b"abcd");
    summed[44] ^= 0x10;
    assert_eq!(decoded(&summed), Err(Refused::WrongSum));
    assert!(
        decode(
            &summed,
            US,
            Checked {
                ip: false,
                udp: true,
                inside: false
            }
        )
        .is_ok()
    );
    let mut frame = frame(b"abcd");
    frame[22] -= 1;
    assert_eq!(decoded(&frame), Err(Refused::WrongSum));
    assert!(
        decode(
            &frame,
            US,
            Checked {
                ip: true,
                udp: false,
                inside: false
            }
        )
        .is_ok()
    );
}

/// What a NIC completes: its field holds the sum of the pseudo header.
#[test]
fn sums_that_the_nic_completes() {
    let mut headers = [0; HEADERS_BYTES];
    Template::new(PEER, 7, Sums::Nic).write(&mut headers, SocketAddrV4::new(US.ip, PORT), 4);
    set_station(&mut headers, US.mac);
    assert_eq!(headers[24..26], [0, 0]);
    let mut frame = [&headers[..], b"abcd"].concat();
    let udp = !fold(add(0, &frame[34..]));
    frame[40..42].copy_from_slice(&udp.to_be_bytes());
    sum_header(&mut frame);
    assert_eq!(payload_of(&frame), b"abcd");
}

proptest! {
    #[test]
    fn every_payload_arrives(payload in proptest::collection::vec(any::<u8>(), 0..9000), with_sum: bool) {
        let mut frame = frame(&payload);
        if with_sum {
            sum_udp(&mut frame);
        }
        prop_assert_eq!(payload_of(&frame), payload);
    }

    #[test]
    fn any_bytes_give_something_within(frame in proptest::collection::vec(any::<u8>(), 0..200), ip: bool, udp: bool) {
        if let Ok(Frame::Datagram(datagram)) = decode(&frame, US, Checked { ip, udp, inside: false }) {
            prop_assert!(datagram.payload.start <= datagram.payload.end && datagram.payload.end <= frame.len());
        }
    }

    /// One wrong bit behind the destination's MAC address is noticed, where there is a sum.
    #[test]
    fn a_flipped_bit_is_never_taken_for_the_payload(bit in 14usize * 8..50 * 8) {
        let mut frame = frame(b"12345678");
        sum_udp(&mut frame);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decoded(&frame).is_err());
    }
}
