//! Numbers as Prometheus reads them.

use std::fmt;

use net::{Counters, FastCounters};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

/// One number with its name and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Option<fn() -> Unit>,
    pub value: Value,
}

#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Only grows while the process lives.
    Counter(u64),
    /// Only grows; shown in seconds.
    CounterNanos(u64),
    Gauge(u64),
}

/// A counter of things.
pub fn counter(name: &'static str, help: &'static str, value: u64) -> Sample {
    Sample {
        name,
        help,
        unit: None,
        value: Value::Counter(value),
    }
}

/// A counter of bytes.
pub fn byte_counter(name: &'static str, help: &'static str, value: u64) -> Sample {
    Sample {
        name,
        help,
        unit: Some(|| Unit::Bytes),
        value: Value::Counter(value),
    }
}

/// A counter of time.
pub fn time_counter(name: &'static str, help: &'static str, nanos: u64) -> Sample {
    Sample {
        name,
        help,
        unit: Some(|| Unit::Seconds),
        value: Value::CounterNanos(nanos),
    }
}

/// A number of things that goes up and down.
pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Sample {
    Sample {
        name,
        help,
        unit: None,
        value: Value::Gauge(value),
    }
}

/// A number of bytes that goes up and down.
pub fn byte_gauge(name: &'static str, help: &'static str, value: u64) -> Sample {
    Sample {
        name,
        help,
        unit: Some(|| Unit::Bytes),
        value: Value::Gauge(value),
    }
}

/// The same samples of each shard, or of a program without shards.
#[derive(Debug)]
struct Samples(Vec<(Labels, Vec<Sample>)>);

type Labels = Vec<(&'static str, String)>;

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some((_, first)) = self.0.first() else {
            return Ok(());
        };
        // All samples of one name stand together under one description.
        for (at, sample) in first.iter().enumerate() {
            let kind = match sample.value {
                Value::Counter(_) | Value::CounterNanos(_) => MetricType::Counter,
                Value::Gauge(_) => MetricType::Gauge,
            };
            let unit = sample.unit.map(|unit| unit());
            let mut family =
                encoder.encode_descriptor(sample.name, sample.help, unit.as_ref(), kind)?;
            for (labels, samples) in &self.0 {
                let Some(sample) = samples.get(at) else {
                    continue;
                };
                if labels.is_empty() {
                    // One program, one value: no second encoder is to be had from this one.
                    encode(sample.value, family)?;
                    break;
                }
                encode(sample.value, family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(value: Value, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match value {
        Value::Counter(count) => ConstCounter::new(count).encode(encoder),
        Value::CounterNanos(nanos) => ConstCounter::new(nanos as f64 / 1e9).encode(encoder),
        Value::Gauge(value) => {
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
        }
    }
}

/// The text of a program's metrics.
pub fn text(samples: Vec<Sample>) -> String {
    render(Samples(vec![(Vec::new(), samples)]))
}

/// The text of metrics that every shard has; all must give the same samples in the same order.
pub fn text_by_shard(shards: Vec<Vec<Sample>>) -> String {
    let labelled = shards.into_iter().enumerate();
    render(Samples(
        labelled
            .map(|(index, samples)| (vec![("shard", index.to_string())], samples))
            .collect(),
    ))
}

fn render(samples: Samples) -> String {
    let mut registry = Registry::with_prefix("rcbox");
    registry.register_collector(Box::new(samples));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => text,
        Err(error) => format!("# cannot write metrics: {error}\n"),
    }
}

/// What a reactor with ports for datagrams counts beside that.
pub fn of_ports(counters: &FastCounters) -> Vec<Sample> {
    vec![
        gauge(
            "fast_sessions",
            "Open sessions of the fast protocol, among the connections",
            counters.sessions,
        ),
        counter(
            "fast_packets_received",
            "Packets that ports for datagrams received",
            counters.packets_in,
        ),
        counter(
            "fast_packets_sent",
            "Packets that ports for datagrams sent",
            counters.packets_out,
        ),
        counter(
            "fast_packets_malformed",
            "Packets with a wrong sum, of another version, or of no kind that is known",
            counters.malformed,
        ),
        counter(
            "fast_packets_stale",
            "Packets that came twice, or too late to be of use",
            counters.stale,
        ),
        counter(
            "fast_packets_resent",
            "Packets of messages that were sent again",
            counters.resent,
        ),
        counter(
            "fast_retries",
            "Requests that were repeated or asked about because nothing came",
            counters.retries,
        ),
    ]
}

/// What every reactor counts.
pub fn of_reactor(counters: &Counters) -> Vec<Sample> {
    vec![
        gauge("connections", "Open connections", counters.connections),
        counter(
            "connections_accepted",
            "Connections that were accepted",
            counters.accepted,
        ),
        counter(
            "connections_refused",
            "Connections that were refused because there were too many",
            counters.refused,
        ),
        counter(
            "connections_closed_by_bound",
            "Connections that were closed because their peer does not read, is slow or silent, or buffers were full",
            counters.closed_by_bound,
        ),
        counter(
            "messages_delayed_by_bound",
            "Long messages that waited because others from their address had all buffers that are for one address",
            counters.messages_delayed,
        ),
        counter(
            "messages_received",
            "Messages that came in",
            counters.frames_in,
        ),
        counter(
            "messages_sent",
            "Messages that were sent",
            counters.frames_out,
        ),
        byte_counter("received", "Bytes that came in", counters.bytes_in),
        byte_counter("sent", "Bytes that were sent", counters.bytes_out),
        byte_gauge(
            "buffers",
            "Memory of connections' buffers",
            counters.buffer_bytes,
        ),
        time_counter(
            "spin",
            "Time spent polling with nothing to do",
            counters.spin_ns,
        ),
        counter(
            "sleeps",
            "How often a polling thread went to sleep",
            counters.blocks,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let samples = |count| {
            vec![
                counter("reads", "Reads", count),
                time_counter("spin", "Spinning", 1_500_000_000),
            ]
        };
        assert_eq!(
            text(samples(3)),
            "# HELP rcbox_reads Reads\n# TYPE rcbox_reads counter\nrcbox_reads_total 3\n\
             # HELP rcbox_spin_seconds Spinning\n# TYPE rcbox_spin_seconds counter\n\
             # UNIT rcbox_spin_seconds seconds\nrcbox_spin_seconds_total 1.5\n# EOF\n"
        );
        let by_shard = text_by_shard(vec![samples(3), samples(4)]);
        assert!(
            by_shard
                .contains("rcbox_reads_total{shard=\"0\"} 3\nrcbox_reads_total{shard=\"1\"} 4\n"),
            "{by_shard}"
        );
    }
}
