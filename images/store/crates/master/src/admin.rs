//! Questions about this server, and control operations.

use log::LogPosition;
use prost::Message;
use wire::hash::key_hash;
use wire::ids::ReplyTo;
use wire::opcode::Opcode;
use wire::proto;
use wire::rpc::{
    self, BARE_REQUEST_BYTES, ControlTarget, GetServerIdResponse, MAX_KEY_BYTES, MAX_VALUE_BYTES,
    MessageResponse, PerfStats, ServerControlRequest, ServerControlResponse, control_op,
};
use wire::status::Status;
use wire::time::Time;

use crate::output::Output;
use crate::shard::Shard;

/// A control operation's text that goes into the log, at most.
const MAX_LOG_TEXT_BYTES: usize = 8 << 10;
const NO_TRACE: &str = "no time trace is recorded by this build";
const NANOSECONDS: f64 = 1e9;
mod level {
    pub const WARNING: u32 = 2;
    pub const NOTICE: u32 = 3;
    pub const DEBUG: u32 = 4;
}

/// The parts of request and response that are always there.
pub(crate) fn fixed_bytes(opcode: Opcode) -> Option<(usize, usize)> {
    Some(match opcode {
        Opcode::GetServerId => (BARE_REQUEST_BYTES, GetServerIdResponse::FIXED_BYTES),
        Opcode::GetMetrics | Opcode::GetServerConfig => {
            (BARE_REQUEST_BYTES, MessageResponse::FIXED_BYTES)
        }
        Opcode::ServerControl => (
            ServerControlRequest::FIXED_BYTES,
            ServerControlResponse::FIXED_BYTES,
        ),
        Opcode::Kill => (BARE_REQUEST_BYTES, 4),
        _ => return None,
    })
}

impl Shard {
    /// A request for the ADMIN service; PING is answered elsewhere.
    pub(crate) fn admin_request(
        &mut self,
        now: Time,
        to: ReplyTo,
        opcode: Opcode,
        payload: &[u8],
        out: &mut impl Output,
    ) {
        let Some((request_bytes, response_bytes)) = fixed_bytes(opcode) else {
            return out.reply(to, &[&rpc::status_bytes(Status::UnimplementedRequest)]);
        };
        if payload.len() < request_bytes {
            return out.reply(to, &[&rpc::status_bytes(Status::MessageTooShort)]);
        }
        if opcode == Opcode::Kill {
            return self.kill(to, out);
        }
        let mut response = Vec::new();
        let done = match opcode {
            Opcode::GetServerId => {
                let (status, server_id) = (Status::Ok, self.server_id());
                GetServerIdResponse { status, server_id }.encode(&mut response);
                Ok(())
            }
            Opcode::GetMetrics => message(&self.metrics(out), &mut response),
            Opcode::GetServerConfig => message(&self.server_config(), &mut response),
            _ => self.server_control(now, payload, &mut response, out),
        };
        match done {
            Ok(()) => out.reply(to, &[&response]),
            Err(status) => {
                let error = rpc::error_response(status, payload, request_bytes, response_bytes);
                out.reply(to, &[error.as_bytes()]);
            }
        }
    }

    /// GET_SERVER_STATISTICS: what each tablet was used for since it came here.
    pub(crate) fn get_server_statistics(
        &self,
        to: ReplyTo,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let entries = self
            .store
            .tablets
            .uses()
            .map(|(range, uses)| proto::TabletStatistics {
                table_id: range.table_id,
                start_key_hash: range.start_key_hash,
                end_key_hash: range.end_key_hash,
                number_read_and_writes: Some(uses),
            });
        let statistics = proto::ServerStatistics {
            tabletentry: entries.collect(),
            spin_lock_stats: proto::SpinLockStatistics {},
        };
        reply_message(to, &statistics, out)
    }

