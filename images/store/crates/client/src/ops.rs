//! Every operation, described once: how it starts, and what comes of it.
//!
//! [`Cluster`](crate::Cluster) runs one and waits, [`Cluster::submit`](crate::Cluster::submit) starts one of several,
//! [`AsyncCluster`](crate::AsyncCluster) makes a future of it. Keys and values are anything that has bytes: slices for a call that
//! waits, vectors for one that outlives its caller.

use bytes::Bytes;
use std::time::Duration;

use base::ids::{ServerId, TableId};
use base::time::Time;
use client_core::{Client, Multi, OperationId, Owned, Question};
use prost::Message;
use wire::keys::KeysAndValue;
use wire::proto;
use wire::rpc::{
    EnumeratedObject, Increment, Lease, PerfStats, RejectRules, ServerControlResponse, control_op,
};
use wire::status::Status;

use crate::Each;
use crate::driver::Actions;
use crate::error::Error;
use crate::types::{ControlOutput, Incremented, Keyed, Object, Server, Tablet};

/// Something that a client can be asked to do.
pub trait Operation {
    type Output;
    #[doc(hidden)]
    fn start(self, core: &mut Client, now: Time, out: &mut Actions<'_>) -> OperationId;
    #[doc(hidden)]
    fn finish(answer: Owned) -> Result<Self::Output, Error>;
}

const MISMATCH: Error = Error::Invalid("the client mixed up two answers; please report this");

macro_rules! operations {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(<$($bytes:ident),*>)? { $($field:ident: $type:ty),* } -> $output:ty,
        |$op:ident, $core:ident, $now:ident, $out:ident| $start:expr,
        $answer:pat => $result:expr;
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        pub struct $name $(<$($bytes),*>)? {
            $(pub $field: $type,)*
        }

        impl $(<$($bytes: AsRef<[u8]>),*>)? Operation for $name $(<$($bytes),*>)? {
            type Output = $output;
            fn start(self, $core: &mut Client, $now: Time, $out: &mut Actions<'_>) -> OperationId {
                let $op = self;
                $start
            }
            fn finish(answer: Owned) -> Result<$output, Error> {
                match answer {
                    $answer => $result,
                    #[allow(unreachable_patterns)]
                    _ => Err(MISMATCH),
                }
            }
        }
    )*};
}

