//! Connections that are open: messages, answers, and how a connection ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rcbox_net::{Options, Protocol};

use super::{DEADLINE, Running, receive, send};

#[test]
fn answers_carry_the_nonce_and_a_stream_of_requests_is_answered_in_full() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    for nonce in 0..500 {
        send(&mut stream, nonce, format!("message {nonce}").as_bytes());
    }
    for nonce in 0..500 {
        assert_eq!(
            receive(&mut stream),
            (nonce, format!("message {nonce}").into_bytes())
        );
    }
    let large: Vec<u8> = (0..5_000_000).map(|at| (at % 253) as u8).collect();
    send(&mut stream, 77, &large);
    let (nonce, payload) = receive(&mut stream);
    assert_eq!(nonce, 77);
    assert!(payload == large);
    send(&mut stream, 78, b"");
    assert_eq!(receive(&mut stream), (78, vec![]));
    let counters = running.stop();
    assert_eq!(
        (counters.frames_in, counters.frames_out, counters.accepted),
        (502, 502, 1)
    );
}

#[test]
fn a_connection_knows_who_is_at_its_other_end() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    for last in [1, 9] {
        let mut stream = running.connect_from(last);
        send(&mut stream, 1, b"who");
        let own = stream.local_addr().unwrap().to_string();
        assert_eq!(receive(&mut stream), (1, own.into_bytes()));
    }
    running.stop();
}

#[test]
fn a_close_lets_what_was_sent_before_through() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    send(&mut stream, 1, b"bye");
    assert_eq!(receive(&mut stream), (1, b"goodbye".to_vec()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    running.stop();
}

#[test]
fn a_peer_that_does_not_read_is_no_longer_read_and_loses_nothing() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    let mut other = running.connect();
    for nonce in 0..64 {
        send(&mut stream, nonce, b"big");
    }
    // The reactor holds a few of the 64 MiB and goes on with others.
    send(&mut other, 1, b"alive");
    assert_eq!(receive(&mut other), (1, b"alive".to_vec()));
    for nonce in 0..64 {
        let (got, payload) = receive(&mut stream);
        assert_eq!((got, payload.len()), (nonce, 1 << 20));
    }
    send(&mut stream, 64, b"again");
    assert_eq!(receive(&mut stream), (64, b"again".to_vec()));
    running.stop();
}
#[test]
fn more_busy_connections_than_are_read_directly_are_all_served() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut streams: Vec<TcpStream> = (0..40).map(|_| running.connect()).collect();
    for round in 0..50 {
        for stream in &mut streams {
            send(stream, round, b"x");
        }
        for stream in &mut streams {
            assert_eq!(receive(stream).0, round);
        }
    }
    running.stop();
}

#[test]
fn garbage_on_a_member_listener_ends_that_connection_only() {
    let running = Running::start(Options::default(), Protocol::Member, None);
    let mut stream = running.connect();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    running.expect("closed: the peer does not speak the member protocol");
    let mut good = running.connect();
    good.write_all(&transport::member::preface()).unwrap();
    good.write_all(&[&transport::member::header(5)[..], b"hello"].concat())
        .unwrap();
    running.expect("hello");
    running.stop();
}

#[test]
fn an_idle_reactor_sleeps() {
    let running = Running::start(Options::default(), Protocol::Rpc, None);
    let mut stream = running.connect();
    let deadline = Instant::now() + DEADLINE;
    let mut nonce = 0;
    // How often it slept grows between requests that are far enough apart; in an endless spin it would stay 0.
    loop {
        nonce += 1;
        send(&mut stream, nonce, b"blocks");
        let (_, blocks) = receive(&mut stream);
        if u64::from_le_bytes(blocks.try_into().unwrap()) >= 3 {
            break;
        }
        assert!(Instant::now() < deadline, "it does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.stop();
}

/// The last bytes and the end of a stream may come with one event, which epoll does not repeat.
#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let running = Running::start(
        Options {
            spin: Duration::ZERO,
            ..Options::default()
        },
        Protocol::Rpc,
        None,
    );
    for _ in 0..20 {
        let mut stream = running.connect();
        stream.write_all(b"half").unwrap();
        drop(stream);
        running.expect("closed: the peer closed the connection");
    }
    running.stop();
}
