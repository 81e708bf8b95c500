//! What happened, as a number to compare and as lines to read.

use std::io::Write;

/// Prints a line; tells whether somebody still reads.
pub fn print(line: &str) -> bool {
    writeln!(std::io::stdout(), "{line}").is_ok()
}

/// Every event goes in; two runs of one seed must end with the same hash.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    pub events: u64,
    prints: bool,
}

impl Trace {
    pub fn new(prints: bool) -> Trace {
        let header = || format!("{:>14}  {:<10} {:<12} details", "seconds", "who", "event");
        let prints = prints && print(&header());
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            prints,
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    /// Notes an event; `details` is only asked for when somebody reads.
    pub fn event(
        &mut self,
        now: u64,
        who: impl FnOnce() -> String,
        what: &str,
        numbers: &[u64],
        payload: &[u8],
        details: impl FnOnce() -> String,
    ) {
        self.events += 1;
        self.word(now);
        self.bytes(what.as_bytes());
        for &number in numbers {
            self.word(number);
        }
        self.bytes(payload);
        if self.prints {
            let seconds = now as f64 / 1e9;
            let (who, details) = (who(), details());
            self.prints = print(&format!("{seconds:>14.9}  {who:<10} {what:<12} {details}"));
        }
    }
}
