//! Where the time of an operation goes, from the time traces of client and server: the table of RAMCloud's poster on its Atom servers.

mod matching;
mod table;
#[cfg(test)]
mod tests;

use std::time::Instant;

use clap::ValueEnum;
use client::trace::{self, Recorder, Trace};
use client::{Cluster, Error, TableId, control_op};
use serde::Serialize;

use super::data::key;
use super::samples::{Collector, Samples};
use matching::{Matched, Matcher};
pub use table::text;

/// Operations whose events both sides remember for sure: a durable write leaves some 50 at its server, which remembers 65536.
const CHUNK: usize = 500;
/// Operations that bring the caches back after a trace was read; they are not measured.
const WARM_UP: usize = 5;

/// What is to be broken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Parts {
    /// The whole way: client, wire, server, wire, client
    Way,
    /// What the server does, step by step
    Server,
}

/// Where the time of one kind of operation goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// Operations that were found in both traces, whole.
    pub operations: usize,
    /// Those that were not, or went another way than most: several attempts, another server, another sequence of steps.
    pub left_out: usize,
    pub clocks: Clocks,
    pub segments: Vec<Segment>,
    /// From the call to its return, or from the request's last byte to the answer's first.
    pub whole: Segment,
}

/// Whether a moment of the client and one of the server can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clocks {
    /// One machine, one counter; no request came before it was sent, and no answer.
    One,
    /// Two machines: the wire's two halves are equal because nobody knows better.
    TwoMachines,
    /// One machine, whose counters do not agree: as of two.
    Disagree,
}

/// Microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    pub name: &'static str,
    /// What it is called on the poster; empty for others.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub section: &'static str,
    pub description: &'static str,
    pub average_us: f64,
    pub best_us: f64,
    pub median_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
}

/// Runs an operation again and again until `collector` has enough, and breaks its time down if that is asked for.
pub fn collect(
    cluster: &mut Cluster,
    (table, parts): (TableId, Option<Parts>),
    mut collector: Collector,
    mut operation: impl FnMut(&mut Cluster) -> Result<(), Error>,
) -> Result<Samples, Error> {
    let mut tracer = match parts {
        Some(parts) => Some(Tracer::new(cluster, table, parts)?),
        None => None,
    };
    loop {
        let start = Instant::now();
        operation(cluster)?;
        let goes_on = collector.add(start);
        if let Some(tracer) = &mut tracer
            && (tracer.is_full() || !goes_on)
        {
            tracer.read(cluster)?;
            (0..WARM_UP).try_for_each(|_| operation(cluster))?;
            tracer.begin(cluster)?;
        }
        if !goes_on {
            let breakdown = tracer.and_then(|tracer| breakdown(tracer.matcher, tracer.parts));
            return Ok(collector.finish().with(breakdown));
        }
    }
}

/// Reads both traces from time to time, before events are forgotten.
struct Tracer {
    recorder: Recorder,
    table: TableId,
    parts: Parts,
    /// Operations since the traces were read.
    done: usize,
    /// Events of this thread before this one are not looked at.
    begin: u64,
    /// The same of the server: clients that were there before have used the same keys.
    server_begin: u64,
    matcher: Matcher,
}

impl Tracer {
    fn new(cluster: &mut Cluster, table: TableId, parts: Parts) -> Result<Tracer, Error> {
        let mut tracer = Tracer {
            recorder: trace::start("clusterperf"),
            table,
            parts,
            done: 0,
            begin: 0,
            server_begin: 0,
            matcher: Matcher::default(),
        };
        tracer.begin(cluster)?;
        Ok(tracer)
    }

    fn begin(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        self.server_begin = self.server_trace(cluster, 0)?.first;
        self.begin = self.recorder.read(0).first;
        self.done = 0;
        Ok(())
    }

    /// The last events of the server that has the table.
    fn server_trace(&self, cluster: &mut Cluster, last: usize) -> Result<Trace, Error> {
        let format = trace::Format::Raw;
        let input = trace::Wanted { last, format }.to_input();
        let op = control_op::GET_TIME_TRACE;
        let answer = cluster.server_control(self.table, &key(0), op, &input)?;
        Trace::from_bytes(&answer.output).map_err(|_| {
            Error::Invalid(
                "the server gives no time trace: it is of another version, or was started with --timeTrace off",
            )
        })
    }

    /// Called after each operation.
    fn is_full(&mut self) -> bool {
        self.done += 1;
        self.done >= CHUNK
    }

    fn read(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        let own = since(self.begin, self.recorder.read(trace::EVENTS));
        let server = since(
            self.server_begin,
            self.server_trace(cluster, trace::EVENTS)?,
        );
        self.matcher.take(&own, &server);
        Ok(())
    }
}

/// A trace without its events before this one.
fn since(begin: u64, mut trace: Trace) -> Trace {
    let old = begin.saturating_sub(trace.first) as usize;
    trace.events.drain(..old.min(trace.events.len()));
    trace
}

/// What the traces say; nothing if no operation is whole in both.
fn breakdown(matcher: Matcher, parts: Parts) -> Option<Breakdown> {
    let Matched {
        operations,
        mut left_out,
        clocks,
    } = matcher.finish();
    let (steps, rows): (Vec<_>, Vec<Vec<f64>>) = match parts {
        Parts::Way => (table::WAY.to_vec(), table::ways(&operations, clocks)),
        Parts::Server => {
            let (steps, rows) = table::steps(&operations);
            left_out += operations.len() - rows.len();
            (steps, rows)
        }
    };
    if rows.is_empty() {
        return None;
    }
    let sums: Vec<f64> = rows.iter().map(|row| row.iter().sum()).collect();
    let segments = steps.iter().enumerate().map(|(at, step)| {
        let times = rows.iter().map(|row| row[at]).collect();
        table::segment(*step, times)
    });
    Some(Breakdown {
        operations: rows.len(),
        left_out,
        clocks,
        segments: segments.collect(),
        whole: table::segment(table::WHOLE, sums),
    })
}
