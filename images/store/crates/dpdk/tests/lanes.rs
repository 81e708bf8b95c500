//! Two devices of one process, three lanes each, six threads: every datagram gets to the lane that it is for, whichever lane receives it, and no
//! packet buffer is lost. The devices are the two ends of a `net_memif`, which stands in for two NICs with a cable between them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcbox_dpdk::{Device, DeviceOptions, Eal, EalOptions, Hugepages, Receiver, Sender};
use transport::datagram::{Receive, Transmit};

const LANES: u16 = 3;
const ROUNDS: u32 = 1000;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FIRST_PORT: u16 = 7000;

fn open(eal: &Eal, name: &str, ip: Ipv4Addr) -> Device {
    let options = DeviceOptions {
        lanes: LANES,
        ..DeviceOptions::new(name, ip)
    };
    Device::open(eal, &options).expect("a device")
}

/// One that asks is done, or has failed.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends back what comes, with its own number behind it.
fn serve(lane: u16, (mut receiver, mut sender): (Receiver, Sender), asking: &AtomicUsize) {
    while asking.load(Ordering::Relaxed) > 0 {
        for index in 0..receiver.poll(&mut sender) {
            let datagram = receiver.datagram(index);
            sender.send(datagram.from, &[datagram.payload, &lane.to_le_bytes()]);
        }
        sender.flush();
        std::thread::yield_now();
    }
}

/// Waits for the answer to one datagram, which may have to be sent again: until the link is up, for example.
fn call(
    receiver: &mut Receiver,
    sender: &mut Sender,
    to: SocketAddrV4,
    payload: &[u8],
) -> (SocketAddrV4, Vec<u8>) {
    let start = Instant::now();
    loop {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no answer from {to}"
        );
        sender.send(to, &[payload]);
        sender.flush();
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(500) {
            for index in 0..receiver.poll(sender) {
                let datagram = receiver.datagram(index);
                if datagram.payload.starts_with(payload) {
                    return (datagram.from, datagram.payload.to_vec());
                }
            }
            std::thread::yield_now();
        }
    }
}

fn ask(lane: u16, (mut receiver, mut sender): (Receiver, Sender)) {
    for round in 0..ROUNDS {
        let server = (round as u16 + lane) % LANES;
        let to = SocketAddrV4::new(SERVER, FIRST_PORT + server);
        let payload = (u64::from(lane) << 32 | u64::from(round)).to_le_bytes();
        let (from, answer) = call(&mut receiver, &mut sender, to, &payload);
        assert_eq!(from, to);
        assert_eq!(
            answer[8..],
            server.to_le_bytes(),
            "another lane has answered"
        );
    }
}

fn total(device: &Device, name: &str) -> u64 {
    let of_lane = |lane| {
        device
            .counters(lane)
            .into_iter()
            .find(|(known, _)| *known == name)
            .expect("a counter")
            .1
    };
    (0..LANES).map(of_lane).sum()
}

#[test]
fn every_lane_gets_what_is_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("memif.sock");
    let end = |number: u32, role: &str| {
        format!(
            "--vdev net_memif{number},role={role},socket={},socket-abstract=no",
            socket.display()
        )
    };
    let options = EalOptions {
        arguments: Some(format!("{} {}", end(0, "server"), end(1, "client"))),
        hugepages: Hugepages::Never,
        memory_mb: 128,
    };
    let eal = Eal::init(&options).expect("DPDK");
    let server = open(&eal, "net_memif0", SERVER);
    let client = open(&eal, "net_memif1", CLIENT);
    // All of them before the first question: what is for a lane that is not there yet is counted.
    let lanes = (0..LANES).map(|lane| {
        let served = server.queue(lane, FIRST_PORT + lane).expect("a lane");
        let asked = client.queue(lane, 9000 + lane).expect("a lane");
        (lane, served, asked)
    });
    let lanes: Vec<_> = lanes.collect();
    let asking = AtomicUsize::new(LANES.into());
    std::thread::scope(|scope| {
        let asking = &asking;
        for (lane, served, asked) in lanes {
            scope.spawn(move || serve(lane, served, asking));
            scope.spawn(move || {
                let _leaving = Leaving(asking);
                ask(lane, asked);
            });
        }
    });
    assert!(total(&server, "received") >= u64::from(LANES) * u64::from(ROUNDS));
    assert!(
        total(&server, "handed_over") > 0,
        "lanes received for each other"
    );
    for name in [
        "wrong_sum",
        "malformed",
        "other_station",
        "no_such_port",
        "ring_full",
        "no_buffer",
    ] {
        assert_eq!(
            (total(&server, name), total(&client, name)),
            (0, 0),
            "{name}"
        );
    }
    assert_eq!((server.link().0, client.link().0), (true, true));
    // The lanes are gone, and with them what they had in hand.
    assert_eq!((server.buffers_in_use(), client.buffers_in_use()), (0, 0));
    // Left as they are to the end of the process: docs/dpdk.md says under "Holes" what comes of taking down two ends of one memif.
    std::mem::forget((server, client, eal));
}
