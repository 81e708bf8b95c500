//! Operations: how each starts and ends.

use base::ids::TableId;
use base::time::Time;
use wire::hash::key_hash;
use wire::keys::KeysAndValue;
use wire::rpc::{self, Increment, Lease, RejectRules};

use super::Client;
use crate::checks::{MAX_TEXT_BYTES, check_name, check_object};
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::multi::Multi;
use crate::objects::WriteObject;
use crate::operation::{Kind, Operation, ResponseKind};
use crate::operation_id::OperationId;

/// Request buffers that are kept, and the largest of them.
const MAX_SPARE_BUFFERS: usize = 64;
const MAX_SPARE_BYTES: usize = 64 << 10;

impl Client {
    /// Makes a table, or finds the one of that name. `span`: over how many members it is spread; 0 stands for 1.
    pub fn create_table(
        &mut self,
        now: Time,
        name: &[u8],
        span: u32,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::CreateTableRequest {
                name,
                server_span: span,
            }
            .encode(bytes);
        };
        self.start_checked(
            now,
            Kind::Coordinator(ResponseKind::TableId),
            check_name(name),
            encode,
            out,
        )
    }

    pub fn table_id(
        &mut self,
        now: Time,
        name: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| rpc::GetTableIdRequest { name }.encode(bytes);
        self.start_checked(
            now,
            Kind::Coordinator(ResponseKind::TableId),
            check_name(name),
            encode,
            out,
        )
    }

    /// Drops a table with all its objects; dropping one that is not there succeeds.
    pub fn drop_table(
        &mut self,
        now: Time,
        name: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| rpc::DropTableRequest { name }.encode(bytes);
        self.start_checked(
            now,
            Kind::Coordinator(ResponseKind::Done),
            check_name(name),
            encode,
            out,
        )
    }

    /// A control operation for every server; see [`rpc::control_op`].
    pub fn control_all(
        &mut self,
        now: Time,
        control_op: u32,
        input: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let check = if input.len() > MAX_TEXT_BYTES {
            Err(Error::Invalid(
                "the input of a control operation has at most 64 KiB",
            ))
        } else {
            Ok(())
        };
        let encode =
            |bytes: &mut Vec<u8>| rpc::ServerControlAllRequest { control_op, input }.encode(bytes);
        self.start_checked(
            now,
            Kind::Coordinator(ResponseKind::ControlAll),
            check,
            encode,
            out,
        )
    }

    /// Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug.
    pub fn log_message_all(
        &mut self,
        now: Time,
        level: u32,
        text: &str,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let input = [&level.to_le_bytes()[..], text.as_bytes()].concat();
        self.control_all(now, rpc::control_op::LOG_MESSAGE, &input, out)
    }

    /// Gets a client lease, unless a good one is held: the first write would wait for it.
    pub fn acquire_lease(&mut self, now: Time, out: &mut impl ClientEffects) -> OperationId {
        self.start_checked(now, Kind::Lease, Ok(()), |_| {}, out)
    }

    pub fn read(
        &mut self,
        now: Time,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::ReadRequest {
                table_id: table,
                rules: *rules,
                key,
            }
            .encode(bytes);
        };
        self.start_on_key(
            now,
            Kind::OnKey(ResponseKind::Object),
            table,
            key,
            &[],
            encode,
            out,
        )
    }

    /// Writes an object: takes effect once, however often it has to be sent.
    pub fn write(
        &mut self,
        now: Time,
        table: TableId,
        key: &[u8],
        value: &[u8],
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            // Lengths were checked before.
            if let Ok(object) = KeysAndValue::single(key, value) {
                rpc::WriteRequest {
                    table_id: table,
                    lease: Lease::default(),
                    rpc_id: 0,
                    ack_id: 0,
                    rules: *rules,
                    is_async: false,
                    object,
                }
                .encode(bytes);
            }
        };
        self.start_on_key(
            now,
            Kind::Once(ResponseKind::Version),
            table,
            key,
            value,
            encode,
            out,
        )
    }

    /// Removes an object: takes effect once, however often it has to be sent.
    pub fn remove(
        &mut self,
        now: Time,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::RemoveRequest {
                table_id: table,
                lease: Lease::default(),
                rpc_id: 0,
                ack_id: 0,
                rules: *rules,
                key,
            }
            .encode(bytes);
        };
        self.start_on_key(
            now,
            Kind::Once(ResponseKind::Version),
            table,
            key,
            &[],
            encode,
            out,
        )
    }

    /// Writes an object with several keys, the first of them the primary one; as [`Client::write`].
    pub fn write_keys(
        &mut self,
        now: Time,
        table: TableId,
        keys: &[&[u8]],
        value: &[u8],
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let kind = Kind::Once(ResponseKind::Version);
        let Ok(object) = KeysAndValue::with_keys(keys, value) else {
            let error = Error::Invalid(
                "an object has 1 to 255 keys of together at most 65535 bytes, the first one not empty",
            );
            return self.start_checked(now, kind, Err(error), |_| {}, out);
        };
        let encode = |bytes: &mut Vec<u8>| {
            rpc::WriteRequest {
                table_id: table,
                lease: Lease::default(),
                rpc_id: 0,
                ack_id: 0,
                rules: *rules,
                is_async: false,
                object,
            }
            .encode(bytes);
        };
        self.start_on_key(now, kind, table, object.primary_key(), value, encode, out)
    }

    /// Reads an object with all its keys.
    pub fn read_keys_and_value(
        &mut self,
        now: Time,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::ReadRequest {
                table_id: table,
                rules: *rules,
                key,
            }
            .encode_for_keys_and_value(bytes);
        };
        let kind = Kind::OnKey(ResponseKind::Object);
        self.start_on_key(now, kind, table, key, &[], encode, out)
    }

    /// Adds to a value of 8 bytes: takes effect once, however often it has to be sent.
    pub fn increment(
        &mut self,
        now: Time,
        table: TableId,
        key: &[u8],
        by: Increment,
        rules: &RejectRules,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::IncrementRequest {
                table_id: table,
                lease: Lease::default(),
                rpc_id: 0,
                ack_id: 0,
                by,
                rules: *rules,
                key,
            }
            .encode(bytes);
        };
        let kind = Kind::Once(ResponseKind::Increment);
        self.start_on_key(now, kind, table, key, &[], encode, out)
    }

    /// Gets some objects of a table, and where to go on: begins with hash 0 and no iterator, ends when there are no objects and the
    /// hash is 0.
    pub fn enumerate(
        &mut self,
        now: Time,
        table: TableId,
        keys_only: bool,
        tablet_first_hash: u64,
        iterator: &[u8],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let encode = |bytes: &mut Vec<u8>| {
            rpc::EnumerateRequest {
                table_id: table,
                keys_only,
                tablet_first_hash,
                iterator,
            }
            .encode(bytes);
        };
        let place = (table, tablet_first_hash);
        self.start(
            now,
            Kind::OnKey(ResponseKind::Enumerate),
            place,
            encode,
            out,
        )
    }

    /// Many operations of one kind. Not atomic, and what had its answer lost may take effect again.
    pub fn multi(&mut self, now: Time, multi: Multi, out: &mut impl ClientEffects) -> OperationId {
        self.start(now, Kind::Multi(multi), (TableId(0), 0), |_| {}, out)
    }

    /// Writes many objects; see [`Client::multi`].
    pub fn multi_write(
        &mut self,
        now: Time,
        objects: &[WriteObject<'_>],
        out: &mut impl ClientEffects,
    ) -> OperationId {
        match Multi::writes(objects) {
            Ok(multi) => self.multi(now, multi, out),
            Err(error) => self.fail_at_once(error, out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one operation")]
    pub(crate) fn start_on_key(
        &mut self,
        now: Time,
        kind: Kind,
        table: TableId,
        key: &[u8],
        value: &[u8],
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut impl ClientEffects,
    ) -> OperationId {
        if let Err(error) = check_object(key, value) {
            return self.start_checked(now, kind, Err(error), |_| {}, out);
        }
        let hash = key_hash(table, key);
        self.start(now, kind, (table, hash), encode, out)
    }

    pub(crate) fn start_checked(
        &mut self,
        now: Time,
        kind: Kind,
        check: Result<(), Error>,
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut impl ClientEffects,
    ) -> OperationId {
        if let Err(error) = check {
            return self.fail_at_once(error, out);
        }
        self.start(now, kind, (TableId(0), 0), encode, out)
    }

    pub(crate) fn start(
        &mut self,
        now: Time,
        kind: Kind,
        (table, key_hash): (TableId, u64),
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut impl ClientEffects,
    ) -> OperationId {
        if self.operations.len() >= self.config.max_operations {
            return self.fail_at_once(Error::TooManyOperations, out);
        }
        let mut request = self.spare_buffers.pop().unwrap_or_default();
        encode(&mut request);
        let id = self.insert(kind, request, table, key_hash);
        self.ready.push_back(id);
        self.run_ready(now, out);
        id
    }

    fn insert(
        &mut self,
        kind: Kind,
        request: Vec<u8>,
        table: TableId,
        key_hash: u64,
    ) -> OperationId {
        OperationId(self.operations.insert(Operation {
            kind,
            request,
            table,
            key_hash,
            rpc_id: 0,
            lease_id: 0,
            config_generation: 0,
            failures: 0,
        }))
    }

    /// Completes an operation that is not even tried. It gets an id all the same, which no other will have.
    pub(crate) fn fail_at_once(
        &mut self,
        error: Error,
        out: &mut impl ClientEffects,
    ) -> OperationId {
        let id = self.insert(Kind::Lease, Vec::new(), TableId(0), 0);
        self.operations.remove(id.0);
        out.complete(id, Err(error));
        id
    }

    /// Takes an operation out: its RPC id is finished, its buffer is free. `None` if it is over already.
    pub(crate) fn retire(&mut self, id: OperationId) -> Option<Kind> {
        let operation = self.operations.remove(id.0)?;
        if operation.rpc_id != 0 {
            self.rpc_ids.finish(operation.rpc_id);
            self.hand_out_rpc_ids();
        }
        let mut buffer = operation.request;
        if self.spare_buffers.len() < MAX_SPARE_BUFFERS && buffer.capacity() <= MAX_SPARE_BYTES {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
        Some(operation.kind)
    }

    /// Lets as many operations go on as there are free RPC ids.
    fn hand_out_rpc_ids(&mut self) {
        let mut room = self.rpc_ids.room();
        while room > 0
            && let Some(next) = self.waiting_for_rpc_id.pop_front()
        {
            if self.operations.get(next.0).is_some() {
                self.ready.push_back(next);
                room -= 1;
            }
        }
    }
}
