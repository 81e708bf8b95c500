//! What the client library gives, as plain Python objects. The Python part makes classes of them.

use client::{
    ControlOutput, Each, Error, Keyed, LogMetrics, PerfStats, Server, ServerConfig, Tablet,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::call::failure;

pub fn bytes<'py>(py: Python<'py>, value: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

/// (version, keys, value)
pub fn keyed<'py>(py: Python<'py>, object: &Keyed) -> PyResult<Bound<'py, PyAny>> {
    let keys = PyTuple::new(py, object.keys.iter().map(|key| bytes(py, key)))?;
    (object.version, keys, bytes(py, &object.value)).into_bound_py_any(py)
}

/// For each object what came of it, or the exception that says why nothing did.
pub fn each<'py, T>(
    py: Python<'py>,
    results: Each<T>,
    convert: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let one = |result: Result<T, Error>| match result {
        Ok(value) => convert(value),
        Err(error) => failure(&error).into_value(py).into_bound_py_any(py),
    };
    let list = results
        .into_iter()
        .map(one)
        .collect::<PyResult<Vec<Bound<'_, PyAny>>>>()?;
    list.into_py_any(py)
}

/// (start key hash, end key hash, server id, locator, is normal)
pub fn tablet(tablet: Tablet) -> (u64, u64, Option<u64>, String, bool) {
    let server = tablet.server_id.map(|id| id.0);
    (
        tablet.start_key_hash,
        tablet.end_key_hash,
        server,
        tablet.locator,
        tablet.is_normal,
    )
}

/// (id, services, locator, status)
pub fn server(server: Server) -> (u64, u32, String, u32) {
    (server.id.0, server.services, server.locator, server.status)
}

/// (server id, output)
pub fn control_output<'py>(py: Python<'py>, output: &ControlOutput) -> (u64, Bound<'py, PyBytes>) {
    (output.server_id.0, bytes(py, &output.output))
}

pub fn list<'py, T>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
) -> PyResult<Bound<'py, PyList>>
where
    T: IntoPyObject<'py>,
{
    let items: Vec<T> = items.into_iter().collect();
    PyList::new(py, items)
}

/// A dictionary of some fields of a struct.
macro_rules! record {
    ($py:expr, $from:expr, [$($field:ident),* $(,)?]) => {{
        let record = PyDict::new($py);
        $(record.set_item(stringify!($field), $from.$field.clone())?;)*
        record
    }};
}

pub fn perf_stats<'py>(py: Python<'py>, stats: &PerfStats) -> PyResult<Bound<'py, PyDict>> {
    Ok(record!(
        py,
        stats,
        [
            collection_time,
            cycles_per_second,
            read_count,
            read_object_bytes,
            read_key_bytes,
            write_count,
            write_object_bytes,
            write_key_bytes,
            dispatch_active_cycles,
            worker_active_cycles,
            log_bytes_appended,
            cleaner_input_memory_bytes,
            cleaner_survivor_bytes,
            network_input_bytes,
            network_output_bytes,
            log_size_bytes,
            log_used_bytes,
            log_free_bytes,
            log_live_bytes,
            log_max_live_bytes,
            log_appendable_bytes,
        ]
    ))
}

pub fn log_metrics<'py>(py: Python<'py>, metrics: &LogMetrics) -> PyResult<Bound<'py, PyDict>> {
    Ok(record!(
        py,
        metrics,
        [
            ticks_per_second,
            total_sync_calls,
            total_sync_ticks,
            total_append_calls,
            total_append_ticks,
            total_no_space_ticks,
            total_bytes_appended,
            total_metadata_bytes_appended,
        ]
    ))
}

pub fn server_config<'py>(py: Python<'py>, config: &ServerConfig) -> PyResult<Bound<'py, PyDict>> {
    let all = record!(
        py,
        config,
        [
            coordinator_locator,
            local_locator,
            cluster_name,
            services,
            detect_failures,
            pin_memory,
            segment_size,
            seglet_size,
            max_object_data_size,
            max_object_key_size,
            max_cores,
        ]
    );
    let Some(master) = &config.master else {
        all.set_item("master", py.None())?;
        return Ok(all);
    };
    let master = record!(
        py,
        master,
        [
            log_bytes,
            hash_table_bytes,
            disable_log_cleaner,
            disable_in_memory_cleaning,
            backup_disk_expansion_factor,
            cleaner_write_cost_threshold,
            cleaner_balancer,
            cleaner_thread_count,
            num_replicas,
            use_hugepages,
            use_mincopysets,
            use_local_backup,
            use_plusonebackup,
        ]
    );
    all.set_item("master", master)?;
    Ok(all)
}
