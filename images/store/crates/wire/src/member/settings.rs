//! What people change of a store while it runs: docs/settings.md.

use core::fmt;
use core::ops::RangeInclusive;

use prost::Message;

/// Bounds of the settings, and of the options of programs that say the same.
pub mod bounds {
    use core::ops::RangeInclusive;

    pub const REPLICAS: RangeInclusive<u32> = 1..=8;
    pub const REPAIR_MBPS: RangeInclusive<u32> = 1..=100_000;
    pub const POLL_MICROS: RangeInclusive<u32> = 0..=10_000_000;
    pub const CLEANER_FREE_PERCENT: RangeInclusive<u32> = 1..=50;
    pub const MAX_CONNECTIONS: RangeInclusive<u32> = 16..=1_000_000;
    pub const LOG_LEVEL: RangeInclusive<u32> = 1..=5;
    pub const REBALANCE_MBPS: RangeInclusive<u32> = 0..=100_000;
}

/// For each that is not there, what a process was started with counts.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Settings {
    /// Counts the changes, from 1.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Of each segment of a log. Not for a server whose log has none.
    #[prost(uint32, optional, tag = "2")]
    pub replicas: Option<u32>,
    /// With fewer, writes wait; comes with `replicas` alone.
    #[prost(uint32, optional, tag = "3")]
    pub min_replicas: Option<u32>,
    /// How fast each log's lost replicas are made again, in MB per second.
    #[prost(uint32, optional, tag = "4")]
    pub repair_mbps: Option<u32>,
    /// How long a shard polls after its last request before it sleeps.
    #[prost(uint32, optional, tag = "5")]
    pub poll_micros: Option<u32>,
    /// The cleaner runs while no more of a log's memory than this is free.
    #[prost(uint32, optional, tag = "6")]
    pub cleaner_free_percent: Option<u32>,
    /// Of clients, to each shard at one time. Those that are there stay.
    #[prost(uint32, optional, tag = "7")]
    pub max_connections: Option<u32>,
    /// 1 error, 2 warning, 3 notice, 4 debug, 5 trace; of servers and coordinators.
    #[prost(uint32, optional, tag = "8")]
    pub log_level: Option<u32>,
    /// Of each migration that the coordinator begins by itself; 0: it begins none but those of drained members.
    #[prost(uint32, optional, tag = "9")]
    pub rebalance_mbps: Option<u32>,
}

/// Why settings cannot be in force. The text names the setting, and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpossibleSettings {
    OutOfBounds {
        name: &'static str,
        value: u32,
        bounds: RangeInclusive<u32>,
    },
    LeastWithoutReplicas,
    /// The least number of replicas is 0, or more than their number.
    Least {
        min_replicas: u32,
        replicas: u32,
    },
}

impl fmt::Display for ImpossibleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImpossibleSettings::OutOfBounds {
                name,
                value,
                bounds,
            } => write!(
                f,
                "{name} is {value}: it must be from {} to {}",
                bounds.start(),
                bounds.end()
            ),
            ImpossibleSettings::LeastWithoutReplicas => {
                f.write_str("minReplicas is set without replicas: set both")
            }
            ImpossibleSettings::Least {
                min_replicas,
                replicas,
            } => write!(
                f,
                "minReplicas is {min_replicas}: it must be from 1 to replicas, which is {replicas}"
            ),
        }
    }
}

impl core::error::Error for ImpossibleSettings {}

impl Settings {
    /// Whether each is possible.
    ///
    /// # Errors
    /// One is not, or two do not go together.
    pub fn check(&self) -> Result<(), ImpossibleSettings> {
        let ranges = [
            ("replicas", self.replicas, bounds::REPLICAS),
            ("repairMBps", self.repair_mbps, bounds::REPAIR_MBPS),
            ("pollMicros", self.poll_micros, bounds::POLL_MICROS),
            (
                "cleanerFreePercent",
                self.cleaner_free_percent,
                bounds::CLEANER_FREE_PERCENT,
            ),
            (
                "maxConnections",
                self.max_connections,
                bounds::MAX_CONNECTIONS,
            ),
            ("logLevel", self.log_level, bounds::LOG_LEVEL),
            ("rebalanceMBps", self.rebalance_mbps, bounds::REBALANCE_MBPS),
        ];
        for (name, value, bounds) in ranges {
            if let Some(value) = value.filter(|value| !bounds.contains(value)) {
                return Err(ImpossibleSettings::OutOfBounds {
                    name,
                    value,
                    bounds,
                });
            }
        }
        match (self.replicas, self.min_replicas) {
            (None, Some(_)) => Err(ImpossibleSettings::LeastWithoutReplicas),
            (Some(replicas), Some(min_replicas)) if !(1..=replicas).contains(&min_replicas) => {
                Err(ImpossibleSettings::Least {
                    min_replicas,
                    replicas,
                })
            }
            (Some(_), Some(_)) | (_, None) => Ok(()),
        }
    }

    /// Whether both say the same, whenever they were made.
    pub fn is_same(&self, other: &Settings) -> bool {
        let of = |settings: &Settings| Settings {
            number: 0,
            ..*settings
        };
        of(self) == of(other)
    }

    /// The least number of replicas of these settings, if they say how many there are to be.
    pub fn least_replicas(&self) -> Option<u32> {
        let replicas = self.replicas?;
        Some(self.min_replicas.unwrap_or((replicas - 1).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_bounds_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let good = Settings {
            number: 3,
            replicas: Some(3),
            min_replicas: Some(3),
            repair_mbps: Some(1),
            poll_micros: Some(0),
            cleaner_free_percent: Some(50),
            max_connections: Some(16),
            log_level: Some(5),
            rebalance_mbps: Some(0),
        };
        assert_eq!(good.check(), Ok(()));
        let bad = [
            (
                Settings {
                    replicas: Some(0),
                    ..good
                },
                "replicas is 0: it must be from 1 to 8",
            ),
            (
                Settings {
                    min_replicas: Some(4),
                    ..good
                },
                "minReplicas is 4",
            ),
            (
                Settings {
                    min_replicas: Some(0),
                    ..good
                },
                "minReplicas is 0",
            ),
            (
                Settings {
                    replicas: None,
                    ..good
                },
                "minReplicas is set without replicas",
            ),
            (
                Settings {
                    cleaner_free_percent: Some(51),
                    ..good
                },
                "cleanerFreePercent is 51",
            ),
            (
                Settings {
                    log_level: Some(6),
                    ..good
                },
                "logLevel is 6",
            ),
        ];
        for (settings, text) in bad {
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn the_least_number_follows_from_the_number() {
        let of = |replicas, min_replicas| Settings {
            replicas,
            min_replicas,
            ..Default::default()
        };
        assert_eq!(of(None, None).least_replicas(), None);
        assert_eq!(of(Some(1), None).least_replicas(), Some(1));
        assert_eq!(of(Some(3), None).least_replicas(), Some(2));
        assert_eq!(of(Some(3), Some(1)).least_replicas(), Some(1));
        let again = Settings {
            number: 7,
            ..of(Some(3), None)
        };
        assert!(of(Some(3), None).is_same(&again) && !of(Some(3), Some(1)).is_same(&again));
    }
}
