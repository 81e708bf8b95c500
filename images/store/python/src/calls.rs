//! Every call of the client library, described. Table ids, keys and values come as Python has them; nothing is copied until the message
//! is written.

use client::ops;
use client::{
    Increment, IncrementObject, KeyObject, Multi, RejectRules, ServerId, TableId, WriteObject,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes as Bytes;

use crate::call::{RawCall, duration, failure};
use crate::convert::{self, bytes, each, keyed};

/// Conditions: given version, doesn't exist, exists, version at most given, version not given.
type Rules = (u64, bool, bool, bool, bool);

fn rules(
    (given_version, doesnt_exist, exists, version_le_given, version_ne_given): Rules,
) -> RejectRules {
    RejectRules {
        given_version,
        doesnt_exist,
        exists,
        version_le_given,
        version_ne_given,
    }
}

/// Where a scan goes on.
#[pyclass(frozen, module = "rcbox._rcbox")]
pub struct RawPosition(ops::Position);

/// A call whose result needs no more than pyo3 does by itself.
macro_rules! plain {
    ($operation:expr) => {
        plain!($operation, |result| result)
    };
    ($operation:expr, |$result:pat_param| $convert:expr) => {
        RawCall::new($operation, |py, $result| $convert.into_py_any(py))
    };
}

#[pyfunction]
fn create_table(name: String, span: u32) -> RawCall {
    plain!(ops::CreateTable { name, span }, |table| table.0)
}
#[pyfunction]
fn table_id(name: String) -> RawCall {
    plain!(ops::GetTableId { name }, |table| table.0)
}
#[pyfunction]
fn drop_table(name: String) -> RawCall {
    plain!(ops::DropTable { name })
}
#[pyfunction]
fn split_tablet(name: String, key_hash: u64) -> RawCall {
    plain!(ops::SplitTablet { name, key_hash })
}
#[pyfunction]
fn table_config(table: u64) -> RawCall {
    let table = TableId(table);
    RawCall::new(ops::TableConfig { table }, |py, tablets| {
        convert::list(py, tablets.into_iter().map(convert::tablet))?.into_py_any(py)
    })
}

#[pyfunction]
fn read(table: u64, key: Bytes, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    RawCall::new(ops::Read { table, key, rules }, |py, object| {
        (object.version, bytes(py, &object.value)).into_py_any(py)
    })
}
#[pyfunction]
fn read_keys(table: u64, key: Bytes, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    RawCall::new(ops::ReadKeysAndValue { table, key, rules }, |py, object| {
        Ok(keyed(py, &object)?.unbind())
    })
}
#[pyfunction]
fn write(table: u64, key: Bytes, value: Bytes, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    plain!(ops::Write {
        table,
        key,
        value,
        rules
    })
}
#[pyfunction]
fn write_keys(table: u64, keys: Vec<Bytes>, value: Bytes, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    plain!(ops::WriteKeys {
        table,
        keys,
        value,
        rules
    })
}
#[pyfunction]
fn remove(table: u64, key: Bytes, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    plain!(ops::Remove { table, key, rules })
}
#[pyfunction]
fn increment(table: u64, key: Bytes, by: i64, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    let operation = ops::IncrementI64 {
        table,
        key,
        by,
        rules,
    };
    plain!(operation, |now| (now.version, now.value))
}
#[pyfunction]
fn increment_float(table: u64, key: Bytes, by: f64, conditions: Rules) -> RawCall {
    let (table, rules) = (TableId(table), rules(conditions));
    let operation = ops::IncrementF64 {
        table,
        key,
        by,
        rules,
    };
    plain!(operation, |now| (now.version, now.value))
}

fn key_objects(keys: &[(u64, Bytes, Rules)]) -> Vec<KeyObject<'_>> {
    keys.iter()
        .map(|(table, key, conditions)| KeyObject {
            table: TableId(*table),
            key,
            rules: rules(*conditions),
        })
        .collect()
}

fn checked(multi: Result<Multi, impl Into<client::Error>>) -> PyResult<Multi> {
    multi.map_err(|error| failure(&error.into()))
}

