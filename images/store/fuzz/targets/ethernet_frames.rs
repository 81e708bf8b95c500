//! Frames as others send them, and neighbours: nothing crashes, what comes out lies within, and what is remembered stays bounded.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use frames::arp::Operation;
use frames::{
    Checked, Frame, HEADERS_BYTES, Interface, Limits, Neighbours, Route, Sums, Template, decode,
    set_station,
};
use fuzz::bounded_target;

const US: Interface = Interface {
    ip: Ipv4Addr::new(10, 0, 0, 1),
    mac: [2, 0, 0, 0, 0, 1],
};

/// Sends a payload back; it must then be a datagram to the one that it came from.
fn echo(from: SocketAddrV4, station: [u8; 6], payload: &[u8]) {
    let mut headers = [0; HEADERS_BYTES];
    Template::new(US, 7, Sums::Software).write(&mut headers, from, payload.len() as u16);
    set_station(&mut headers, station);
    let answer = [&headers, payload].concat();
    let peer = Interface {
        ip: *from.ip(),
        mac: station,
    };
    let Ok(Frame::Datagram(datagram)) = decode(&answer, peer, Checked::default()) else {
        panic!("our own frame is refused");
    };
    assert_eq!(
        (datagram.to_port, &answer[datagram.payload]),
        (from.port(), payload)
    );
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let route = Route {
        us: US.ip,
        prefix_bits: 24,
        gateway: None,
    };
    let limits = Limits {
        entries: 8,
        ..Limits::default()
    };
    let mut neighbours: Neighbours<usize> = Neighbours::new(route, limits);
    let mut now = Duration::ZERO;
    let mut rest = data;
    // Frames, each with its length, what the NIC says of its sums, and the time until the next.
    while let Some((&[length, checked, wait], behind)) = rest.split_first_chunk::<3>() {
        let (frame, behind) = behind.split_at(behind.len().min(length.into()));
        rest = behind;
        let checked = Checked {
            ip: checked & 1 != 0,
            udp: checked & 2 != 0,
            inside: checked & 4 != 0,
        };
        match decode(frame, US, checked) {
            Ok(Frame::Datagram(datagram)) => {
                let payload = &frame[datagram.payload];
                if *datagram.from.ip() == US.ip {
                    continue;
                }
                echo(datagram.from, datagram.station, payload);
                neighbours.send(now, *datagram.from.ip(), payload.len(), |_| ());
            }
            Ok(Frame::Arp(arp)) => {
                let Interface { ip, mac } = arp.sender;
                match arp.operation {
                    Operation::Reply if arp.target.ip == US.ip => {
                        neighbours.answered(now, ip, mac);
                    }
                    Operation::Reply | Operation::Request => neighbours.claimed(ip, mac),
                }
                neighbours.send(now, arp.target.ip, 0, |_| ());
                if let Some(answer) = arp.answer(US) {
                    assert_eq!(answer.encode()[..6], arp.sender.mac);
                }
            }
            Err(_) => {}
        }
        now += Duration::from_millis(u64::from(wait) * 10);
        neighbours.tick(now, |_| ());
        assert!(neighbours.len() <= limits.entries && neighbours.waiting() <= limits.waiting);
    }
});
