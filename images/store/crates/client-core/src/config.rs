//! How a client is set up.

use core::time::Duration;

use wire::locator::{self, LocatorError};

/// What a client is created with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Locators of the coordinator, tried in turn.
    pub coordinator: Vec<String>,
    /// Of the random delays before requests are sent again, and of the choice between ports that are alike.
    pub seed: u64,
    /// A connection that owes answers and has said nothing for this long is given up; after half of it, it is pinged.
    pub timeout: Duration,
    /// A connection on which nothing was asked for this long is closed: whether anybody is still there, nobody would notice.
    pub idle_timeout: Duration,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// Operations under way at a time; more are refused.
    pub max_operations: usize,
    /// The protocols in which the driver reaches servers, the fastest first. The coordinator is reached over `tcp` only.
    pub protocols: Vec<&'static str>,
}

impl Config {
    /// `coordinator` is a locator or a list of them, such as `tcp:host=10.0.0.1,port=11100`.
    pub fn new(coordinator: &str, seed: u64) -> Result<Config, LocatorError> {
        let list = locator::parse_list(coordinator)?;
        for locator in &list {
            locator.tcp()?;
        }
        Ok(Config {
            coordinator: list.iter().map(ToString::to_string).collect(),
            seed,
            timeout: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            max_operations: 4096,
            protocols: vec!["tcp"],
        })
    }
}
