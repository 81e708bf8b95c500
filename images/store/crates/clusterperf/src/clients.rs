//! How the clients of this process reach the store.

use std::ops::Range;
use std::time::Duration;

use client::{Cluster, Options as ClientOptions};
use ports::{Ports, Serves, places};

use super::Options;
use super::error::PerfError;

/// The ports of this process, with a lane for each of its clients.
pub struct Lanes {
    ports: Ports,
    first: u32,
}

impl Lanes {
    /// For the clients with these numbers.
    pub fn open(options: &Options, clients: Range<u32>) -> Result<Lanes, PerfError> {
        let count = u16::try_from(clients.len()).map_err(|_| PerfError::TooManyClients)?;
        Ok(Lanes {
            ports: Ports::open(places(&options.local)?, &options.eal, count)?,
            first: clients.start,
        })
    }

    pub fn connect(&self, options: &Options, index: u32) -> Result<Cluster, PerfError> {
        if self.ports.is_empty() {
            return connect(options);
        }
        let lane = u16::try_from(index - self.first).unwrap_or(u16::MAX);
        let lanes = self.ports.lanes(lane, Serves::Clients)?.into_iter();
        let ports = lanes.flat_map(|lane| lane.ports).collect();
        let cluster = Cluster::with_ports(&options.coordinator, of_client(options), ports)?;
        Ok(cluster)
    }
}

fn of_client(options: &Options) -> ClientOptions {
    ClientOptions {
        spin: Duration::from_micros(options.poll_micros),
        fast: !options.tcp,
        ..ClientOptions::default()
    }
}

/// A client without ports of its own.
pub fn connect(options: &Options) -> Result<Cluster, PerfError> {
    let cluster = Cluster::with_options(&options.coordinator, of_client(options))?;
    Ok(cluster)
}
