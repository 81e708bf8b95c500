use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_thread_without_a_recorder_records_nothing() {
    std::thread::spawn(|| {
        record(Event::Slept, 1);
        assert_eq!(of_this_thread(10), None);
        let recorder = start("later");
        assert!(recorder.read(10).events.is_empty());
    })
    .join()
    .unwrap();
}

#[test]
fn events_come_back_in_order_with_growing_ticks() {
    let recorder = start("order");
    record_at(Event::FrameIn, (7 << 20) | 3, (1 << 32) | 17);
    record(Event::LookedUp, 1);
    let trace = recorder.read(10);
    let [first, second] = trace.events[..] else {
        panic!("{trace:?}")
    };
    assert_eq!((first.event, first.place, first.arg), (2, 3, 17));
    assert_eq!((second.name(), second.arg), ("LookedUp", 1));
    assert!(first.ticks <= second.ticks);
    note(Event::Released, 3, 17);
    assert_eq!(recorder.read(1).events[0].ticks, second.ticks);
    record(Event::LookedUp, 1);
    let second = recorder.read(1).events[0];
    assert_eq!(recorder.read(1).events, [second]);
    assert_eq!(recorder.read(1).first, trace.first + 3);
}

#[test]
fn the_ring_keeps_the_last_events() {
    let recorder = start("wrap");
    let begin = recorder.read(0).first;
    let total = EVENTS as u64 * 2 + 5;
    (0..total).for_each(|number| record(Event::Flushed, number));
    let trace = recorder.read(usize::MAX);
    // One slot is taken for being written, whether it is or not.
    assert_eq!(trace.events.len(), EVENTS - 1);
    assert_eq!(trace.first - begin, total - EVENTS as u64 + 1);
    let args = trace.events.iter().map(|event| u64::from(event.arg));
    assert!(args.eq(total - EVENTS as u64 + 1..total));
}

#[test]
fn a_ring_goes_from_thread_to_thread_without_its_events() {
    let ring = std::thread::spawn(|| {
        let recorder = start("first");
        record(Event::Slept, 1);
        let second = start("second");
        record(Event::Woke, 2);
        drop(second);
        record(Event::Slept, 3);
        assert_eq!(recorder.read(9).events.len(), 3, "one thread, one ring");
        std::ptr::from_ref(recorder.ring) as usize
    })
    .join()
    .unwrap();
    // Other tests take rings, too: whoever has this one now sees nothing of the thread that had it before.
    let recorders: Vec<Recorder> = Vec::from([start("again")]);
    assert!(recorders[0].read(9).events.is_empty(), "{ring:x}");
}

/// Ends a loop of another thread, also if an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Events are made so that a reader can tell a torn one: number, place and argument belong together.
#[test]
fn concurrent_readers_see_no_torn_event() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let stop = &stop;
        scope.spawn(move || {
            let recorder = start("writer");
            sender.send(recorder.ring).unwrap();
            let mut number = recorder.read(0).first;
            while !stop.load(Ordering::Relaxed) {
                record_at(Event::FrameIn, number.wrapping_mul(40_503), number);
                number += 1;
            }
        });
        let ring = receiver.recv().unwrap();
        let _stop = StopAtEnd(stop);
        let mut seen = ring.trace(0).first;
        // The writer goes round its ring many times.
        let end = seen + 20 * EVENTS as u64;
        while seen < end {
            let trace = ring.trace(EVENTS);
            for (offset, event) in trace.events.iter().enumerate() {
                let number = (trace.first + offset as u64) as u32;
                assert_eq!((event.event, event.arg), (2, number), "number {number}");
                assert_eq!(event.place, number.wrapping_mul(40_503) as u16);
            }
            assert!(trace.events.is_sorted_by_key(|event| event.ticks));
            seen = trace.first + trace.events.len() as u64;
        }
    });
}

#[test]
fn the_clock_agrees_with_the_kernels() {
    let recorder = start("clock");
    let time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let before = time();
    record(Event::Slept, 0);
    while time() < before + 20_000_000 {}
    record(Event::Woke, 0);
    let after = time();
    let trace = recorder.read(2);
    let [first, second] = [0, 1].map(|at| trace.clock.boottime_ns(trace.events[at].ticks));
    // The two clocks are read one after the other, and another thread may have the core in between: a bound, no measurement.
    let slack = 1_000_000;
    assert!(before <= first + slack && second <= after + slack);
    assert!((second - first).abs_diff(after - before) < 2 * slack);
}

