//! What a shard tells of its work: performance counters, statistics, metrics, configuration.

use base::time::Time;
use wire::proto::{
    LogMetrics, MasterConfig, Metric, MetricList, ServerConfig, ServerStatistics,
    SpinLockStatistics, TabletStatistics,
};
use wire::rpc::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PerfStats};

use crate::effects::DriverCounters;
use crate::shard::Shard;

/// All times are told in nanoseconds.
const TICKS_PER_SECOND: f64 = 1e9;

impl Shard {
    /// The counters that throughput tests take the difference of. What [`PerfStats`] leaves out is of what this version does not
    /// have (indexes) or does not count here (single requests to backups, a backup's own work, migration).
    pub(crate) fn perf_stats(&self, now: Time, driver: &DriverCounters) -> PerfStats {
        let stats = self.stats();
        let increments = stats.increments;
        PerfStats {
            thread_id: self.identity.shard_index,
            collection_time: now.0,
            cycles_per_second: TICKS_PER_SECOND,
            read_count: stats.reads,
            read_object_bytes: stats.read_bytes,
            read_key_bytes: stats.read_key_bytes,
            write_count: stats.writes + increments,
            write_object_bytes: stats.written_value_bytes + 8 * increments,
            write_key_bytes: stats.written_bytes - stats.written_value_bytes,
            // One thread does what dispatcher and workers do elsewhere: it is as busy as either.
            dispatch_active_cycles: driver.busy_ns,
            worker_active_cycles: driver.busy_ns,
            log_sync_cycles: self.waiting.total_ns(now),
            cleaner_active_cycles: driver.cleaner_ns,
            log_bytes_appended: self.store.log.appended().bytes,
            cleaner_input_memory_bytes: stats.cleaner_scanned_bytes,
            cleaner_survivor_bytes: stats.cleaner_survivor_bytes,
            network_input_bytes: driver.input_bytes,
            network_output_bytes: driver.output_bytes,
            log_size_bytes: stats.log_capacity_bytes,
            log_used_bytes: stats.log_capacity_bytes - stats.log_free_bytes,
            log_free_bytes: stats.log_free_bytes,
            log_live_bytes: stats.log_live_bytes,
            log_max_live_bytes: stats.log_max_live_bytes,
            log_appendable_bytes: stats
                .log_max_live_bytes
                .saturating_sub(stats.log_live_bytes - stats.log_tombstone_bytes),
        }
    }

    pub(crate) fn server_statistics(&self) -> ServerStatistics {
        let tablets = self.store.tablets.uses();
        ServerStatistics {
            tabletentry: tablets
                .map(|(tablet, uses)| TabletStatistics {
                    table_id: tablet.table_id,
                    start_key_hash: tablet.start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                    number_read_and_writes: Some(uses),
                })
                .collect(),
            spin_lock_stats: SpinLockStatistics {},
        }
    }

    /// Appending copies into memory: it takes no time that could be told apart, and there is nothing to be synced with.
    pub(crate) fn log_metrics(&self) -> LogMetrics {
        let appended = self.store.log.appended();
        LogMetrics {
            ticks_per_second: TICKS_PER_SECOND,
            total_sync_calls: 0,
            total_sync_ticks: 0,
            total_append_calls: appended.entries,
            total_append_ticks: 0,
            total_no_space_ticks: 0,
            total_bytes_appended: appended.bytes,
            total_metadata_bytes_appended: 0,
        }
    }

    pub(crate) fn metric_list(&self, now: Time, driver: &DriverCounters) -> MetricList {
        let stats = self.stats();
        let metrics = [
            ("serverId", self.server_id().0),
            ("clockFrequency", TICKS_PER_SECOND as u64),
            ("time", now.0),
            ("dispatchTicks", driver.busy_ns),
            ("transport.receive.byteCount", driver.input_bytes),
            ("transport.transmit.byteCount", driver.output_bytes),
            ("master.readCount", stats.reads),
            ("master.readBytes", stats.read_bytes),
            ("master.writeCount", stats.writes),
            ("master.writeBytes", stats.written_bytes),
            ("master.removeCount", stats.removes),
            ("master.incrementCount", stats.increments),
            ("master.enumeratedCount", stats.enumerated),
            ("master.multiOpCount", stats.multi_ops),
            ("master.duplicateCount", stats.duplicates),
            ("master.retryCount", stats.retries),
            ("master.fullCount", stats.rejected_full),
            ("master.objectCount", stats.objects),
            ("master.tabletCount", stats.tablets),
            ("master.clientCount", stats.clients),
            ("master.rpcResultCount", stats.rpc_results),
            ("master.heldReplyCount", stats.held_replies),
            (
                "master.log.appendedEntries",
                self.store.log.appended().entries,
            ),
            ("master.log.appendedBytes", self.store.log.appended().bytes),
            ("master.log.capacityBytes", stats.log_capacity_bytes),
            ("master.log.freeBytes", stats.log_free_bytes),
            ("master.log.liveBytes", stats.log_live_bytes),
            ("master.log.maxLiveBytes", stats.log_max_live_bytes),
            ("master.log.tombstoneBytes", stats.log_tombstone_bytes),
            ("master.cleaner.segmentCount", stats.segments_cleaned),
            ("master.cleaner.scannedBytes", stats.cleaner_scanned_bytes),
            ("master.cleaner.survivorBytes", stats.cleaner_survivor_bytes),
        ];
        let metric = metrics.into_iter().map(|(name, value)| Metric {
            name: name.to_owned(),
            value,
        });
        MetricList {
            metric: metric.collect(),
        }
    }

    pub(crate) fn server_config(&self) -> ServerConfig {
        let config = &self.config;
        ServerConfig {
            coordinator_locator: self.identity.coordinator.clone(),
            local_locator: self.identity.locator.clone(),
            cluster_name: String::new(),
            services: "MASTER_SERVICE, ADMIN_SERVICE".to_owned(),
            detect_failures: false,
            pin_memory: false,
            segment_size: config.segment_bytes,
            seglet_size: config.segment_bytes,
            max_object_data_size: MAX_VALUE_BYTES as u32,
            max_object_key_size: MAX_KEY_BYTES as u32,
            max_cores: 1,
            master: Some(MasterConfig {
                log_bytes: self.store.log.usage().capacity_bytes,
                hash_table_bytes: config.hash_table_bytes as u64,
                disable_log_cleaner: false,
                disable_in_memory_cleaning: false,
                backup_disk_expansion_factor: 1.0,
                cleaner_write_cost_threshold: 0,
                cleaner_balancer: String::new(),
                cleaner_thread_count: 0,
                num_replicas: 0,
                use_hugepages: self.store.log.is_lent(),
                use_mincopysets: false,
                use_local_backup: false,
                use_plusonebackup: false,
            }),
        }
    }
}
