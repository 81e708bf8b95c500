//! What one event costs: in a thread that records, and in one that does not.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use trace::{Event, record_at};

/// Events in one iteration: the loop around them does not count.
const EVENTS: u64 = 1000;

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("trace");
    group.throughput(Throughput::Elements(EVENTS));
    let write = || (0..EVENTS).for_each(|number| record_at(Event::FrameIn, number, number));
    group.bench_function("off", |b| b.iter(write));
    let recorder = trace::start("bench");
    group.bench_function("on", |b| b.iter(write));
    group.bench_function("clock_alone", |b| {
        b.iter(|| (0..EVENTS).fold(0, |sum: u64, _| sum.wrapping_add(trace::ticks())));
    });
    drop(recorder);
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
