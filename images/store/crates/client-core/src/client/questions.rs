//! Operations that ask about the store and its servers, and those of tools.

use core::time::Duration;

use base::ids::{ServerId, TableId};
use base::time::Time;
use wire::opcode::{Opcode, Service};
use wire::rpc::{self, ControlTarget, MAX_RPC_BYTES};

use super::Client;
use crate::checks::{MAX_TEXT_BYTES, check_name};
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::operation::{Kind, ResponseKind};
use crate::operation_id::OperationId;

/// What can be asked of a server by its locator, with nothing to say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Its id; [`crate::Outcome::Server`].
    ServerId,
    /// Protobuf messages; [`crate::Outcome::Message`].
    Metrics,
    Config,
    Statistics,
    LogMetrics,
    /// Are you there? [`crate::Outcome::Done`].
    Ping,
    /// End at once. There is no answer: the operation fails with [`Error::Unreachable`] if it worked.
    Kill,
}

impl Client {
    /// Makes two tablets of the one that holds `key_hash`, which becomes the first of the second.
    pub fn split_tablet(
        &mut self,
        now: Time,
        name: &[u8],
        split_key_hash: u64,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::SplitTabletRequest {
            name,
            split_key_hash,
        };
        let encode = |bytes: &mut Vec<u8>| request.encode(bytes);
        let kind = Kind::Coordinator(ResponseKind::Done);
        self.start_checked(now, kind, check_name(name), encode, out)
    }

    /// The servers that offer one of these services; a [`wire::proto::ServerList`].
    pub fn server_list(
        &mut self,
        now: Time,
        service_mask: u32,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::GetServerListRequest { service_mask };
        self.ask_coordinator(
            now,
            ResponseKind::Message,
            |bytes| request.encode(bytes),
            out,
        )
    }

    /// Where the tablets of a table are; a [`wire::proto::TableConfig`], empty if there is no such table.
    pub fn table_config(
        &mut self,
        now: Time,
        table_id: TableId,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::GetTableConfigRequest { table_id };
        self.ask_coordinator(
            now,
            ResponseKind::Message,
            |bytes| request.encode(bytes),
            out,
        )
    }

    /// When this client lease ends; its id is 0 if it has.
    pub fn lease_info(
        &mut self,
        now: Time,
        lease_id: u64,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::GetLeaseInfoRequest { lease_id };
        self.ask_coordinator(
            now,
            ResponseKind::LeaseInfo,
            |bytes| request.encode(bytes),
            out,
        )
    }

    /// Tells the coordinator that this server could not be reached.
    pub fn hint_server_crashed(
        &mut self,
        now: Time,
        server_id: ServerId,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::HintServerCrashedRequest { server_id };
        self.ask_coordinator(now, ResponseKind::Done, |bytes| request.encode(bytes), out)
    }

    pub fn runtime_option(
        &mut self,
        now: Time,
        option: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::GetRuntimeOptionRequest { option };
        let kind = Kind::Coordinator(ResponseKind::Message);
        let encode = |bytes: &mut Vec<u8>| request.encode(bytes);
        self.start_checked(now, kind, check_name(option), encode, out)
    }

    pub fn set_runtime_option(
        &mut self,
        now: Time,
        option: &[u8],
        value: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::SetRuntimeOptionRequest { option, value };
        let check = check_name(option).and_then(|()| check_name(value));
        let encode = |bytes: &mut Vec<u8>| request.encode(bytes);
        self.start_checked(
            now,
            Kind::Coordinator(ResponseKind::Done),
            check,
            encode,
            out,
        )
    }

    /// A control operation for the server that owns this key; see [`rpc::control_op`].
    pub fn server_control(
        &mut self,
        now: Time,
        table_id: TableId,
        key: &[u8],
        control_op: u32,
        input: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        if input.len() > MAX_TEXT_BYTES {
            let error = Error::Invalid("the input of a control operation has at most 64 KiB");
            return self.fail_at_once(error, out);
        }
        let encode = |bytes: &mut Vec<u8>| {
            rpc::ServerControlRequest {
                target: ControlTarget::Object,
                control_op,
                table_id,
                index_id: 0,
                key,
                input,
            }
            .encode(bytes);
        };
        let kind = Kind::OnKey(ResponseKind::Control);
        self.start_on_key(now, kind, table_id, key, &[], encode, out)
    }