#[pyfunction]
fn multi_read(keys: Vec<(u64, Bytes, Rules)>) -> PyResult<RawCall> {
    let multi = checked(Multi::reads(&key_objects(&keys)))?;
    Ok(RawCall::new(ops::MultiReadKeys { multi }, |py, results| {
        each(py, results, |object| keyed(py, &object))
    }))
}
#[pyfunction]
fn multi_remove(keys: Vec<(u64, Bytes, Rules)>) -> PyResult<RawCall> {
    let multi = checked(Multi::removes(&key_objects(&keys)))?;
    Ok(RawCall::new(ops::MultiChange { multi }, |py, results| {
        each(py, results, |version| version.into_bound_py_any(py))
    }))
}
#[pyfunction]
fn multi_write(objects: Vec<(u64, Bytes, Bytes, Rules)>) -> PyResult<RawCall> {
    let writes: Vec<_> = objects
        .iter()
        .map(|(table, key, value, conditions)| WriteObject {
            table: TableId(*table),
            key,
            value,
            rules: rules(*conditions),
        })
        .collect();
    let multi = checked(Multi::writes(&writes))?;
    Ok(RawCall::new(ops::MultiChange { multi }, |py, results| {
        each(py, results, |version| version.into_bound_py_any(py))
    }))
}
/// Adds an integer and a floating point number, one of them 0. Gives versions and the 8 bytes.
#[pyfunction]
fn multi_increment(objects: Vec<(u64, Bytes, i64, f64, Rules)>) -> PyResult<RawCall> {
    let increments: Vec<_> = objects
        .iter()
        .map(|(table, key, int64, double, conditions)| IncrementObject {
            table: TableId(*table),
            key,
            by: Increment {
                int64: *int64,
                double: *double,
            },
            rules: rules(*conditions),
        })
        .collect();
    let multi = checked(Multi::increments(&increments))?;
    Ok(RawCall::new(
        ops::MultiIncrement { multi },
        |py, results| {
            each(py, results, |now| {
                (now.version, bytes(py, &now.value)).into_bound_py_any(py)
            })
        },
    ))
}

/// Some objects, and where to go on; nothing behind the last.
#[pyfunction]
#[pyo3(signature = (table, keys_only, position))]
fn scan_page(table: u64, keys_only: bool, position: Option<&RawPosition>) -> RawCall {
    let operation = ops::Enumerate {
        table: TableId(table),
        keys_only,
        position: position
            .map(|position| position.0.clone())
            .unwrap_or_default(),
    };
    RawCall::new(operation, |py, page| {
        let objects = page
            .objects
            .iter()
            .map(|object| keyed(py, object))
            .collect::<PyResult<Vec<_>>>()?;
        (objects, page.next.map(RawPosition)).into_py_any(py)
    })
}

#[pyfunction]
fn server_list() -> RawCall {
    RawCall::new(ops::ServerList {}, |py, servers| {
        convert::list(py, servers.into_iter().map(convert::server))?.into_py_any(py)
    })
}
#[pyfunction]
fn acquire_lease() -> RawCall {
    plain!(ops::AcquireLease {}, |lease| (
        lease.id,
        lease.expiration_ns,
        lease.timestamp_ns
    ))
}
#[pyfunction]
fn lease_info(lease_id: u64) -> RawCall {
    plain!(ops::LeaseInfo { lease_id }, |lease| (
        lease.id,
        lease.expiration_ns,
        lease.timestamp_ns
    ))
}
#[pyfunction]
fn hint_server_crashed(server_id: u64) -> RawCall {
    let server_id = ServerId(server_id);
    plain!(ops::HintServerCrashed { server_id })
}
#[pyfunction]
fn runtime_option(option: String) -> RawCall {
    RawCall::new(ops::GetRuntimeOption { option }, |py, value| {
        bytes(py, &value).into_py_any(py)
    })
}
#[pyfunction]
fn set_runtime_option(option: String, value: String) -> RawCall {
    plain!(ops::SetRuntimeOption { option, value })
}
#[pyfunction]
fn server_control(table: u64, key: Bytes, operation: u32, input: Bytes) -> RawCall {
    let table = TableId(table);
    let control = ops::ServerControl {
        table,
        key,
        operation,
        input,
    };
    RawCall::new(control, |py, output| {
        convert::control_output(py, &output).into_py_any(py)
    })
}
#[pyfunction]
fn control_all(operation: u32, input: Bytes) -> RawCall {
    RawCall::new(ops::ControlAll { operation, input }, |py, outputs| {
        let outputs = outputs
            .iter()
            .map(|output| convert::control_output(py, output));
        convert::list(py, outputs)?.into_py_any(py)
    })
}
#[pyfunction]
fn log_message_all(level: u32, text: String) -> RawCall {
    plain!(ops::LogMessageAll { level, text })
}
#[pyfunction]
fn perf_stats(table: u64, key: Bytes) -> RawCall {
    let table = TableId(table);
    RawCall::new(ops::GetPerfStats { table, key }, |py, stats| {
        convert::perf_stats(py, &stats)?.into_py_any(py)
    })
}
#[pyfunction]
fn perf_stats_all() -> RawCall {
    RawCall::new(ops::GetAllPerfStats {}, |py, all| {
        let all = all
            .iter()
            .map(|(id, stats)| Ok((id.0, convert::perf_stats(py, stats)?)))
            .collect::<PyResult<Vec<_>>>()?;
        all.into_py_any(py)
    })
}
#[pyfunction]
fn fill_with_test_data(table: u64, objects: u32, object_bytes: u32) -> RawCall {
    let table = TableId(table);
    plain!(ops::FillWithTestData {
        table,
        objects,
        object_bytes
    })
}

