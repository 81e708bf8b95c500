//! What has happened to the store lately, for people: the newest events, each with its time.
//!
//! Nothing is decided by them. They are noted once the format in force has records of this kind; until then they end with the process.

mod durable;
mod expiry;

use crate::journaled::Journaled;
use crate::status::{Event, EventKind};

/// Older ones make room.
const MOST: usize = 256;
/// The rest of a text is cut off.
const MAX_TEXT_BYTES: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// By number.
    kept: Journaled<u64, Event>,
}

impl Events {
    /// One more. Cluster time never goes back.
    pub fn happened(&mut self, cluster_time_ns: u64, kind: EventKind, mut text: String) {
        cut(&mut text);
        let last = self.kept.iter().next_back();
        let (number, last_ns) = last.map_or((1, 0), |(number, last)| {
            (number.saturating_add(1), last.cluster_time_ns)
        });
        let event = Event {
            cluster_time_ns: cluster_time_ns.max(last_ns),
            kind: kind as u32,
            text,
        };
        self.kept.insert(number, event);
        if self.kept.len() > MOST {
            self.drop_oldest();
        }
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.kept.values()
    }

    fn drop_oldest(&mut self) {
        let oldest = self.kept.iter().next().map(|(number, _)| *number);
        if let Some(oldest) = oldest {
            self.kept.remove(&oldest);
        }
    }
}

fn cut(text: &mut String) {
    let mut ends = (0..=MAX_TEXT_BYTES.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_texts_are_cut() {
        let mut events = Events::default();
        let last = MOST as u64 + 3;
        for number in 1..=last {
            events.happened(number, EventKind::MemberRemoved, format!("event {number}"));
        }
        let kept: Vec<u64> = events.iter().map(|event| event.cluster_time_ns).collect();
        assert_eq!(kept, (4..=last).collect::<Vec<u64>>());
        events.happened(5, EventKind::MemberRemoved, "\u{20ac}".repeat(200));
        let newest = events.iter().last().expect("there are some");
        assert_eq!(newest.cluster_time_ns, last, "time does not go back");
        assert_eq!(newest.text, "\u{20ac}".repeat(166));
        assert_eq!(events.iter().count(), MOST);
    }
}
