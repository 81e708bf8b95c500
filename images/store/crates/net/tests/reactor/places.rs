//! Bounds of connections and of silence: who is refused, and who makes room.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rcbox_net::{Limits, Options, Protocol};

use super::{DEADLINE, Running, frame, limited, receive, send};

/// An address with more than its part of all connections makes room for others.
#[test]
fn one_address_does_not_keep_others_out() {
    let running = limited(Limits {
        connections: 8,
        ..Limits::default()
    });
    let mut crowd: Vec<TcpStream> = (0..8).map(|_| running.connect()).collect();
    for stream in &mut crowd {
        send(stream, 1, b"x");
        receive(stream);
    }
    let mut other = running.connect_from(99);
    send(&mut other, 2, b"x");
    assert_eq!(receive(&mut other).0, 2);
    running.expect("closed: it was silent for longest");
    running.stop();
}

#[test]
fn a_message_that_is_never_finished_ends_its_connection() {
    let running = limited(Limits {
        message_timeout: Duration::from_millis(300),
        ..Limits::default()
    });
    let mut slow = running.connect();
    let mut steady = running.connect();
    let message = frame(1, b"trickled");
    slow.write_all(&message[..15]).unwrap();
    let start = Instant::now();
    // Complete messages have all their time, one after the other.
    for nonce in 0.. {
        send(&mut steady, nonce, b"x");
        assert_eq!(receive(&mut steady).0, nonce);
        let event = running.events.try_recv();
        if event.is_ok_and(|event| event.contains("did not get complete")) {
            break;
        }
        assert!(start.elapsed() < DEADLINE);
    }
    assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(running.stop().closed_by_bound, 1);
}

/// Silent connections cannot keep others out for ever.
#[test]
fn the_one_that_was_silent_for_longest_makes_room() {
    let running = limited(Limits {
        connections: 2,
        idle_timeout: Duration::from_millis(50),
        ..Limits::default()
    });
    let (mut first, mut second) = (running.connect(), running.connect());
    for stream in [&mut first, &mut second] {
        send(stream, 1, b"x");
        receive(stream);
    }
    let start = Instant::now();
    let mut third = loop {
        // That one is heard of all the time.
        send(&mut first, 2, b"x");
        receive(&mut first);
        let mut third = running.connect();
        let is_served = third.write_all(&frame(3, b"x")).is_ok()
            && third.peek(&mut [0]).is_ok_and(|bytes| bytes == 1);
        if is_served {
            break third;
        }
        assert!(start.elapsed() < DEADLINE);
    };
    assert_eq!(receive(&mut third).0, 3);
    running.expect("closed: it was silent for longest");
    assert!(matches!(second.read(&mut [0]), Ok(0) | Err(_)));
    send(&mut first, 4, b"x");
    assert_eq!(receive(&mut first).0, 4);
    running.stop();
}

#[test]
fn more_connections_than_allowed_are_refused_and_places_become_free_again() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let running = Running::start(
        Options {
            limits,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    let mut first = running.connect();
    let mut second = running.connect();
    for stream in [&mut first, &mut second] {
        send(stream, 1, b"x");
        receive(stream);
    }
    let mut third = running.connect();
    assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
    drop(first);
    running.expect("closed: the peer closed");
    let mut fourth = running.connect();
    send(&mut fourth, 1, b"x");
    assert_eq!(receive(&mut fourth), (1, b"x".to_vec()));
    assert_eq!(running.stop().refused, 1);
}
