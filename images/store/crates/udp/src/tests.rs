use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use transport::datagram::{Receive, Transmit};

use crate::{USUAL_MTU, open};

const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// Receives until there are `count` datagrams.
fn receive(
    receiver: &mut impl Receive,
    sender: &mut impl Transmit,
    count: usize,
) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < count && start.elapsed() < Duration::from_secs(10) {
        for index in 0..receiver.poll(sender) {
            let datagram = receiver.datagram(index);
            got.push((datagram.from, datagram.payload.to_vec()));
        }
    }
    got
}

#[test]
fn datagrams_come_as_they_were_sent() {
    let (_unused, mut here) = open(HERE, USUAL_MTU).unwrap();
    let (mut there_receiver, mut there) = open(HERE, USUAL_MTU).unwrap();
    assert_eq!(here.max_payload_bytes(), 1472);
    let to = there.address();
    // Equal ones make a run that the kernel cuts; others follow.
    let mut sent: Vec<Vec<u8>> = (0..200u8).map(|number| vec![number; 1472]).collect();
    sent.extend((0..50u8).map(|number| vec![number; usize::from(number)]));
    let mut got = Vec::new();
    for batch in sent.chunks(25) {
        for datagram in batch {
            let (head, tail) = datagram.split_at(datagram.len() / 2);
            here.send(to, &[head, tail]);
        }
        here.flush();
        got.extend(receive(&mut there_receiver, &mut there, batch.len()));
    }
    assert!(got.iter().all(|(from, _)| *from == here.address()));
    let got: Vec<Vec<u8>> = got.into_iter().map(|(_, bytes)| bytes).collect();
    assert!(got == sent);
}

#[test]
fn one_that_is_too_long_comes_empty() {
    let (_unused, mut here) = open(HERE, 9000).unwrap();
    let (mut there_receiver, mut there) = open(HERE, USUAL_MTU).unwrap();
    here.send(there.address(), &[&[1; 1473]]);
    here.send(there.address(), &[&[2; 1472]]);
    here.flush();
    let got = receive(&mut there_receiver, &mut there, 2);
    assert_eq!(got[0].1, b"");
    assert_eq!(got[1].1, vec![2; 1472]);
}

#[test]
fn a_peer_that_is_not_there_stops_nobody() {
    let (_unused, mut here) = open(HERE, USUAL_MTU).unwrap();
    let (mut there_receiver, mut there) = open(HERE, USUAL_MTU).unwrap();
    for _ in 0..100 {
        here.send(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), &[b"nobody"]);
        here.send(there.address(), &[b"somebody"]);
        here.flush();
    }
    assert_eq!(receive(&mut there_receiver, &mut there, 100).len(), 100);
}

#[test]
fn an_impossible_mtu_is_refused() {
    let Err(error) = open(HERE, 100) else {
        panic!("it was taken");
    };
    assert!(error.to_string().contains("576"), "{error}");
}
