//! A device whose wire is a file: frames that were written beforehand come in, and what goes out is read back, by us and by `tshark`. DPDK's
//! `net_pcap` stands in for the NIC; it needs neither rights nor hugepages. A process can start DPDK once, so this is one test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;

use frames::arp::{Arp, Operation};
use frames::{Checked, Frame, HEADERS_BYTES, Interface, Sums, Template, decode, set_station};
use rcbox_dpdk::{Device, DeviceOptions, Eal, EalOptions, Hugepages, Receiver, Sender, Steering};
use transport::datagram::{Receive, Transmit};

/// The address that `net_pcap` gives to its first device.
const US: Interface = interface(1, [0x02, 0x70, 0x63, 0x61, 0x70, 0x00]);
const PEER: Interface = interface(2, [2, 0, 0, 0, 0, 2]);
const ASKER: Interface = interface(3, [2, 0, 0, 0, 0, 3]);
const UNKNOWN: Interface = interface(4, [2, 0, 0, 0, 0, 4]);
const TOLD: Interface = interface(5, [2, 0, 0, 0, 0, 5]);
const NOBODY: Interface = interface(6, [2, 0, 0, 0, 0, 6]);

const fn interface(last: u8, mac: [u8; 6]) -> Interface {
    Interface {
        ip: Ipv4Addr::new(10, 0, 0, last),
        mac,
    }
}

/// A datagram from the peer's port 7.
fn datagram(to_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut headers = [0; HEADERS_BYTES];
    let to = SocketAddrV4::new(US.ip, to_port);
    Template::new(PEER, 7, Sums::Software).write(&mut headers, to, payload.len() as u16);
    set_station(&mut headers, US.mac);
    [&headers, payload].concat()
}

fn changed(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// What comes in. All of it in one go: less than a burst.
fn incoming() -> Vec<Vec<u8>> {
    let answer = Arp {
        operation: Operation::Reply,
        sender: UNKNOWN,
        target: US,
    };
    vec![
        Arp::request(ASKER, US.ip).encode().to_vec(),
        datagram(7001, b"one"),
        datagram(7002, b"two"),
        changed(datagram(7001, b"ip sum"), 24, &[1, 2]),
        changed(datagram(7001, b"udp sum"), 40, &[1, 2]),
        changed(datagram(7001, b"version"), 14, &[0x65]),
        changed(datagram(7001, b"ipv6"), 12, &[0x86, 0xdd]),
        changed(datagram(7001, b"vlan 5"), 12, &[0x81, 0x00, 0x00, 0x05]),
        changed(datagram(7001, b"another's"), 0, &[2, 9, 9, 9, 9, 9]),
        datagram(7003, b"nobody's port"),
        answer.encode().to_vec(),
        vec![0xff; 14],
        datagram(7001, &[0xab; 1472]),
    ]
}

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    // Magic number, version 2.4, no zone, longest frame, Ethernet.
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for (second, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        for word in [second as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(path, file).expect("a capture");
}

fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).expect("a capture");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        frames.push(behind[..length].to_vec());
        rest = &behind[length..];
    }
    frames
}

fn polled(receiver: &mut Receiver, sender: &mut Sender) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let count = receiver.poll(sender);
    let datagrams = (0..count).map(|index| receiver.datagram(index));
    datagrams
        .map(|datagram| (datagram.from, datagram.payload.to_vec()))
        .collect()
}

/// What two lanes do with the incoming frames.
fn converse(device: &Device) {
    let (mut receiver, mut sender) = device.queue(0, 7001).expect("lane 0");
    let (mut second_receiver, mut second_sender) = device.queue(1, 7002).expect("lane 1");
    assert!(device.queue(1, 7009).is_err(), "taken");
    assert!(device.queue(2, 7009).is_err(), "no such lane");
    assert_eq!(
        device.steering(1),
        Some(&Steering::Common("the port has one queue".to_owned()))
    );

    let at = |interface: Interface| SocketAddrV4::new(interface.ip, 7);
    sender.send(at(UNKNOWN), &[b"asked", b" ", b"first"]);
    sender.learn(TOLD.ip, TOLD.mac);
    sender.send(at(TOLD), &[b"told"]);
    sender.flush();

    let peer = at(PEER);
    let expected = vec![(peer, b"one".to_vec()), (peer, vec![0xab; 1472])];
    assert_eq!(polled(&mut receiver, &mut sender), expected);
    assert_eq!(
        polled(&mut second_receiver, &mut second_sender),
        [(peer, b"two".to_vec())]
    );
    assert_eq!(polled(&mut receiver, &mut sender), []);

    // Who was only heard is asked before it is answered: see `nothing_is_learned_from_what_nobody_asked_for`. A lane believes answers to its own
    // questions.
    sender.learn(PEER.ip, PEER.mac);
    second_sender.learn(PEER.ip, PEER.mac);
    sender.send(peer, &[b"answer one"]);
    second_sender.send(peer, &[b"answer two"]);
    second_sender.send(at(UNKNOWN), &[b"asked by this lane"]);
    sender.send(at(NOBODY), &[b"waits in vain"]);
    sender.send(peer, &[&[0; 1473]]);
    sender.send(SocketAddrV4::new(US.ip, 7002), &[b"to ourselves"]);
    sender.flush();
    second_sender.flush();
    let ours = SocketAddrV4::new(US.ip, 7001);
    assert_eq!(
        polled(&mut second_receiver, &mut second_sender),
        [(ours, b"to ourselves".to_vec())]
    );
    check_counters(device);
}

