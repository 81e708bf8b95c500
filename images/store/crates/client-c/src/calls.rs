//! Tables, and objects one at a time.

use std::ffi::{c_char, c_void};

use client::{Incremented, RejectRules, TableId, ops};

use crate::handle::Client;
use crate::status::Status;
use crate::types::{Buffer, Rules, bytes, put, put_required, put_value, put_version, rules, text};

/// Makes a table, or finds the one of that name. It is spread over `span` servers; 1 will do. *table is its id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_create_table(
    client: *mut Client,
    name: *const c_char,
    span: u32,
    table: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let name = text(name, "name of a table")?.to_bytes();
            let TableId(id) = state.cluster.run(ops::CreateTable { name, span })?;
            put_required(table, id, "table")
        })
    }
}

/// Finds the table of that name; RCBOX_TABLE_DOESNT_EXIST if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_find_table(
    client: *mut Client,
    name: *const c_char,
    table: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let name = text(name, "name of a table")?.to_bytes();
            let TableId(id) = state.cluster.run(ops::GetTableId { name })?;
            put_required(table, id, "table")
        })
    }
}

/// Drops a table with all its objects. Dropping one that is not there succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_drop_table(client: *mut Client, name: *const c_char) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let name = text(name, "name of a table")?.to_bytes();
            Ok(state.cluster.run(ops::DropTable { name })?)
        })
    }
}

/// Reads an object into the caller's buffer, unless rules (NULL: none) refuse it.
///
/// *value_bytes is how long the value is, and must not be NULL. If that is more than buffer_bytes, the answer is RCBOX_ERR_BUFFER and the
/// buffer is as it was: come again with a larger one. buffer may be NULL if buffer_bytes is 0, to ask for length and version alone.
/// *version is the object's, also when it is refused for it or the buffer is too short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_read(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
    buffer: *mut c_void,
    buffer_bytes: usize,
    value_bytes: *mut usize,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            put_required(value_bytes, 0, "value_bytes")?;
            let key = bytes(key, key_bytes, "key")?;
            let rules = self::rules(rules);
            let value = &mut state.value;
            let result = state.cluster.read_into(TableId(table), key, &rules, value);
            put_version(version, result, |version| *version)?;
            put_value(&state.value, buffer, buffer_bytes, value_bytes)
        })
    }
}

/// Reads an object of any length. *value is the caller's then, to be given to rcbox_buffer_free(); it must not be NULL, and what it held
/// before is not freed. If it fails, it is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_read_alloc(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
    value: *mut Buffer,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            put_required(value, Buffer::EMPTY, "value")?;
            let key = bytes(key, key_bytes, "key")?;
            let (table, rules) = (TableId(table), self::rules(rules));
            let result = state.cluster.run(ops::Read { table, key, rules });
            let object = put_version(version, result, |object| object.version)?;
            put(value, Buffer::from(Vec::from(object.value)));
            Ok(())
        })
    }
}

/// Writes an object, unless rules (NULL: none) refuse it. *version is its new one; if it is refused for the one that is there, that one.
/// Takes effect once, however often it had to be sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_write(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    rules: *const Rules,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = bytes(key, key_bytes, "key")?;
            let value = bytes(value, value_bytes, "value")?;
            let (table, rules) = (TableId(table), self::rules(rules));
            let result = state.cluster.write_if(table, key, value, &rules);
            put_version(version, result, |version| *version)?;
            Ok(())
        })
    }
}

/// Removes an object, unless rules (NULL: none) refuse it. *version is that of what was removed, 0 if there was nothing; if it is refused
/// for the one that is there, that one. Takes effect once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_remove(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = bytes(key, key_bytes, "key")?;
            let rules = self::rules(rules);
            let result = state.cluster.remove_if(TableId(table), key, &rules);
            put_version(version, result, |version| *version)?;
            Ok(())
        })
    }
}

/// Adds to a value of 8 bytes that is a little-endian integer; one that is not there counts as 0. *value is the sum, which wraps around.
/// Takes effect once. RCBOX_INVALID_OBJECT if the value has not 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_increment(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    by: i64,
    rules: *const Rules,
    value: *mut i64,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        increment(
            client,
            (key, key_bytes),
            rules,
            (value, version),
            |key, rules| {
                let table = TableId(table);
                ops::IncrementI64 {
                    table,
                    key,
                    by,
                    rules,
                }
            },
        )
    }
}

/// As rcbox_increment(), of a little-endian floating point number (IEEE 754 binary64).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_increment_double(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    by: f64,
    rules: *const Rules,
    value: *mut f64,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        increment(
            client,
            (key, key_bytes),
            rules,
            (value, version),
            |key, rules| {
                let table = TableId(table);
                ops::IncrementF64 {
                    table,
                    key,
                    by,
                    rules,
                }
            },
        )
    }
}

/// # Safety
/// As for [`rcbox_increment`].
unsafe fn increment<'a, T: Copy, O: ops::Operation<Output = Incremented<T>>>(
    client: *mut Client,
    (key, key_bytes): (*const c_void, usize),
    rules: *const Rules,
    (value, version): (*mut T, *mut u64),
    operation: impl FnOnce(&'a [u8], RejectRules) -> O,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        Client::call(client, |state| {
            let key = bytes(key, key_bytes, "key")?;
            let result = state.cluster.run(operation(key, self::rules(rules)));
            let now = put_version(version, result, |now| now.version)?;
            put(value, now.value);
            Ok(())
        })
    }
}
