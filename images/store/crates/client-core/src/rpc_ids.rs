//! RPC ids: numbers under which servers remember results, so that a request sent twice takes effect once.

/// Ids that may be under way past the lowest one that is not finished.
pub const WINDOW: u64 = 512;
const WORDS: usize = (WINDOW / 64) as usize;

#[derive(Debug)]
pub struct RpcIds {
    next: u64,
    /// The lowest id that is not finished, or `next`.
    lowest: u64,
    /// Finished ids from `lowest` on, by id modulo the window.
    finished: [u64; WORDS],
}

impl Default for RpcIds {
    fn default() -> Self {
        RpcIds {
            next: 1,
            lowest: 1,
            finished: [0; WORDS],
        }
    }
}

fn place(id: u64) -> (usize, u64) {
    let bit = id % WINDOW;
    ((bit / 64) as usize, 1 << (bit % 64))
}

impl RpcIds {
    /// A new id and the id up to which all are finished; `None` while the window is full.
    pub fn start(&mut self) -> Option<(u64, u64)> {
        if self.room() == 0 {
            return None;
        }
        let id = self.next;
        let (word, bit) = place(id);
        assert_eq!(self.finished[word] & bit, 0, "a new id is not finished");
        self.next += 1;
        Some((id, self.lowest - 1))
    }

    /// How many more ids can be started now.
    pub fn room(&self) -> u64 {
        let under_way = self.next - self.lowest;
        assert!(under_way <= WINDOW, "a window is under way at most");
        WINDOW - under_way
    }

    /// The answer to this id is here, or is not wanted any more.
    pub fn finish(&mut self, id: u64) {
        assert!(
            (self.lowest..self.next).contains(&id),
            "an id is finished that is under way"
        );
        let (word, bit) = place(id);
        assert_eq!(self.finished[word] & bit, 0, "an id is finished once");
        self.finished[word] |= bit;
        while self.lowest < self.next {
            let (word, bit) = place(self.lowest);
            if self.finished[word] & bit == 0 {
                break;
            }
            self.finished[word] &= !bit;
            self.lowest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledges_up_to_the_lowest_unfinished() {
        let mut ids = RpcIds::default();
        assert_eq!(ids.start(), Some((1, 0)));
        assert_eq!(ids.start(), Some((2, 0)));
        assert_eq!(ids.start(), Some((3, 0)));
        ids.finish(2);
        assert_eq!(ids.start(), Some((4, 0)));
        ids.finish(1);
        assert_eq!(ids.start(), Some((5, 2)));
        ids.finish(3);
        ids.finish(4);
        ids.finish(5);
        assert_eq!(ids.start(), Some((6, 5)));
    }

    #[test]
    fn at_most_a_window_is_under_way_past_the_lowest() {
        let mut ids = RpcIds::default();
        for id in 1..=WINDOW {
            assert_eq!(ids.start(), Some((id, 0)));
        }
        assert_eq!(ids.start(), None);
        for id in 2..=WINDOW {
            ids.finish(id);
        }
        assert_eq!(ids.start(), None, "the lowest one holds the window");
        ids.finish(1);
        for id in WINDOW + 1..=2 * WINDOW {
            assert_eq!(ids.start(), Some((id, WINDOW)));
        }
        assert_eq!(ids.start(), None);
    }
}
