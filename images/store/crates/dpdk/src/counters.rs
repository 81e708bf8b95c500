//! What the driver counts: each lane for itself, read by whoever wants to know.

use std::sync::atomic::{AtomicU64, Ordering};

use frames::Refused;

/// What is counted beside refused frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Datagrams for this lane.
    Received,
    /// Frames that the port has taken.
    Sent,
    /// Received for another lane, and handed over.
    HandedOver,
    /// Received for a lane whose ring was full: dropped.
    RingFull,
    /// To a UDP port that nobody has here: dropped.
    NoSuchPort,
    /// Longer than the MTU: not sent.
    TooLong,
    /// No free packet buffer: not sent.
    NoBuffer,
    /// The port has not taken anything for long: not sent.
    PortFull,
    /// No neighbour answered, or too many frames waited for an answer: not sent.
    NoNeighbour,
    /// ARP requests sent.
    Asked,
    /// ARP requests answered.
    Answered,
    /// Somebody else says that our address is theirs.
    Conflict,
}

impl Count {
    pub const ALL: [Count; 12] = [
        Count::Received,
        Count::Sent,
        Count::HandedOver,
        Count::RingFull,
        Count::NoSuchPort,
        Count::TooLong,
        Count::NoBuffer,
        Count::PortFull,
        Count::NoNeighbour,
        Count::Asked,
        Count::Answered,
        Count::Conflict,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Count::Received => "received",
            Count::Sent => "sent",
            Count::HandedOver => "handed_over",
            Count::RingFull => "ring_full",
            Count::NoSuchPort => "no_such_port",
            Count::TooLong => "too_long",
            Count::NoBuffer => "no_buffer",
            Count::PortFull => "port_full",
            Count::NoNeighbour => "no_neighbour",
            Count::Asked => "arp_asked",
            Count::Answered => "arp_answered",
            Count::Conflict => "address_conflict",
        }
    }
}

/// One lane's; written by its thread only.
#[derive(Default)]
pub(crate) struct Counters {
    counts: [AtomicU64; Count::ALL.len()],
    refused: [AtomicU64; Refused::ALL.len()],
}

impl Counters {
    pub fn add(&self, count: Count, number: u64) {
        increase(&self.counts[count as usize], number);
    }

    pub fn refuse(&self, why: Refused) {
        increase(&self.refused[why as usize], 1);
    }

    /// For those that are kept elsewhere.
    pub fn set(&self, count: Count, number: u64) {
        self.counts[count as usize].store(number, Ordering::Relaxed);
    }

    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Count::ALL
            .iter()
            .map(|count| (count.name(), &self.counts[*count as usize]));
        let refused = Refused::ALL
            .iter()
            .map(|why| (why.name(), &self.refused[*why as usize]));
        counts
            .chain(refused)
            .map(|(name, value)| (name, value.load(Ordering::Relaxed)))
    }
}

/// With one writer, no locked instruction is needed.
fn increase(value: &AtomicU64, number: u64) {
    value.store(value.load(Ordering::Relaxed) + number, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_its_place_and_name() {
        let counters = Counters::default();
        for (number, count) in Count::ALL.into_iter().enumerate() {
            counters.add(count, number as u64 + 1);
        }
        for (number, why) in Refused::ALL.into_iter().enumerate() {
            (0..100 + number).for_each(|_| counters.refuse(why));
        }
        let values: Vec<_> = counters.values().collect();
        let expected = (1..=12).chain(100..109);
        assert_eq!(
            values.iter().map(|(_, value)| *value).collect::<Vec<u64>>(),
            expected.collect::<Vec<u64>>()
        );
        let names: std::collections::BTreeSet<_> = values.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), values.len());
    }
}
