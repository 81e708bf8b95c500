//! A port that is opened anew while its lanes poll: it is another one then, with another hardware address, and the lanes go on with it. `net_pcap`
//! stands in for the NIC: each time that it is opened it reads its file from the beginning, and counts its address on. A process can start DPDK
//! once, so this is one test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frames::arp::Arp;
use frames::{HEADERS_BYTES, Interface, Mac, Sums, Template, set_station};
use rcbox_dpdk::{Device, DeviceOptions, Eal, EalOptions, Hugepages, Receiver, Sender};
use transport::datagram::{Receive, Transmit};

const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// What `net_pcap` gives to the first and to the second device that it opens.
const FIRST: Mac = [0x02, 0x70, 0x63, 0x61, 0x70, 0x00];
const SECOND: Mac = [0x02, 0x70, 0x63, 0x61, 0x70, 0x01];
const PEER: Interface = Interface {
    ip: Ipv4Addr::new(10, 0, 0, 2),
    mac: [2, 0, 0, 0, 0, 2],
};
const LANES: u16 = 2;
const FIRST_PORT: u16 = 7001;

/// A datagram of the peer to a lane of a station.
fn datagram(lane: u16, station: Mac) -> Vec<u8> {
    let mut headers = [0; HEADERS_BYTES];
    let to = SocketAddrV4::new(IP, FIRST_PORT + lane);
    Template::new(PEER, 7, Sums::Software).write(&mut headers, to, 2);
    set_station(&mut headers, station);
    [&headers[..], b"hi"].concat()
}

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    // Magic number, version 2.4, no zone, longest frame, Ethernet.
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let length = frame.len() as u32;
        for word in [0, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(path, file).expect("a capture");
}

/// Polls, and sends an answer to whatever comes.
fn serve((mut receiver, mut sender): (Receiver, Sender), received: &AtomicU64, ends: &AtomicBool) {
    sender.learn(PEER.ip, PEER.mac);
    while !ends.load(Ordering::Relaxed) {
        for index in 0..receiver.poll(&mut sender) {
            let from = receiver.datagram(index).from;
            sender.send(from, &[b"ho"]);
            received.fetch_add(1, Ordering::Relaxed);
        }
        sender.flush();
        std::thread::yield_now();
    }
}

fn wait_for(received: &AtomicU64, count: u64) {
    let start = Instant::now();
    while received.load(Ordering::Relaxed) < count {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{received:?} of {count}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn lanes_go_on_with_a_port_that_was_opened_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    let frames = [FIRST, SECOND].map(|mac| [datagram(0, mac), datagram(1, mac), datagram(1, mac)]);
    write_capture(&input, &frames.concat());
    let arguments = format!(
        "--vdev net_pcap0,rx_pcap={},tx_pcap={}",
        input.display(),
        output.display()
    );
    let eal = Eal::init(&EalOptions {
        arguments: Some(arguments),
        hugepages: Hugepages::Never,
        memory_mb: 64,
    });
    let options = DeviceOptions {
        lanes: LANES,
        ..DeviceOptions::new("net_pcap0", IP)
    };
    let device = Device::open(&eal.expect("DPDK"), &options).expect("the device");
    assert_eq!(device.mac(), FIRST);
    let lanes = (0..LANES).map(|lane| device.queue(lane, FIRST_PORT + lane).expect("a lane"));
    let lanes: Vec<_> = lanes.collect();
    let (received, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for lane in lanes {
            scope.spawn(|| serve(lane, &received, &ends));
        }
        wait_for(&received, 3);
        device.open_anew().expect("a port as before");
        // All of the file once more; of it what is for the address that the port has now.
        wait_for(&received, 6);
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(device.mac(), SECOND);
    assert_eq!(device.opened_anew(), 1);
    drop(device);
    let sent = fs::read(&output).expect("a capture");
    let contains = |part: &[u8]| sent.windows(part.len()).any(|here| here == part);
    let us = Interface {
        ip: IP,
        mac: SECOND,
    };
    assert!(
        contains(&Arp::announcement(us).encode()),
        "it says who it is now"
    );
    assert!(
        contains(&[PEER.mac, SECOND].concat()),
        "and answers as such"
    );
    assert!(!contains(&FIRST), "a file of its own");
}