operations! {
    /// Makes a table, or finds the one of that name; it is spread over `span` servers.
    CreateTable<N> { name: N, span: u32 } -> TableId,
    |op, core, now, out| core.create_table(now, op.name.as_ref(), op.span, out),
    Owned::Table(table) => Ok(table);

    /// Finds the table of that name.
    GetTableId<N> { name: N } -> TableId,
    |op, core, now, out| core.table_id(now, op.name.as_ref(), out),
    Owned::Table(table) => Ok(table);

    /// Drops a table with all its objects; dropping one that is not there succeeds.
    DropTable<N> { name: N } -> (),
    |op, core, now, out| core.drop_table(now, op.name.as_ref(), out),
    Owned::Done => Ok(());

    /// Makes two tablets of the one that holds a hash, which becomes the first of the second.
    SplitTablet<N> { name: N, key_hash: u64 } -> (),
    |op, core, now, out| core.split_tablet(now, op.name.as_ref(), op.key_hash, out),
    Owned::Done => Ok(());

    /// Where the tablets of a table are; empty if there is no such table.
    TableConfig { table: TableId } -> Vec<Tablet>,
    |op, core, now, out| core.table_config(now, op.table, out),
    Owned::Message(message) => tablets(&message);

    /// Reads an object.
    Read<K> { table: TableId, key: K, rules: RejectRules } -> Object,
    |op, core, now, out| core.read(now, op.table, op.key.as_ref(), &op.rules, out),
    Owned::Object(version, value) => Ok(Object { version, value });

    /// Reads an object with all its keys.
    ReadKeysAndValue<K> { table: TableId, key: K, rules: RejectRules } -> Keyed,
    |op, core, now, out| core.read_keys_and_value(now, op.table, op.key.as_ref(), &op.rules, out),
    Owned::Object(version, content) => keyed(version, &content);

    /// Writes an object; takes effect once. Gives its new version.
    Write<K, V> { table: TableId, key: K, value: V, rules: RejectRules } -> u64,
    |op, core, now, out| {
        core.write(now, op.table, op.key.as_ref(), op.value.as_ref(), &op.rules, out)
    },
    Owned::Version(version) => Ok(version);

    /// Writes an object with several keys, the first of them the primary one; takes effect once.
    WriteKeys<K, V> { table: TableId, keys: Vec<K>, value: V, rules: RejectRules } -> u64,
    |op, core, now, out| {
        let keys: Vec<&[u8]> = op.keys.iter().map(AsRef::as_ref).collect();
        core.write_keys(now, op.table, &keys, op.value.as_ref(), &op.rules, out)
    },
    Owned::Version(version) => Ok(version);

    /// Removes an object; takes effect once. Gives the version that was removed, 0 if there was none.
    Remove<K> { table: TableId, key: K, rules: RejectRules } -> u64,
    |op, core, now, out| core.remove(now, op.table, op.key.as_ref(), &op.rules, out),
    Owned::Version(version) => Ok(version);

    /// Adds to a value that is an integer; takes effect once. An object that is not there counts as 0.
    IncrementI64<K> { table: TableId, key: K, by: i64, rules: RejectRules } -> Incremented<i64>,
    |op, core, now, out| {
        let by = Increment { int64: op.by, double: 0.0 };
        core.increment(now, op.table, op.key.as_ref(), by, &op.rules, out)
    },
    Owned::Incremented(version, value) => {
        Ok(Incremented { version, value: i64::from_le_bytes(value) })
    };

    /// Adds to a value that is a floating point number; takes effect once. An object that is not there counts as 0.
    IncrementF64<K> { table: TableId, key: K, by: f64, rules: RejectRules } -> Incremented<f64>,
    |op, core, now, out| {
        let by = Increment { int64: 0, double: op.by };
        core.increment(now, op.table, op.key.as_ref(), by, &op.rules, out)
    },
    Owned::Incremented(version, value) => {
        Ok(Incremented { version, value: f64::from_le_bytes(value) })
    };

    /// Some objects of a table; see [`Page`].
    Enumerate { table: TableId, keys_only: bool, position: Position } -> Page,
    |op, core, now, out| {
        let Position { hash, iterator } = op.position;
        core.enumerate(now, op.table, op.keys_only, hash, &iterator, out)
    },
    Owned::Enumerated { tablet_first_hash, objects, iterator } => {
        page(tablet_first_hash, &objects, iterator)
    };

    /// Reads many objects; see [`Multi::reads`].
    MultiRead { multi: Multi } -> Each<Object>,
    |op, core, now, out| core.multi(now, op.multi, out),
    Owned::Objects(objects) => {
        let read = |(version, content): (u64, &[u8])| {
            let object = KeysAndValue::parse(content).map_err(|_| MALFORMED)?;
            Ok(Object { version, value: Bytes::copy_from_slice(object.value()) })
        };
        Ok(objects.iter().map(|object| object.map_err(Error::from).and_then(read)).collect())
    };

    /// Reads many objects with all their keys; see [`Multi::reads`].
    MultiReadKeys { multi: Multi } -> Each<Keyed>,
    |op, core, now, out| core.multi(now, op.multi, out),
    Owned::Objects(objects) => {
        let read = |(version, content)| keyed(version, content);
        Ok(objects.iter().map(|object| object.map_err(Error::from).and_then(read)).collect())
    };

    /// Writes or removes many objects; see [`Multi::writes`] and [`Multi::removes`].
    MultiChange { multi: Multi } -> Each<u64>,
    |op, core, now, out| core.multi(now, op.multi, out),
    Owned::Versions(versions) => {
        Ok(versions.into_iter().map(|version| version.map_err(Error::from)).collect())
    };

    /// Increments many objects; see [`Multi::increments`]. Gives the 8 bytes of each as they are now.
    MultiIncrement { multi: Multi } -> Each<Incremented<[u8; 8]>>,
    |op, core, now, out| core.multi(now, op.multi, out),
    Owned::IncrementedAll(all) => {
        let incremented = |(version, value)| Incremented { version, value };
        Ok(all.into_iter().map(|one| one.map(incremented).map_err(Error::from)).collect())
    };

    /// The store's servers.
    ServerList {} -> Vec<Server>,
    |_op, core, now, out| core.server_list(now, !0, out),
    Owned::Message(message) => servers(&message);

    /// When a client lease ends; its id is 0 if it has.
    LeaseInfo { lease_id: u64 } -> Lease,
    |op, core, now, out| core.lease_info(now, op.lease_id, out),
    Owned::Lease(lease) => Ok(lease);

    /// Gets what the first write would have to wait for.
    AcquireLease {} -> Lease,
    |_op, core, now, out| core.acquire_lease(now, out),
    Owned::Lease(lease) => Ok(lease);

    /// Tells the coordinator that a server could not be reached.
    HintServerCrashed { server_id: ServerId } -> (),
    |op, core, now, out| core.hint_server_crashed(now, op.server_id, out),
    Owned::Done => Ok(());

    /// An option of the coordinator.
    GetRuntimeOption<N> { option: N } -> Vec<u8>,
    |op, core, now, out| core.runtime_option(now, op.option.as_ref(), out),
    Owned::Message(text) => Ok(text.strip_suffix(&[0]).unwrap_or(&text).to_vec());

    SetRuntimeOption<N, V> { option: N, value: V } -> (),
    |op, core, now, out| {
        core.set_runtime_option(now, op.option.as_ref(), op.value.as_ref(), out)
    },
    Owned::Done => Ok(());

    /// A control operation for the server that owns a key.
    ServerControl<K, V> { table: TableId, key: K, operation: u32, input: V } -> ControlOutput,
    |op, core, now, out| {
        core.server_control(now, op.table, op.key.as_ref(), op.operation, op.input.as_ref(), out)
    },
    Owned::Controlled(server_id, output) => Ok(ControlOutput { server_id, output });

    /// A control operation for every server; those that did not answer in time, or refused it, are missing.
    ControlAll<V> { operation: u32, input: V } -> Vec<ControlOutput>,
    |op, core, now, out| core.control_all(now, op.operation, op.input.as_ref(), out),
    Owned::Control(_, count, responses) => control_outputs(count, &responses);

    /// The performance counters of the server that owns a key.
    GetPerfStats<K> { table: TableId, key: K } -> PerfStats,
    |op, core, now, out| {
        let operation = control_op::GET_PERF_STATS;
        core.server_control(now, op.table, op.key.as_ref(), operation, &[], out)
    },
    Owned::Controlled(_, output) => PerfStats::decode(&output).map_err(|_| MALFORMED);

    /// The performance counters of every server.
    GetAllPerfStats {} -> Vec<(ServerId, PerfStats)>,
    |_op, core, now, out| core.control_all(now, control_op::GET_PERF_STATS, &[], out),
    Owned::Control(_, count, responses) => control_outputs(count, &responses)?
        .into_iter()
        .map(|one| Ok((one.server_id, PerfStats::decode(&one.output).map_err(|_| MALFORMED)?)))
        .collect();

    /// Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug.
    LogMessageAll { level: u32, text: String } -> (),
    |op, core, now, out| core.log_message_all(now, op.level, &op.text, out),
    Owned::Control(..) => Ok(());

    /// Makes objects for tests; the servers must allow it. See [`wire::rpc::FillWithTestDataRequest`].
    FillWithTestData { table: TableId, objects: u32, object_bytes: u32 } -> (),
    |op, core, now, out| core.fill_with_test_data(now, op.table, op.objects, op.object_bytes, out),
    Owned::Done => Ok(());

    /// Is anybody at this locator?
    Ping { locator: String } -> (),
    |op, core, now, out| core.ask(now, &op.locator, Question::Ping, out),
    Owned::Done => Ok(());

    /// Who is at this locator?
    GetServerId { locator: String } -> ServerId,
    |op, core, now, out| core.ask(now, &op.locator, Question::ServerId, out),
    Owned::Server(id) => Ok(id);

    /// How the server at this locator was started.
    GetServerConfig { locator: String } -> proto::ServerConfig,
    |op, core, now, out| core.ask(now, &op.locator, Question::Config, out),
    Owned::Message(message) => decoded(&message);

    /// What the tablets of the server at this locator were used for.
    GetServerStatistics { locator: String } -> proto::ServerStatistics,
    |op, core, now, out| core.ask(now, &op.locator, Question::Statistics, out),
    Owned::Message(message) => decoded(&message);

    /// Names and numbers of the server at this locator.
    GetMetrics { locator: String } -> Vec<(String, u64)>,
    |op, core, now, out| core.ask(now, &op.locator, Question::Metrics, out),
    Owned::Message(message) => {
        let list: proto::MetricList = decoded(&message)?;
        Ok(list.metric.into_iter().map(|metric| (metric.name, metric.value)).collect())
    };

    /// What happened in the log of the server at this locator.
    GetLogMetrics { locator: String } -> proto::LogMetrics,
    |op, core, now, out| core.ask(now, &op.locator, Question::LogMetrics, out),
    Owned::Message(message) => decoded(&message);

    /// Ends the server at this locator, which must allow it. It says nothing any more: [`Error::Unreachable`] means that it worked.
    Kill { locator: String } -> (),
    |op, core, now, out| core.ask(now, &op.locator, Question::Kill, out),
    Owned::Done => Ok(());

    /// Sends bytes to the server at this locator and gets `answer_bytes` of its own back.
    Echo<V> { locator: String, bytes: V, answer_bytes: u32 } -> Vec<u8>,
    |op, core, now, out| core.echo(now, &op.locator, op.bytes.as_ref(), op.answer_bytes, out),
    Owned::Message(bytes) => Ok(bytes);

    /// Has the server at this locator ping another one; `None` if that did not answer in time.
    ProxyPing { locator: String, server_id: ServerId, timeout: Duration } -> Option<Duration>,
    |op, core, now, out| core.proxy_ping(now, &op.locator, op.server_id, op.timeout, out),
    Owned::Took(took) => Ok(took);
}