#[pyfunction]
fn ping(locator: String) -> RawCall {
    plain!(ops::Ping { locator })
}
#[pyfunction]
fn server_id(locator: String) -> RawCall {
    plain!(ops::GetServerId { locator }, |id| {
        (id != ServerId::INVALID).then_some(id.0)
    })
}
#[pyfunction]
fn server_config(locator: String) -> RawCall {
    RawCall::new(ops::GetServerConfig { locator }, |py, config| {
        convert::server_config(py, &config)?.into_py_any(py)
    })
}
/// (table, start key hash, end key hash, reads and writes) of each tablet.
#[pyfunction]
fn server_statistics(locator: String) -> RawCall {
    RawCall::new(ops::GetServerStatistics { locator }, |py, statistics| {
        let tablets = statistics.tabletentry.into_iter().map(|tablet| {
            (
                tablet.table_id,
                tablet.start_key_hash,
                tablet.end_key_hash,
                tablet.number_read_and_writes.unwrap_or_default(),
            )
        });
        convert::list(py, tablets)?.into_py_any(py)
    })
}
#[pyfunction]
fn metrics(locator: String) -> RawCall {
    plain!(ops::GetMetrics { locator })
}
#[pyfunction]
fn log_metrics(locator: String) -> RawCall {
    RawCall::new(ops::GetLogMetrics { locator }, |py, metrics| {
        convert::log_metrics(py, &metrics)?.into_py_any(py)
    })
}
#[pyfunction]
fn echo(locator: String, bytes: Bytes, answer_bytes: u32) -> RawCall {
    let operation = ops::Echo {
        locator,
        bytes,
        answer_bytes,
    };
    RawCall::new(operation, |py, answer| {
        convert::bytes(py, &answer).into_py_any(py)
    })
}
/// Seconds that it took, or nothing if there was no answer in time.
#[pyfunction]
fn proxy_ping(locator: String, server_id: u64, timeout_s: f64) -> PyResult<RawCall> {
    let operation = ops::ProxyPing {
        locator,
        server_id: ServerId(server_id),
        timeout: duration(timeout_s, "timeout_s")?,
    };
    Ok(plain!(operation, |took| took.map(|took| took.as_secs_f64())))
}
#[pyfunction]
fn kill(locator: String) -> RawCall {
    plain!(ops::Kill { locator })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($function:ident)*) => {
            $(module.add_function(wrap_pyfunction!($function, module)?)?;)*
        };
    }
    add!(create_table table_id drop_table split_tablet table_config);
    add!(read read_keys write write_keys remove increment increment_float);
    add!(multi_read multi_write multi_remove multi_increment scan_page);
    add!(server_list acquire_lease lease_info hint_server_crashed runtime_option set_runtime_option);
    add!(server_control control_all log_message_all perf_stats perf_stats_all fill_with_test_data);
    add!(ping server_id server_config server_statistics metrics log_metrics echo proxy_ping kill);
    Ok(())
}
