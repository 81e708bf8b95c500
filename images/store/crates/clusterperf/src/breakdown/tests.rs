//! Traces as they come, and what is made of them.

use client::trace::{Clock, Event, Record, Trace};

use super::matching::{AtClient, Matcher, client_operations, server_requests};
use super::*;
use crate::report::Entry;

const CONNECTION: u16 = 3;
/// Of another client.
const OTHER: u16 = 4;
const BACKUP: u16 = 9;

fn at(ticks: u64, event: Event, place: u16, arg: u32) -> Record {
    Record {
        ticks,
        event: event as u16,
        place,
        arg,
    }
}

/// A tick is a nanosecond.
fn trace(machine: u8, events: Vec<Record>) -> Trace {
    let clock = Clock {
        ticks: 0,
        ns: 0,
        ticks_per_second: 1_000_000_000,
        boot_id: [machine; 16],
    };
    Trace {
        clock,
        first: 0,
        events,
    }
}

/// One operation: 100 in the client, 10 us on the wire, 1 us at the server, 20 us on the wire, 200 in the client.
fn client(start: u64, key: u32) -> Vec<Record> {
    vec![
        at(start, Event::OperationStarted, 0, 0),
        at(start + 50, Event::FrameOut, 0, key),
        at(start + 100, Event::Flushed, 0, 130),
        at(start + 31_000, Event::Received, 0, 100),
        at(start + 31_100, Event::Received, 0, 47),
        at(start + 31_150, Event::FrameIn, 0, key),
        at(start + 31_300, Event::OperationCompleted, 0, 8),
    ]
}

fn read(start: u64, place: u16, key: u32) -> Vec<Record> {
    vec![
        at(start + 10_100, Event::Received, place, 130),
        at(start + 10_150, Event::FrameIn, place, key),
        at(start + 10_150, Event::Request, 13, key),
        at(start + 10_400, Event::LookedUp, 0, 1),
        at(start + 10_900, Event::FrameOut, place, key),
        at(start + 11_100, Event::Flushed, place, 147),
    ]
}

/// A durable write with two copies, while a request for the backup of this server and another client's read come in between.
fn write(place: u16, key: u32) -> Vec<Record> {
    let mut events = vec![
        at(1000, Event::Received, place, 230),
        at(1100, Event::FrameIn, place, key),
        at(1100, Event::Request, 14, key),
        at(1300, Event::LookedUp, 0, 1),
        at(1600, Event::Appended, 0, 7),
        at(1700, Event::Held, place, key),
        at(2000, Event::BackupAsked, 0, 2),
        at(2010, Event::FrameOut, BACKUP, 70),
        at(2200, Event::BackupAsked, 0, 3),
        at(2210, Event::FrameOut, BACKUP + 1, 71),
        at(2300, Event::Flushed, BACKUP, 300),
        at(2400, Event::Received, 20, 300),
        at(2410, Event::FrameIn, 20, key),
        at(2450, Event::AppendTaken, 0, 200),
        at(2460, Event::FrameOut, 20, key),
    ];
    let mut other = read(0, OTHER, key);
    other.iter_mut().for_each(|event| event.ticks -= 7_600);
    events.extend(other);
    events.extend([
        at(9000, Event::Received, BACKUP, 20),
        at(9010, Event::FrameIn, BACKUP, 70),
        at(9010, Event::BackupAnswered, 0, 2),
        at(9500, Event::FrameIn, BACKUP + 1, 71),
        at(9500, Event::BackupAnswered, 0, 3),
        at(9600, Event::Released, place, key),
        at(9650, Event::FrameOut, place, key),
        at(9900, Event::Flushed, place, 20),
    ]);
    events
}

fn broken_down(parts: Parts, client: &Trace, server: &Trace) -> Breakdown {
    let mut matcher = Matcher::default();
    matcher.take(client, server);
    breakdown(matcher, parts).expect("operations that match")
}

fn averages(breakdown: &Breakdown) -> Vec<(&'static str, f64)> {
    let segments = breakdown.segments.iter();
    segments
        .map(|segment| (segment.name, segment.average_us))
        .collect()
}

