//! Bounds of memory: who waits, and who loses a connection.

use std::io::Write;
use std::net::TcpStream;

use rcbox_net::{Limits, Options, Protocol};
use transport::rpc;

use super::{LONG_BYTES, Running, frame, limited, receive, send};

#[test]
fn a_connection_past_its_bound_of_output_is_closed() {
    let limits = Limits {
        throttle_bytes: 32 << 20,
        output_bytes: 8 << 20,
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
    let mut stream = running.connect();
    for nonce in 0..64 {
        send(&mut stream, nonce, b"big");
    }
    running.expect("closed: the peer does not read");
    assert_eq!(running.stop().closed_by_bound, 1);
}

/// Of one address one long message arrives at a time where there is no room for two; others wait with the little that has come of theirs, and
/// arrive when it has.
#[test]
fn long_messages_of_one_address_arrive_one_after_the_other() {
    let running = limited(Limits {
        buffer_bytes: 12 << 20,
        ..Limits::default()
    });
    let mut streams: Vec<TcpStream> = (0..4).map(|_| running.connect()).collect();
    let message = vec![3; LONG_BYTES];
    let mut first = streams.remove(0);
    first
        .write_all(&rpc::header(1, message.len() as u32))
        .unwrap();
    first.write_all(&message[1..]).unwrap();
    // All have begun before the first one ends; the rest of each does not fit into sockets.
    for stream in &mut streams {
        let header = rpc::header(2, message.len() as u32);
        stream.write_all(&header).unwrap();
        stream.write_all(&message[..1]).unwrap();
    }
    let all_run = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        let others: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                let (rest, all_run) = (&message[1..], &all_run);
                scope.spawn(move || {
                    all_run.wait();
                    stream.write_all(rest).unwrap();
                    assert_eq!(receive(stream).1, b"taken");
                })
            })
            .collect();
        all_run.wait();
        // They wait for what nobody else has to wait for.
        let mut small = running.connect();
        for nonce in 0..100 {
            send(&mut small, nonce, b"small");
            assert_eq!(receive(&mut small), (nonce, b"small".to_vec()));
        }
        assert!(others.iter().all(|other| !other.is_finished()));
        first.write_all(&message[..1]).unwrap();
        assert_eq!(receive(&mut first).1, b"taken");
        for other in others {
            other.join().unwrap();
        }
    });
    let counters = running.stop();
    assert!(counters.messages_delayed >= 3, "{counters:?}");
    assert_eq!(counters.closed_by_bound, 0);
    assert!(counters.buffer_bytes <= 12 << 20);
}

/// Whoever waits and is gone is noticed: the kernel has told of its end while nothing was read from it, and does not tell again.
#[test]
fn connections_that_end_while_they_wait_hold_nobody_up() {
    let running = limited(Limits {
        buffer_bytes: 12 << 20,
        ..Limits::default()
    });
    let mut begun: Vec<TcpStream> = (0..100).map(|_| running.connect()).collect();
    for stream in &mut begun {
        stream
            .write_all(&rpc::header(1, LONG_BYTES as u32))
            .unwrap();
        stream.write_all(&[0; 3000]).unwrap();
    }
    // All of them have been looked at.
    let mut last = running.connect();
    send(&mut last, 1, b"small");
    assert_eq!(receive(&mut last).1, b"small");
    drop(begun);
    send(&mut last, 2, &vec![3; LONG_BYTES]);
    assert_eq!(receive(&mut last).1, b"taken");
    let counters = running.stop();
    assert_eq!(counters.closed_by_bound, 0, "{counters:?}");
}

/// Connections from many addresses that hold too much together: whoever has the most loses a connection, and another one is served.
#[test]
fn the_address_with_the_most_pays() {
    let running = limited(Limits {
        buffer_bytes: 16 << 20,
        ..Limits::default()
    });
    // 8 MiB each, of which the last byte never comes.
    let greedy: Vec<TcpStream> = (0..6)
        .map(|number| {
            let mut stream = running.connect_from(10 + number);
            stream.write_all(&rpc::header(1, 8 << 20)).unwrap();
            // It may be closed meanwhile.
            let _ = stream.write_all(&vec![0; (8 << 20) - 1]);
            stream
        })
        .collect();
    running.expect("closed: the buffers of all connections");
    let mut modest = running.connect_from(99);
    for nonce in 0..8 {
        send(&mut modest, nonce, &vec![1; 1 << 20]);
        assert_eq!(receive(&mut modest).1.len(), 1 << 20);
    }
    drop(greedy);
    let counters = running.stop();
    assert!(counters.buffer_bytes <= 16 << 20, "{counters:?}");
}

/// Connections that once had a large message and now have none must not keep the memory from those that have one.
#[test]
fn idle_connections_give_their_buffers_back_when_memory_is_short() {
    let limits = Limits {
        buffer_bytes: 4 << 20,
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
    let mut idle = Vec::new();
    for nonce in 0..12 {
        let mut stream = running.connect();
        send(&mut stream, nonce, &[0; 1 << 20]);
        assert_eq!(receive(&mut stream).0, nonce);
        idle.push(stream);
    }
    assert_eq!(running.stop().closed_by_bound, 0);
}

/// Output that was read by its peer is not held against the next, though nothing comes in meanwhile.
#[test]
fn drained_output_does_not_count() {
    let running = limited(Limits {
        buffer_bytes: 3 << 20,
        ..Limits::default()
    });
    let mut streams: Vec<TcpStream> = (0..8).map(|_| running.connect()).collect();
    for round in 0..3 {
        for stream in &mut streams {
            // Two at once, so that the second one has to wait in the buffer.
            stream.write_all(&frame(round, b"big")).unwrap();
            stream.write_all(&frame(round, b"big")).unwrap();
            assert_eq!(receive(stream).1.len(), 1 << 20);
            assert_eq!(receive(stream).1.len(), 1 << 20);
        }
    }
    assert_eq!(running.stop().closed_by_bound, 0);
}

/// Whoever holds little goes on while others fill the memory.
#[test]
fn the_largest_holder_pays() {
    let running = limited(Limits {
        buffer_bytes: 2 << 20,
        ..Limits::default()
    });
    let mut small = running.connect();
    let mut hog = running.connect();
    hog.write_all(&rpc::header(1, 8 << 20)).unwrap();
    for nonce in 0.. {
        let gone = hog.write_all(&[0; 64 << 10]).is_err();
        send(&mut small, nonce, &[1; 10_000]);
        assert_eq!(receive(&mut small).0, nonce);
        if gone {
            break;
        }
    }
    running.expect("closed: the buffers of all connections");
    assert_eq!(running.stop().closed_by_bound, 1);
}
