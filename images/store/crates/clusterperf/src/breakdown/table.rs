//! What of the traces is shown, and how.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::report::Entry;
use super::super::samples::Samples;
use super::matching::{AtServer, Operation};
use super::{Breakdown, Clocks, Segment};

/// A part of the way: name, section of the poster, what it is.
pub type Step = (&'static str, &'static str, &'static str);

pub const WAY: [Step; 5] = [
    (
        "client out",
        "Co",
        "client, until the request is given to the driver",
    ),
    (
        "wire out",
        "Uo",
        "driver and network, until the server has the request",
    ),
    (
        "server",
        "S",
        "server, until the answer is given to the driver",
    ),
    (
        "wire in",
        "Ui",
        "driver and network, until the client has the answer",
    ),
    ("client in", "Ci", "client, until the operation is over"),
];

pub const WHOLE: Step = ("in all", "", "one after the other");

/// Each operation's parts of the way, in nanoseconds.
pub fn ways(operations: &[Operation], clocks: Clocks) -> Vec<Vec<f64>> {
    let way = |operation: &Operation| {
        let server_ns = operation.server_ns();
        let wire_ns = operation.away_ns - server_ns;
        let out_ns = match clocks {
            Clocks::One => operation.wire_out_ns,
            Clocks::TwoMachines | Clocks::Disagree => wire_ns / 2.0,
        };
        vec![
            operation.client_out_ns,
            out_ns,
            server_ns,
            wire_ns - out_ns,
            operation.client_in_ns,
        ]
    };
    operations.iter().map(way).collect()
}

/// When a step was over; `None` if it was not taken.
type Moment = fn(&AtServer) -> Option<u64>;

/// The steps of a server that a request may take, in order, and when each was over.
const STEPS: [(Step, Moment); 9] = [
    (
        ("handed over", "", "received, until its handler has it"),
        |at| Some(at.handed),
    ),
    (
        ("looked up", "", "header read, key found in the hash table"),
        |at| at.looked_up,
    ),
    (("appended", "", "written to the log"), |at| at.appended),
    (("held", "", "until the answer is put aside"), |at| at.held),
    (
        (
            "sent to backups",
            "",
            "until the last copy that counts is on its way",
        ),
        |at| at.asked,
    ),
    (
        (
            "backups answered",
            "",
            "until the last copy that counts is there",
        ),
        |at| at.answered,
    ),
    (("released", "", "until the answer may go"), |at| {
        at.released
    }),
    (
        ("answer put", "", "until the answer is put into the output"),
        |at| Some(at.put),
    ),
    (
        ("given to driver", "", "until the output goes to the driver"),
        |at| Some(at.flushed),
    ),
];

/// The steps that most requests took, and how long those requests took for each, in nanoseconds.
pub fn steps(operations: &[Operation]) -> (Vec<Step>, Vec<Vec<f64>>) {
    let mut by_path: BTreeMap<Vec<usize>, Vec<Vec<f64>>> = BTreeMap::new();
    for operation in operations {
        let moments = STEPS.iter().map(|(_, moment)| moment(&operation.server));
        let moments: Vec<(usize, u64)> = moments
            .enumerate()
            .filter_map(|(at, moment)| Some((at, moment?)))
            .collect();
        let mut before = operation.server.received;
        let row = moments.iter().map(|(_, moment)| {
            let ticks = moment.wrapping_sub(before) as i64;
            before = *moment;
            operation.server_clock.nanos(ticks)
        });
        let row: Vec<f64> = row.collect();
        let path = moments.iter().map(|(at, _)| *at).collect();
        // Moments that are not in order are of something else that went on beside.
        if row.iter().all(|ns| *ns >= 0.0) {
            by_path.entry(path).or_default().push(row);
        }
    }
    let most = by_path.into_iter().max_by_key(|(_, rows)| rows.len());
    let (path, rows) = most.unwrap_or_default();
    (path.into_iter().map(|at| STEPS[at].0).collect(), rows)
}

pub fn segment((name, section, description): Step, times_ns: Vec<f64>) -> Segment {
    // Tenths of a nanosecond: short steps take few of them.
    let samples = Samples::new(
        times_ns
            .iter()
            .map(|ns| (ns.max(0.0) * 10.0) as u64)
            .collect(),
    );
    let summary = samples.summary(0);
    Segment {
        name,
        section,
        description,
        average_us: summary.average_us / 10.0,
        best_us: summary.best_us / 10.0,
        median_us: summary.median_us / 10.0,
        p90_us: summary.p90_us / 10.0,
        p99_us: summary.p99_us / 10.0,
    }
}

/// The poster's table.
pub fn text(text: &mut String, entry: &Entry) {
    let Some(breakdown) = &entry.samples.breakdown else {
        return;
    };
    let Breakdown {
        operations,
        left_out,
        clocks,
        segments,
        whole,
    } = breakdown;
    // Writing to a string does not fail.
    let _ = writeln!(text, "\nLatency breakdown: {}, {}", entry.name, entry.what);
    let _ = writeln!(
        text,
        "{:<16} {:>2} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}   us",
        "", "", "average", "best", "median", "90%", "99%", "share"
    );
    for segment in segments.iter().chain([whole]) {
        let share = segment.average_us / whole.average_us.max(f64::MIN_POSITIVE) * 100.0;
        let _ = writeln!(
            text,
            "{:<16} {:>2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {share:>5.1}%   {}",
            segment.name,
            segment.section,
            segment.average_us,
            segment.best_us,
            segment.median_us,
            segment.p90_us,
            segment.p99_us,
            segment.description
        );
    }
    let clocks = match clocks {
        Clocks::One => "client and server read one counter",
        Clocks::TwoMachines => {
            "client and server are two machines: each half of the wire is half of what is left"
        }
        Clocks::Disagree => {
            "counters of this machine do not agree: each half of the wire is half of what is left"
        }
    };
    let _ = writeln!(
        text,
        "# {operations} operations, {left_out} left out; {clocks}"
    );
}