#[test]
fn the_way_there_and_back_sums_to_the_whole() {
    let mine = trace(1, [client(0, 7), client(40_000, 8)].concat());
    let server = trace(
        1,
        [read(0, CONNECTION, 7), read(40_000, CONNECTION, 8)].concat(),
    );
    let way = broken_down(Parts::Way, &mine, &server);
    let expected = [
        ("client out", 0.1),
        ("wire out", 10.0),
        ("server", 1.0),
        ("wire in", 20.0),
        ("client in", 0.2),
    ];
    assert_eq!(averages(&way), expected);
    assert_eq!(way.whole.average_us, 31.3);
    assert_eq!(
        (way.operations, way.left_out, way.clocks),
        (2, 0, Clocks::One)
    );
}

#[test]
fn datagrams_are_of_their_port_as_a_whole() {
    let to_port = |mut events: Vec<Record>| {
        let of_port = |event: &&mut Record| {
            [Event::Received as u16, Event::Flushed as u16].contains(&event.event)
        };
        let place = trace::DATAGRAMS as u16;
        events
            .iter_mut()
            .filter(of_port)
            .for_each(|event| event.place = place);
        events
    };
    let mine = trace(1, to_port(client(0, 7)));
    // A connection over TCP has the same number.
    let tcp = [
        at(100, Event::Received, CONNECTION, 10),
        at(11_000, Event::Flushed, CONNECTION, 10),
    ];
    let mut server = to_port(read(0, CONNECTION, 7));
    server.insert(0, tcp[0]);
    server.insert(6, tcp[1]);
    let way = broken_down(Parts::Way, &mine, &trace(1, server));
    assert_eq!(averages(&way)[2], ("server", 1.0));
    assert_eq!((way.operations, way.clocks), (1, Clocks::One));
}

#[test]
fn two_machines_share_what_the_wire_took() {
    let mine = trace(1, client(1_000_000, 7));
    let server = trace(2, read(0, CONNECTION, 7));
    let way = broken_down(Parts::Way, &mine, &server);
    assert_eq!(way.clocks, Clocks::TwoMachines);
    assert_eq!(averages(&way)[1], ("wire out", 15.0));
    assert_eq!(averages(&way)[3], ("wire in", 15.0));
    assert_eq!(way.whole.average_us, 31.3);
}

#[test]
fn counters_that_contradict_each_other_are_found_out() {
    let mine = trace(1, client(0, 7));
    // It would have come before it was sent.
    let mut early = read(0, CONNECTION, 7);
    early.iter_mut().for_each(|event| event.ticks -= 10_050);
    let way = broken_down(Parts::Way, &mine, &trace(1, early));
    assert_eq!(way.clocks, Clocks::Disagree);
    assert_eq!(averages(&way)[1], ("wire out", 15.0));
}

#[test]
fn other_clients_with_the_same_keys_are_told_apart() {
    let mine = trace(1, [client(0, 7), client(40_000, 8)].concat());
    let theirs = [
        read(100_000, OTHER, 8),
        read(0, CONNECTION, 7),
        read(40_000, CONNECTION, 8),
        read(90_000, OTHER, 7),
    ];
    let way = broken_down(Parts::Way, &mine, &trace(1, theirs.concat()));
    assert_eq!((way.operations, way.clocks), (2, Clocks::One));
    // It counts whose requests came in time, not whose are more.
    let theirs = [
        read(100_000, OTHER, 8),
        read(0, CONNECTION, 7),
        read(90_000, OTHER, 7),
    ];
    let way = broken_down(Parts::Way, &mine, &trace(1, theirs.concat()));
    assert_eq!(
        (way.operations, way.left_out, way.clocks),
        (1, 1, Clocks::One)
    );
    assert_eq!(averages(&way)[1], ("wire out", 10.0));
    // Another client that shares one key only has nothing to say.
    let mut matcher = Matcher::default();
    matcher.take(&mine, &trace(1, read(0, OTHER, 99)));
    let matched = matcher.finish();
    assert_eq!((matched.operations.len(), matched.left_out), (0, 2));
}