#[test]
fn dumps_come_back_and_damaged_ones_do_not() {
    let recorder = start("dump");
    (0..100).for_each(|number| record_at(Event::Request, 13, number));
    let trace = recorder.read(50);
    let bytes = trace.to_bytes();
    assert_eq!(Trace::from_bytes(&bytes), Ok(trace));
    for end in 0..bytes.len() {
        assert!(Trace::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
    let mut other = bytes.clone();
    other[4] = 9;
    assert_eq!(Trace::from_bytes(&other), Err(DumpError::Version(9)));
    let mut long = bytes;
    long[56..64].fill(0xff);
    assert_eq!(Trace::from_bytes(&long), Err(DumpError::Length));
}

#[test]
fn lines_say_what_happened_and_when() {
    let clock = Clock {
        ticks: 0,
        ns: 0,
        ticks_per_second: 2_000_000_000,
        boot_id: [0; 16],
    };
    let event = |ticks, event: u16, place, arg| Record {
        ticks,
        event,
        place,
        arg,
    };
    let trace = Trace {
        clock,
        first: 0,
        events: vec![
            event(1000, Event::Received as u16, 3, 147),
            event(1500, Event::Request as u16, 13, 17),
            event(1600, Event::LookedUp as u16, 0, 1),
            event(1700, Event::BackupAsked as u16, 0, 4),
            event(1701, Event::FrameOut as u16, 3, 17),
            event(9700, 999, 1, 2),
        ],
    };
    let expected = "       0.0 ns (+     0.0 ns): received, 147 B, connection 3
     250.0 ns (+   250.0 ns): request READ, key 17
     300.0 ns (+    50.0 ns): key looked up, found
     350.0 ns (+    50.0 ns): backup asked, server 4
     350.5 ns (+     0.5 ns): message put, key 17, connection 3
    4350.0 ns (+  3999.5 ns): event 999 (of another version) 1 2";
    assert_eq!(trace.text(), expected);
}

#[test]
fn numbers_and_names_are_used_once() {
    let numbers: BTreeSet<u16> = Event::ALL.iter().map(|event| *event as u16).collect();
    assert_eq!(numbers.len(), Event::ALL.len());
    for event in Event::ALL {
        assert_eq!(Event::from_u16(*event as u16), Some(*event));
    }
}

/// The page for people and the code say the same.
#[test]
fn the_table_of_the_docs_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../docs/trace.md");
    let page = std::fs::read_to_string(path).expect("docs/trace.md beside the sources");
    let row = |event: &Event| {
        let place = match event.place() {
            ShortField::Unused => "",
            ShortField::Connection => "connection",
            ShortField::Opcode => "opcode",
        };
        let arg = match event.arg() {
            Arg::Nothing => "",
            Arg::Bytes => "bytes",
            Arg::Key => "key",
            Arg::Operation => "operation",
            Arg::Server => "index of the server id",
            Arg::Segment => "segment",
            Arg::Found => "1 if found",
            Arg::Position => "position",
            Arg::Recovery => "recovery",
        };
        let noted = [place, arg].into_iter().filter(|word| !word.is_empty());
        let noted: Vec<_> = noted.collect();
        let (layer, name, meaning) = (event.layer(), event.name(), event.meaning().trim());
        format!("| {layer} | `{name}` | {} | {meaning} |", noted.join(", "))
    };
    let expected: Vec<String> = Event::ALL.iter().map(row).collect();
    let found: Vec<&str> = page.lines().filter(|line| line.contains(" | `")).collect();
    assert_eq!(
        found,
        expected,
        "docs/trace.md should have:\n{}",
        expected.join("\n")
    );
}

#[test]
fn what_is_wanted_is_read_from_words() {
    let wanted = |input: &[u8]| Wanted::parse(input);
    let text = |last| Wanted {
        last,
        format: Format::Text,
    };
    assert_eq!(wanted(b""), text(1000));
    assert_eq!(wanted(b"last=20\0"), text(20));
    assert_eq!(wanted(b"last=1000000 \xff"), text(1000), "not text at all");
    assert_eq!(wanted(b"last=1000000"), text(8192));
    let raw = wanted(b"format=raw");
    assert_eq!((raw.last, raw.format), (EVENTS, Format::Raw));
    assert_eq!(wanted(&text(5).to_input()), text(5));
}