const MALFORMED: Error = Error::Refused {
    status: Status::ResponseFormatError,
    version: 0,
};

/// Where an enumeration goes on. The default is the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    hash: u64,
    iterator: Vec<u8>,
}

/// Some objects of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub objects: Vec<Keyed>,
    /// Where to go on; `None` behind the last object.
    pub next: Option<Position>,
}

fn page(hash: u64, objects: &[u8], iterator: Vec<u8>) -> Result<Page, Error> {
    let objects = EnumeratedObject::decode_all(objects)
        .map(|object| {
            let object = object.map_err(|_| MALFORMED)?;
            Ok(of_parts(object.version, object.object))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let is_end = objects.is_empty() && hash == 0;
    let next = (!is_end).then_some(Position { hash, iterator });
    Ok(Page { objects, next })
}

fn keyed(version: u64, content: &[u8]) -> Result<Keyed, Error> {
    let object = KeysAndValue::parse(content).map_err(|_| MALFORMED)?;
    Ok(of_parts(version, object))
}

fn of_parts(version: u64, object: KeysAndValue<'_>) -> Keyed {
    Keyed {
        version,
        keys: object.keys().map(<[u8]>::to_vec).collect(),
        value: object.value().to_vec(),
    }
}

fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Error> {
    M::decode(message).map_err(|_| MALFORMED)
}

fn tablets(message: &[u8]) -> Result<Vec<Tablet>, Error> {
    let config: proto::TableConfig = decoded(message)?;
    let tablet = |tablet: proto::Tablet| Tablet {
        start_key_hash: tablet.start_key_hash,
        end_key_hash: tablet.end_key_hash,
        is_normal: tablet.state == i32::from(proto::TabletState::Normal),
        server_id: tablet.server_id.map(ServerId),
        locator: tablet.service_locator.unwrap_or_default(),
    };
    Ok(config.tablet.into_iter().map(tablet).collect())
}

fn servers(message: &[u8]) -> Result<Vec<Server>, Error> {
    let list: proto::ServerList = decoded(message)?;
    let server = |entry: proto::ServerListEntry| Server {
        id: ServerId(entry.server_id),
        services: entry.services,
        locator: entry.service_locator,
        status: entry.status,
    };
    Ok(list.server.into_iter().map(server).collect())
}

/// Takes SERVER_CONTROL responses apart that lie back to back.
fn control_outputs(count: u32, mut responses: &[u8]) -> Result<Vec<ControlOutput>, Error> {
    let mut outputs = Vec::new();
    for _ in 0..count {
        let response = ServerControlResponse::decode(responses).map_err(|_| MALFORMED)?;
        let length = ServerControlResponse::FIXED_BYTES + response.output.len();
        responses = responses.get(length..).ok_or(MALFORMED)?;
        if response.status == Status::Ok {
            outputs.push(ControlOutput {
                server_id: response.server_id,
                output: response.output.to_vec(),
            });
        }
    }
    Ok(outputs)
}
