//! Levels of log lines, with RAMCloud's numbers: a client may name one.

/// How much a log line matters; the smallest matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Error = 1,
    Warning = 2,
    Notice = 3,
    Debug = 4,
}

impl Level {
    /// The level for a client's number: the nearest one.
    pub fn nearest(number: u32) -> Level {
        match number {
            0 | 1 => Level::Error,
            2 => Level::Warning,
            3 => Level::Notice,
            4.. => Level::Debug,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_the_nearest_level() {
        let levels = [0, 1, 2, 3, 4, 5, u32::MAX].map(Level::nearest);
        let numbers = levels.map(|level| level as u32);
        assert_eq!(numbers, [1, 1, 2, 3, 4, 4, 4]);
    }
}