    /// GET_LOG_METRICS: a log without replicas waits for nobody, and how long appends take is not measured.
    pub(crate) fn get_log_metrics(&self, to: ReplyTo, out: &mut impl Output) -> Result<(), Status> {
        let metrics = proto::LogMetrics {
            ticks_per_second: NANOSECONDS,
            total_append_calls: self.counters.writes
                + self.counters.removes
                + self.counters.increments,
            total_bytes_appended: self.appended_bytes(),
            ..proto::LogMetrics::default()
        };
        reply_message(to, &metrics, out)
    }

    fn appended_bytes(&self) -> u64 {
        let head = self.store.log.head_position();
        head.0 - LogPosition::START.0
    }

    fn metrics(&self, out: &mut impl Output) -> proto::MetricList {
        let stats = self.stats();
        let driver = out.driver_counters();
        let metrics = [
            ("serverId", self.server_id().0),
            ("master.reads", stats.reads),
            ("master.writes", stats.writes),
            ("master.removes", stats.removes),
            ("master.increments", stats.increments),
            ("master.multiOps", stats.multi_ops),
            ("master.objects", stats.objects),
            ("master.tablets", stats.tablets),
            ("master.retries", stats.retries),
            ("master.refusedForMemory", stats.rejected_full),
            ("log.capacityBytes", stats.log_capacity_bytes),
            ("log.liveBytes", stats.log_live_bytes),
            ("log.freeBytes", stats.log_free_bytes),
            ("cleaner.segments", stats.segments_cleaned),
            ("network.inputBytes", driver.input_bytes),
            ("network.outputBytes", driver.output_bytes),
            ("busyNanoseconds", driver.busy_ns),
        ];
        let metric = metrics.into_iter().map(|(name, value)| proto::Metric {
            name: name.to_owned(),
            value,
        });
        proto::MetricList {
            metric: metric.collect(),
        }
    }

    fn server_config(&self) -> proto::ServerConfig {
        let config = &self.config;
        proto::ServerConfig {
            coordinator_locator: self.identity.coordinator.clone(),
            local_locator: self.identity.locator.clone(),
            cluster_name: self.membership.cluster_id().to_string(),
            services: "MASTER_SERVICE, ADMIN_SERVICE".to_owned(),
            detect_failures: false,
            pin_memory: false,
            segment_size: config.segment_bytes,
            // Segments are whole pieces of memory here.
            seglet_size: config.segment_bytes,
            max_object_data_size: MAX_VALUE_BYTES as u32,
            max_object_key_size: MAX_KEY_BYTES as u32,
            max_cores: 1,
            master: Some(proto::MasterConfig {
                log_bytes: config.log_bytes as u64,
                hash_table_bytes: config.hash_table_bytes as u64,
                cleaner_thread_count: 1,
                ..proto::MasterConfig::default()
            }),
        }
    }

    /// The counters as benchmarks want them.
    fn perf_stats(&self, now: Time, out: &mut impl Output) -> PerfStats {
        let (stats, driver) = (self.stats(), out.driver_counters());
        PerfStats {
            thread_id: self.identity.shard_index,
            collection_time: now.0,
            cycles_per_second: NANOSECONDS,
            read_count: stats.reads,
            read_object_bytes: stats.read_bytes,
            write_count: stats.writes + stats.increments,
            write_object_bytes: stats.written_bytes,
            dispatch_active_cycles: driver.busy_ns,
            worker_active_cycles: driver.busy_ns,
            log_bytes_appended: self.appended_bytes(),
            cleaner_input_memory_bytes: stats.cleaner_scanned_bytes,
            cleaner_survivor_bytes: stats.cleaner_survivor_bytes,
            network_input_bytes: driver.input_bytes,
            network_output_bytes: driver.output_bytes,
            log_size_bytes: stats.log_capacity_bytes,
            log_used_bytes: stats.log_capacity_bytes - stats.log_free_bytes,
            log_free_bytes: stats.log_free_bytes,
            log_live_bytes: stats.log_live_bytes,
            log_max_live_bytes: stats.log_max_live_bytes,
            log_appendable_bytes: stats.log_free_bytes,
            ..PerfStats::default()
        }
    }

