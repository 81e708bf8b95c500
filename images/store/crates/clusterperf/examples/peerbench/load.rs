//! The client loop: one thread, some connections.

use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd;

use crate::Failure;
use crate::connection::Connection;
use crate::plan::{Case, OBJECTS, Operation, Samples, cases, key};
use crate::protocols::Protocol;

/// Before each measurement, this part of its time is not counted.
const WARM_UP_PART: u32 = 4;
/// An answer that comes later than this after the end does not come at all.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn measure(
    target: &str,
    protocol: &dyn Protocol,
    time: Duration,
    only: &str,
) -> Result<(), Failure> {
    let mut filled = 0;
    let mut connections = Vec::new();
    for case in cases(only) {
        if !protocol.supports(case.operation) {
            continue;
        }
        while connections.len() < case.connections {
            connections.push(Connection::open(protocol, connections.len() as u64 + 1)?);
        }
        if filled != case.value_bytes && protocol.supports(Operation::Set) {
            fill(protocol, &mut connections[0], case.value_bytes)?;
            filled = case.value_bytes;
        }
        let used = &mut connections[..case.connections];
        for connection in used.iter() {
            connection.stream.set_nonblocking(!case.sleeps)?;
        }
        let samples = if case.connections == 1 {
            one(protocol, &mut used[0], &case, time)?
        } else {
            several(protocol, used, &case, time)?
        };
        let measured = samples.into_measured(target, case);
        println!("{}", serde_json::to_string(&measured)?);
    }
    Ok(())
}

/// Makes all objects.
fn fill(
    protocol: &dyn Protocol,
    connection: &mut Connection,
    value_bytes: usize,
) -> Result<(), Failure> {
    connection.stream.set_nonblocking(false)?;
    let value = vec![b'v'; value_bytes];
    let case = Case {
        operation: Operation::Set,
        value_bytes,
        connections: 1,
        depth: 1,
        batch: 1,
        sleeps: true,
    };
    for number in 0..OBJECTS {
        connection.send_one(protocol, &case, key(number), &value)?;
        while !connection.receive(protocol, &case)? {}
    }
    Ok(())
}

/// One connection is simply read until the answer is there.
fn one(
    protocol: &dyn Protocol,
    connection: &mut Connection,
    case: &Case,
    time: Duration,
) -> Result<Samples, Failure> {
    let value = vec![b'v'; case.value_bytes];
    let mut counter = Counter::new(case, time);
    while counter.goes_on() {
        connection.send(protocol, case, &value)?;
        while !connection.receive(protocol, case)? {
            counter.check()?;
        }
        counter.add(connection.nanos_since_sent());
    }
    Ok(counter.finish())
}

/// Of several, those are read that the kernel names, without sleeping.
fn several(
    protocol: &dyn Protocol,
    connections: &mut [Connection],
    case: &Case,
    time: Duration,
) -> Result<Samples, Failure> {
    let value = vec![b'v'; case.value_bytes];
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(connections.len());
    for (number, connection) in connections.iter_mut().enumerate() {
        let fd = connection.stream.as_raw_fd();
        let token = Token(number);
        poll.registry()
            .register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        connection.send(protocol, case, &value)?;
    }
    let mut counter = Counter::new(case, time);
    let mut under_way = connections.len();
    while under_way > 0 {
        poll.poll(&mut events, Some(Duration::ZERO))?;
        counter.check()?;
        for event in &events {
            let connection = &mut connections[event.token().0];
            // What comes later makes another event.
            if !connection.receive(protocol, case)? {
                continue;
            }
            counter.add(connection.nanos_since_sent());
            if counter.goes_on() {
                connection.send(protocol, case, &value)?;
            } else {
                under_way -= 1;
            }
        }
    }
    let samples = counter.finish();
    for connection in connections {
        let fd = connection.stream.as_raw_fd();
        poll.registry().deregister(&mut SourceFd(&fd))?;
    }
    Ok(samples)
}

/// Counts after a warm-up, until the time is over.
pub struct Counter {
    nanos: Vec<u64>,
    counts_from: Instant,
    end: Instant,
    objects_each: u64,
}

impl Counter {
    pub fn new(case: &Case, time: Duration) -> Counter {
        let counts_from = Instant::now() + time / WARM_UP_PART;
        Counter {
            nanos: Vec::with_capacity(1 << 20),
            counts_from,
            end: counts_from + time,
            objects_each: (case.depth * case.batch) as u64,
        }
    }

    pub fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// An error if the answers that are still to come are not to be expected any more.
    fn check(&self) -> Result<(), Failure> {
        if Instant::now() > self.end + PATIENCE {
            return Err(format!("no answer for {} s", PATIENCE.as_secs()).into());
        }
        Ok(())
    }

    pub fn add(&mut self, nanos: u64) {
        if Instant::now() >= self.counts_from {
            self.nanos.push(nanos);
        }
    }

    pub fn finish(self) -> Samples {
        Samples {
            objects: self.nanos.len() as u64 * self.objects_each,
            seconds: self.counts_from.elapsed().as_secs_f64(),
            nanos: self.nanos,
        }
    }
}