#[test]
fn the_steps_of_a_durable_write_sum_to_the_whole() {
    let requests = server_requests(&write(CONNECTION, 7));
    assert_eq!(
        requests.len(),
        2,
        "another client's read, and the write: {requests:?}"
    );
    let mine = trace(1, client(0, 7));
    let mut matcher = Matcher::default();
    matcher.take(&mine, &trace(1, write(CONNECTION, 7)));
    let mut all = matcher.finish().operations;
    // Both connections have the key; take the write, whoever it is of.
    all[0].server = requests[1];
    let (steps, rows) = table::steps(&all);
    let named: Vec<_> = steps
        .iter()
        .map(|step| step.0)
        .zip(rows[0].clone())
        .collect();
    let expected = [
        ("handed over", 100.0),
        ("looked up", 200.0),
        ("appended", 300.0),
        ("held", 100.0),
        ("sent to backups", 500.0),
        ("backups answered", 7300.0),
        ("released", 100.0),
        ("answer put", 50.0),
        ("given to driver", 250.0),
    ];
    assert_eq!(named, expected);
    assert_eq!(rows[0].iter().sum::<f64>(), all[0].server_ns());
}

#[test]
fn operations_that_are_not_whole_are_left_out() {
    let whole = client(0, 7);
    let (found, left_out) = client_operations(&whole);
    let expected = AtClient {
        key: 7,
        started: 0,
        flushed: 100,
        received: 31_100,
        completed: 31_300,
    };
    assert_eq!((found, left_out), (vec![expected], 0));
    // The beginning was forgotten; the end is of something that is not there.
    assert_eq!(client_operations(&whole[2..]), (vec![], 0));
    for missing in [1, 2, 5] {
        let mut events = whole.clone();
        events.remove(missing);
        assert_eq!(client_operations(&events), (vec![], 1), "{missing}");
    }
    // It was sent again.
    let mut events = whole.clone();
    events.insert(3, at(20_000, Event::FrameOut, 0, 8));
    assert_eq!(client_operations(&events), (vec![], 1));
    let requests = read(0, CONNECTION, 7);
    for missing in 1..requests.len() {
        let mut events = requests.clone();
        events.remove(missing);
        let found = server_requests(&events);
        assert_eq!(
            found.len(),
            usize::from(missing == 3),
            "without number {missing}"
        );
    }
}

#[test]
fn the_table_is_the_posters() {
    let mine = trace(1, client(0, 7));
    let breakdown = broken_down(Parts::Way, &mine, &trace(1, read(0, CONNECTION, 7)));
    let samples = Samples::new(vec![31_300]).with(Some(breakdown));
    let entry = Entry {
        name: "readDist".to_owned(),
        bandwidth_name: None,
        what: "read one object".to_owned(),
        bandwidth_what: String::new(),
        object_bytes: 100,
        objects: 1,
        summary: samples.summary(100),
        samples,
    };
    let mut text = String::new();
    super::text(&mut text, &entry);
    let expected = "
Latency breakdown: readDist, read one object
                      average      best    median       90%       99%  share   us
client out       Co      0.10      0.10      0.10      0.10      0.10   0.3%   client, until the request is given to the driver
wire out         Uo     10.00     10.00     10.00     10.00     10.00  31.9%   driver and network, until the server has the request
server            S      1.00      1.00      1.00      1.00      1.00   3.2%   server, until the answer is given to the driver
wire in          Ui     20.00     20.00     20.00     20.00     20.00  63.9%   driver and network, until the client has the answer
client in        Ci      0.20      0.20      0.20      0.20      0.20   0.6%   client, until the operation is over
in all                  31.30     31.30     31.30     31.30     31.30 100.0%   one after the other
# 1 operations, 0 left out; client and server read one counter
";
    assert_eq!(text, expected);
    let json = serde_json::to_value(&entry).unwrap();
    let segments = json["breakdown"]["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 5);
    assert_eq!(segments[2]["section"], "S");
    assert_eq!(json["breakdown"]["clocks"], "one");
    assert_eq!(json["breakdown"]["whole"]["median_us"], 31.3);
}
