//! A trace for people, and what may be asked of whoever has one.

use std::fmt::Write;

use crate::Trace;
use crate::event::{Event, Words};
use crate::ring::{EVENTS, Record};

/// Events in a text where nobody says how many: a shard stands still for half a millisecond meanwhile.
const LAST: usize = 1000;
/// The most that a text has: as many as RAMCloud remembers.
const MAX_LAST: usize = 8192;

/// In which form a trace is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RAMCloud's lines.
    Text,
    /// [`Trace::to_bytes`].
    Raw,
}

/// What the input of GET_TIME_TRACE and LOG_TIME_TRACE says: words such as `last=200` and `format=raw`. RAMCloud's clients give
/// none, and whatever else is there is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub last: usize,
    pub format: Format,
}

impl Wanted {
    pub fn parse(input: &[u8]) -> Wanted {
        let text = std::str::from_utf8(input).unwrap_or_default();
        let words = || text.split(|c: char| c.is_whitespace() || c == '\0');
        let format = match words().any(|word| word == "format=raw") {
            true => Format::Raw,
            false => Format::Text,
        };
        let (usual, most) = match format {
            Format::Text => (LAST, MAX_LAST),
            Format::Raw => (EVENTS, EVENTS),
        };
        let last = words().find_map(|word| word.strip_prefix("last=")?.parse::<usize>().ok());
        Wanted {
            last: last.unwrap_or(usual).min(most),
            format,
        }
    }

    pub fn to_input(self) -> Vec<u8> {
        let format = match self.format {
            Format::Text => "text",
            Format::Raw => "raw",
        };
        format!("last={} format={format}", self.last).into_bytes()
    }
}

impl Record {
    /// The event's name, as in the source; empty if another version has made it up.
    pub fn name(&self) -> &'static str {
        Event::from_u16(self.event).map_or("", Event::name)
    }

    /// What happened, with place and argument.
    pub fn words(&self) -> String {
        let Record {
            event, place, arg, ..
        } = *self;
        Words { event, place, arg }.to_string()
    }
}

impl Trace {
    /// For each event: nanoseconds since the first of them, since the one before, and what happened.
    pub fn lines(&self) -> impl Iterator<Item = (f64, f64, &Record)> + '_ {
        let start = self.events.first().map_or(0, |event| event.ticks);
        let before = [start]
            .into_iter()
            .chain(self.events.iter().map(|event| event.ticks));
        self.events.iter().zip(before).map(move |(event, before)| {
            let since = |ticks: u64| self.clock.nanos(event.ticks.wrapping_sub(ticks) as i64);
            (since(start), since(before), event)
        })
    }

    /// RAMCloud's lines.
    pub fn text(&self) -> String {
        if self.events.is_empty() {
            return "nothing was recorded yet".to_owned();
        }
        let mut text = String::with_capacity(64 * self.events.len());
        for (at_ns, gap_ns, event) in self.lines() {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{at_ns:10.1} ns (+{gap_ns:8.1} ns): {}",
                event.words()
            );
        }
        text.truncate(text.trim_end().len());
        text
    }
}