fn check_counters(device: &Device) {
    let counters = device.counters(0);
    let count = |name: &str| {
        counters
            .iter()
            .find(|(known, _)| *known == name)
            .expect("a counter")
            .1
    };
    for (name, expected) in [
        ("received", 2),
        ("handed_over", 1),
        ("no_such_port", 1),
        ("arp_asked", 2),
        ("arp_answered", 1),
        ("too_long", 1),
        ("wrong_sum", 2),
        ("malformed", 1),
        ("other_protocol", 2),
        ("vlan", 1),
        ("other_station", 1),
        ("port_full", 0),
    ] {
        assert_eq!(count(name), expected, "{name}");
    }
}

fn check_outgoing(frames: &[Vec<u8>]) {
    let decoded = |interface: Interface, frame: &[u8]| {
        let found = decode(frame, interface, Checked::default());
        match found.unwrap_or_else(|refused| panic!("{refused:?}: {frame:02x?}")) {
            Frame::Datagram(datagram) => {
                assert_eq!((datagram.station, datagram.to_port), (US.mac, 7));
                String::from_utf8_lossy(&frame[datagram.payload]).into_owned()
            }
            Frame::Arp(arp) => format!("{:?} {} {}", arp.operation, arp.sender.ip, arp.target.ip),
        }
    };
    let expected = [
        (PEER, "Request 10.0.0.1 10.0.0.1"),
        (PEER, "Request 10.0.0.1 10.0.0.4"),
        (TOLD, "told"),
        (ASKER, "Reply 10.0.0.1 10.0.0.3"),
        (UNKNOWN, "asked first"),
        (PEER, "answer one"),
        (PEER, "Request 10.0.0.1 10.0.0.6"),
        (PEER, "answer two"),
        (PEER, "Request 10.0.0.1 10.0.0.4"),
    ];
    let texts: Vec<String> = expected
        .iter()
        .zip(frames)
        .map(|((to, _), frame)| decoded(*to, frame))
        .collect();
    assert_eq!(texts, expected.map(|(_, text)| text));
    assert_eq!(frames.len(), expected.len());
}

/// The dissectors of another project find nothing wrong, sums included.
fn check_with_tshark(path: &Path, frames: usize) {
    let tshark = |filter: &str| {
        let mut command = Command::new("tshark");
        command.args([
            "-n",
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
            "-Y",
            filter,
            "-r",
        ]);
        command.arg(path).output()
    };
    let output = match tshark("arp || udp") {
        Ok(output) => output,
        Err(error) => {
            eprintln!(
                "SKIPPED: what was sent is not read by tshark, which does not start ({error}); apt-get install tshark"
            );
            return;
        }
    };
    assert!(output.status.success(), "{output:?}");
    let lines = |output: &[u8]| String::from_utf8_lossy(output).lines().count();
    assert_eq!(
        lines(&output.stdout),
        frames,
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let wrong = tshark("_ws.malformed || _ws.expert.severity >= 0x600000 || ip.checksum.status == 0 || udp.checksum.status == 0").expect("runs");
    assert!(wrong.status.success(), "{wrong:?}");
    assert_eq!(String::from_utf8_lossy(&wrong.stdout), "");
}

#[test]
fn what_comes_in_is_sorted_and_what_goes_out_is_well_formed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    write_capture(&input, &incoming());
    let options = EalOptions {
        arguments: Some(format!(
            "--vdev net_pcap0,rx_pcap={},tx_pcap={}",
            input.display(),
            output.display()
        )),
        hugepages: Hugepages::Never,
        memory_mb: 64,
    };
    let eal = Eal::init(&options).expect("DPDK");
    assert!(Eal::init(&options).is_err_and(|error| error.contains("once")));
    assert!(
        eal.port("eth0")
            .is_err_and(|error| error.ends_with("there are: net_pcap0"))
    );

    let wanted = DeviceOptions {
        lanes: 2,
        ..DeviceOptions::new("net_pcap0", US.ip)
    };
    let device = Device::open(&eal, &wanted).expect("the device");
    assert!(Device::open(&eal, &wanted).is_err_and(|error| error.contains("in use")));
    assert_eq!(device.mac(), US.mac);
    converse(&device);
    assert_eq!(device.port_stats().rx_packets, incoming().len() as u64);
    drop(device);

    let frames = read_capture(&output);
    check_outgoing(&frames);
    check_with_tshark(&output, frames.len());
}