    fn server_control(
        &mut self,
        now: Time,
        payload: &[u8],
        response: &mut Vec<u8>,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = ServerControlRequest::decode(payload)?;
        match request.target {
            ControlTarget::ServerId => {}
            ControlTarget::Index => return Err(Status::UnknownIndexlet),
            ControlTarget::Object => {
                let hash = key_hash(request.table_id, request.key);
                if !self.store.tablets.owns(request.table_id, hash) {
                    return Err(Status::UnknownTablet);
                }
            }
        }
        self.control_operation(now, request.control_op, request.input, response, out);
        Ok(())
    }

    /// Carries out a control operation and appends a complete SERVER_CONTROL response.
    pub(crate) fn control_operation(
        &mut self,
        now: Time,
        operation: u32,
        input: &[u8],
        response: &mut Vec<u8>,
        out: &mut impl Output,
    ) {
        let mut status = Status::Ok;
        let mut output = Vec::new();
        match operation {
            control_op::GET_PERF_STATS => {
                output.extend_from_slice(&self.perf_stats(now, out).to_bytes());
            }
            control_op::GET_TIME_TRACE | control_op::GET_CACHE_TRACE => {
                output.extend_from_slice(NO_TRACE.as_bytes());
            }
            control_op::LOG_TIME_TRACE | control_op::LOG_CACHE_TRACE => {
                out.log_message(level::NOTICE, NO_TRACE);
            }
            // Counters always run and only grow, and there are no backups that could have something to write out.
            control_op::START_PERF_COUNTERS
            | control_op::STOP_PERF_COUNTERS
            | control_op::RESET_METRICS
            | control_op::QUIESCE => {
                out.log_message(level::DEBUG, "a control operation had nothing to do");
            }
            control_op::LOG_MESSAGE => status = log_message(input, out),
            _ => status = Status::UnimplementedRequest,
        }
        ServerControlResponse {
            status,
            server_id: self.server_id(),
            output: &output,
        }
        .encode(response);
    }

    /// KILL: the process ends, and nobody gets an answer.
    fn kill(&mut self, to: ReplyTo, out: &mut impl Output) {
        match self.test_rpc("KILL", out) {
            Ok(()) => {
                out.log_message(level::WARNING, "KILL was asked for: this process ends");
                out.end_process();
            }
            Err(status) => out.reply(to, &[&rpc::status_bytes(status)]),
        }
    }

    /// Whether RPCs that can do harm are allowed.
    pub(crate) fn test_rpc(&mut self, name: &str, out: &mut impl Output) -> Result<(), Status> {
        if self.config.allow_test_rpcs {
            return Ok(());
        }
        if !self.told_about_test_rpcs {
            self.told_about_test_rpcs = true;
            let text = format!(
                "{name} was refused: it is for tests; start the server with --allowTestRpcs to allow it"
            );
            out.log_message(level::WARNING, &text);
        }
        Err(Status::UnimplementedRequest)
    }
}

fn message(message: &impl Message, response: &mut Vec<u8>) -> Result<(), Status> {
    MessageResponse {
        status: Status::Ok,
        message: &message.encode_to_vec(),
    }
    .encode(response);
    Ok(())
}

fn reply_message(to: ReplyTo, content: &impl Message, out: &mut impl Output) -> Result<(), Status> {
    let mut response = Vec::new();
    message(content, &mut response)?;
    out.reply(to, &[&response]);
    Ok(())
}

fn log_message(input: &[u8], out: &mut impl Output) -> Status {
    let Some((level, text)) = input.split_first_chunk::<4>() else {
        return Status::MessageTooShort;
    };
    let text = &text[..text.len().min(MAX_LOG_TEXT_BYTES)];
    out.log_message(u32::from_le_bytes(*level), &String::from_utf8_lossy(text));
    Status::Ok
}
