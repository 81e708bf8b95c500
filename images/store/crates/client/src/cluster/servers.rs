//! The store, and its servers.

use std::time::Duration;

use crate::{
    Cluster, ControlOutput, Error, Lease, LogMetrics, PerfStats, Server, ServerConfig, ServerId,
    ServerStatistics, TableId, ops,
};

/// The store and its servers.
impl Cluster {
    /// The store's servers.
    pub fn server_list(&mut self) -> Result<Vec<Server>, Error> {
        self.run(ops::ServerList {})
    }

    /// Gets what the first write would have to wait for.
    pub fn acquire_lease(&mut self) -> Result<Lease, Error> {
        self.run(ops::AcquireLease {})
    }

    /// When a client lease ends; its id is 0 if it has.
    pub fn lease_info(&mut self, lease_id: u64) -> Result<Lease, Error> {
        self.run(ops::LeaseInfo { lease_id })
    }

    /// Tells the coordinator that a server could not be reached.
    pub fn hint_server_crashed(&mut self, server_id: ServerId) -> Result<(), Error> {
        self.run(ops::HintServerCrashed { server_id })
    }

    /// An option of the coordinator.
    pub fn runtime_option(&mut self, option: &str) -> Result<Vec<u8>, Error> {
        self.run(ops::GetRuntimeOption { option })
    }

    /// Sets an option of the coordinator.
    pub fn set_runtime_option(&mut self, option: &str, value: &str) -> Result<(), Error> {
        self.run(ops::SetRuntimeOption { option, value })
    }

    /// A control operation for the server that owns a key; see [`control_op`].
    pub fn server_control(
        &mut self,
        table: TableId,
        key: &[u8],
        operation: u32,
        input: &[u8],
    ) -> Result<ControlOutput, Error> {
        self.run(ops::ServerControl {
            table,
            key,
            operation,
            input,
        })
    }

    /// A control operation for every server; those that did not answer in time, or refused it, are missing.
    pub fn control_all(
        &mut self,
        operation: u32,
        input: &[u8],
    ) -> Result<Vec<ControlOutput>, Error> {
        self.run(ops::ControlAll { operation, input })
    }

    /// Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug.
    pub fn log_message_all(&mut self, level: u32, text: &str) -> Result<(), Error> {
        let text = text.to_owned();
        self.run(ops::LogMessageAll { level, text })
    }

    /// The performance counters of the server that owns a key.
    pub fn perf_stats(&mut self, table: TableId, key: &[u8]) -> Result<PerfStats, Error> {
        self.run(ops::GetPerfStats { table, key })
    }

    /// The performance counters of every server.
    pub fn perf_stats_all(&mut self) -> Result<Vec<(ServerId, PerfStats)>, Error> {
        self.run(ops::GetAllPerfStats {})
    }

    /// Makes objects for tests; the servers must allow it.
    pub fn fill_with_test_data(
        &mut self,
        table: TableId,
        objects: u32,
        object_bytes: u32,
    ) -> Result<(), Error> {
        self.run(ops::FillWithTestData {
            table,
            objects,
            object_bytes,
        })
    }
}

/// One server, by its locator (`tcp:host=10.0.0.1,port=12100`). A connection that fails is not tried again: [`Error::Unreachable`].
impl Cluster {
    /// Is anybody there?
    pub fn ping(&mut self, locator: &str) -> Result<(), Error> {
        let locator = locator.to_owned();
        self.run(ops::Ping { locator })
    }

    /// Who is there? [`ServerId::INVALID`] for a coordinator, or a server that is in no store yet.
    pub fn server_id(&mut self, locator: &str) -> Result<ServerId, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerId { locator })
    }

    /// How it was started.
    pub fn server_config(&mut self, locator: &str) -> Result<ServerConfig, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerConfig { locator })
    }

    /// What its tablets were used for.
    pub fn server_statistics(&mut self, locator: &str) -> Result<ServerStatistics, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerStatistics { locator })
    }

    /// Names and numbers.
    pub fn metrics(&mut self, locator: &str) -> Result<Vec<(String, u64)>, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetMetrics { locator })
    }

    /// What happened in its log.
    pub fn log_metrics(&mut self, locator: &str) -> Result<LogMetrics, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetLogMetrics { locator })
    }

    /// Sends bytes there and gets `answer_bytes` of its own back.
    pub fn echo(
        &mut self,
        locator: &str,
        bytes: &[u8],
        answer_bytes: u32,
    ) -> Result<Vec<u8>, Error> {
        let locator = locator.to_owned();
        self.run(ops::Echo {
            locator,
            bytes,
            answer_bytes,
        })
    }

    /// Has it ping another server; `None` if that did not answer in time.
    pub fn proxy_ping(
        &mut self,
        locator: &str,
        server_id: ServerId,
        timeout: Duration,
    ) -> Result<Option<Duration>, Error> {
        let locator = locator.to_owned();
        self.run(ops::ProxyPing {
            locator,
            server_id,
            timeout,
        })
    }

    /// Ends it, if it allows that.
    pub fn kill(&mut self, locator: &str) -> Result<(), Error> {
        let locator = locator.to_owned();
        match self.run(ops::Kill { locator }) {
            // It says nothing any more.
            Err(Error::Unreachable(_)) => Ok(()),
            other => other,
        }
    }
}