    /// Fills the tables of the server that owns key "0" of this table, for tests; see [`rpc::FillWithTestDataRequest`].
    pub fn fill_with_test_data(
        &mut self,
        now: Time,
        table: TableId,
        object_count: u32,
        object_bytes: u32,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::FillWithTestDataRequest {
            object_count,
            object_bytes,
        };
        let encode = |bytes: &mut Vec<u8>| request.encode(bytes);
        let kind = Kind::OnKey(ResponseKind::Done);
        self.start_on_key(now, kind, table, b"0", &[], encode, out)
    }

    /// Asks the server at this locator. A connection that fails is not tried again.
    pub fn ask(
        &mut self,
        now: Time,
        locator: &str,
        question: Question,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let (opcode, service, answer) = match question {
            Question::ServerId => (Opcode::GetServerId, Service::Admin, ResponseKind::ServerId),
            Question::Metrics => (Opcode::GetMetrics, Service::Admin, ResponseKind::Message),
            Question::Config => (
                Opcode::GetServerConfig,
                Service::Admin,
                ResponseKind::Message,
            ),
            Question::Statistics => (
                Opcode::GetServerStatistics,
                Service::Master,
                ResponseKind::Message,
            ),
            Question::LogMetrics => (
                Opcode::GetLogMetrics,
                Service::Master,
                ResponseKind::Message,
            ),
            Question::Kill => (Opcode::Kill, Service::Admin, ResponseKind::Done),
            Question::Ping => {
                let request = rpc::PingRequest {
                    caller: ServerId::INVALID,
                };
                return self.call_at(
                    now,
                    locator,
                    ResponseKind::Done,
                    |out| request.encode(out),
                    out,
                );
            }
        };
        let encode = |bytes: &mut Vec<u8>| rpc::encode_bare_request(opcode, service, bytes);
        self.call_at(now, locator, answer, encode, out)
    }

    /// Sends bytes to the server at this locator and gets `answer_bytes` back.
    pub fn echo(
        &mut self,
        now: Time,
        locator: &str,
        bytes: &[u8],
        answer_bytes: u32,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let fixed = rpc::EchoRequest::FIXED_BYTES.max(rpc::EchoResponse::FIXED_BYTES);
        if fixed + bytes.len().max(answer_bytes as usize) > MAX_RPC_BYTES {
            let error = Error::Invalid("an echo has at most 8388796 bytes, there and back");
            return self.fail_at_once(error, out);
        }
        let request = rpc::EchoRequest {
            echo_bytes: answer_bytes,
            bytes,
        };
        self.call_at(
            now,
            locator,
            ResponseKind::Echo,
            |out| request.encode(out),
            out,
        )
    }

    /// Has the server at this locator ping another one.
    pub fn proxy_ping(
        &mut self,
        now: Time,
        locator: &str,
        server_id: ServerId,
        timeout: Duration,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let request = rpc::ProxyPingRequest {
            server_id,
            timeout_ns: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        self.call_at(
            now,
            locator,
            ResponseKind::ProxyPing,
            |out| request.encode(out),
            out,
        )
    }

    fn ask_coordinator(
        &mut self,
        now: Time,
        answer: ResponseKind,
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut impl ClientEffects,
    ) -> OperationId {
        self.start_checked(now, Kind::Coordinator(answer), Ok(()), encode, out)
    }

    fn call_at(
        &mut self,
        now: Time,
        locator: &str,
        answer: ResponseKind,
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let kind = Kind::At(locator.to_owned(), answer);
        self.start_checked(now, kind, Ok(()), encode, out)
    }
}
