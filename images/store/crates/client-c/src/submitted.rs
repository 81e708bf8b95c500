//! Operations that are started and waited for later: one thread keeps many under way.

use std::ffi::c_void;

use client::ops::{self, Operation};
use client::{Object, TableId, Ticket};

use crate::handle::{Client, State};
use crate::status::{Failure, Status};
use crate::types::{
    Buffer, Rules, bytes, duration, put, put_required, put_value, put_version, rules,
};

/// Of an operation that goes on until it is waited for or cancelled.
pub(crate) enum Submitted {
    Read(Ticket<ops::Read<Lent>>),
    Write(Ticket<ops::Write<Lent, Lent>>),
    Remove(Ticket<ops::Remove<Lent>>),
    Increment(Ticket<ops::IncrementI64<Lent>>),
    /// Read, and too long for the caller's buffer.
    Kept(Object),
}

/// The caller's bytes, in a type that a ticket can be kept of. An operation is consumed when it is started; it is dropped before the call
/// returns that it was described in, and the bytes are looked at by nobody afterwards.
pub(crate) struct Lent {
    data: *const u8,
    length: usize,
}

impl Lent {
    fn new(bytes: &[u8]) -> Lent {
        let (data, length) = (bytes.as_ptr(), bytes.len());
        Lent { data, length }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: made of a slice, by a function below that gives it to `submit`; that drops it before the slice goes.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

/// What came of an operation that was waited for.
#[repr(C)]
pub struct Outcome {
    /// Of what was read or written, what was removed (0: there was nothing), what was incremented; or for which it was refused.
    pub version: u64,
    /// Of an increment: the sum.
    pub number: i64,
    /// Of a read: give it to rcbox_buffer_free().
    pub value: Buffer,
}

/// Starts a read. *operation is its number, for rcbox_wait() and the others; it must not be NULL. The key is not used any more once the
/// function has returned.
///
/// It goes out with what else is started, at the latest when this thread polls or waits for any of them: a program that neither polls nor
/// waits makes no progress. It ends after rcbox_options.timeout_us at the latest. At most 4096 can be under way or not asked for;
/// RCBOX_ERR_TOO_MANY. Operations under way at the same time may overtake each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_submit_read(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
    operation: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = Lent::new(bytes(key, key_bytes, "key")?);
            let (table, rules) = (TableId(table), self::rules(rules));
            submit(
                state,
                operation,
                ops::Read { table, key, rules },
                Submitted::Read,
            )
        })
    }
}

/// Starts a write; see rcbox_submit_read(). Takes effect once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_submit_write(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    rules: *const Rules,
    operation: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = Lent::new(bytes(key, key_bytes, "key")?);
            let value = Lent::new(bytes(value, value_bytes, "value")?);
            let (table, rules) = (TableId(table), self::rules(rules));
            let write = ops::Write {
                table,
                key,
                value,
                rules,
            };
            submit(state, operation, write, Submitted::Write)
        })
    }
}

/// Starts a removal; see rcbox_submit_read(). Takes effect once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_submit_remove(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
    operation: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = Lent::new(bytes(key, key_bytes, "key")?);
            let (table, rules) = (TableId(table), self::rules(rules));
            let remove = ops::Remove { table, key, rules };
            submit(state, operation, remove, Submitted::Remove)
        })
    }
}

/// Starts an increment, as of rcbox_increment(); see rcbox_submit_read(). Takes effect once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_submit_increment(
    client: *mut Client,
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    by: i64,
    rules: *const Rules,
    operation: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let key = Lent::new(bytes(key, key_bytes, "key")?);
            let (table, rules) = (TableId(table), self::rules(rules));
            let increment = ops::IncrementI64 {
                table,
                key,
                by,
                rules,
            };
            submit(state, operation, increment, Submitted::Increment)
        })
    }
}

/// # Safety
/// `place` is NULL or may be written.
unsafe fn submit<O: Operation>(
    state: &mut State,
    place: *mut u64,
    operation: O,
    keep: impl FnOnce(Ticket<O>) -> Submitted,
) -> Result<(), Failure> {
    // SAFETY: promised by the caller. Looked at first: what nobody can name cannot be waited for.
    unsafe { put_required(place, 0, "operation")? };
    if state.submitted.len() >= MAX_SUBMITTED {
        return Err(client::Error::TooManyOperations.into());
    }
    let ticket = state.cluster.submit(operation)?;
    let number = ticket.id().0;
    state.submitted.insert(number, keep(ticket));
    // SAFETY: promised by the caller.
    unsafe { put(place, number) };
    Ok(())
}

/// As many as a client has under way and not asked for.
const MAX_SUBMITTED: usize = 4096;

fn no_operation(number: u64) -> Failure {
    let text = format!("no operation {number} is under way; it was waited for or cancelled");
    Failure::new(Status::RCBOX_ERR_NO_OPERATION, text)
}

/// Receives what has come, without waiting. RCBOX_OK: rcbox_wait() would give the operation's outcome at once, which may be a failure;
/// RCBOX_ERR_PENDING: not yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_poll(client: *mut Client, operation: u64) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let cluster = &mut state.cluster;
            let is_ready = match state.submitted.get(&operation) {
                Some(Submitted::Read(ticket)) => cluster.is_ready(ticket)?,
                Some(Submitted::Write(ticket)) => cluster.is_ready(ticket)?,
                Some(Submitted::Remove(ticket)) => cluster.is_ready(ticket)?,
                Some(Submitted::Increment(ticket)) => cluster.is_ready(ticket)?,
                Some(Submitted::Kept(_)) => true,
                None => return Err(no_operation(operation)),
            };
            match is_ready {
                true => Ok(()),
                false => Err(pending()),
            }
        })
    }
}

fn pending() -> Failure {
    Failure::new(Status::RCBOX_ERR_PENDING, "it is not over yet")
}

/// Waits until any operation that was started is over, but for no longer than timeout_us; 0: receives what has come. *operation is one
/// that rcbox_wait() gives the outcome of at once, and is told again and again until somebody does. RCBOX_ERR_PENDING: none was over in
/// time. RCBOX_ERR_NO_OPERATION: none is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_wait_any(
    client: *mut Client,
    timeout_us: u64,
    operation: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            put_required(operation, 0, "operation")?;
            let is_ticket = |one: &Submitted| !matches!(one, Submitted::Kept(_));
            if !state.submitted.values().any(is_ticket) {
                let text = "no operation is under way";
                return Err(Failure::new(Status::RCBOX_ERR_NO_OPERATION, text));
            }
            let limit = duration(timeout_us, "timeout_us")?;
            let ended = state.cluster.wait_any(limit)?.ok_or_else(pending)?;
            put(operation, ended.0);
            Ok(())
        })
    }
}

/// Waits for an operation, and answers as the call would have that waits. It is over then, and its number forgotten. *outcome is written
/// in any case, and must not be NULL; fields that the operation has nothing for are 0. What value it held before is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_wait(
    client: *mut Client,
    operation: u64,
    outcome: *mut Outcome,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let nothing = Outcome {
                version: 0,
                number: 0,
                value: Buffer::EMPTY,
            };
            put_required(outcome, nothing, "outcome")?;
            let version = &raw mut (*outcome).version;
            let number = &raw mut (*outcome).number;
            let cluster = &mut state.cluster;
            let submitted = state.submitted.remove(&operation);
            match submitted.ok_or_else(|| no_operation(operation))? {
                Submitted::Read(ticket) => {
                    let read = put_version(version, cluster.wait(ticket), |read| read.version)?;
                    put(&raw mut (*outcome).value, Vec::from(read.value).into());
                }
                Submitted::Kept(read) => {
                    put(version, read.version);
                    put(&raw mut (*outcome).value, Vec::from(read.value).into());
                }
                Submitted::Write(ticket) => {
                    put_version(version, cluster.wait(ticket), |version| *version)?;
                }
                Submitted::Remove(ticket) => {
                    put_version(version, cluster.wait(ticket), |version| *version)?;
                }
                Submitted::Increment(ticket) => {
                    let now = put_version(version, cluster.wait(ticket), |now| now.version)?;
                    put(number, now.value);
                }
            }
            Ok(())
        })
    }
}

/// Waits for a read, and copies its value into the caller's buffer, as rcbox_read() does. RCBOX_ERR_BUFFER: it is too short, and the
/// operation can be waited for again (rcbox_wait_any() does not name it any more). RCBOX_ERR_ARGUMENT: it is no read, and goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_wait_read(
    client: *mut Client,
    operation: u64,
    buffer: *mut c_void,
    buffer_bytes: usize,
    value_bytes: *mut usize,
    version: *mut u64,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            put_required(value_bytes, 0, "value_bytes")?;
            let submitted = state.submitted.remove(&operation);
            let object = match submitted.ok_or_else(|| no_operation(operation))? {
                Submitted::Read(ticket) => {
                    let read = state.cluster.wait(ticket);
                    put_version(version, read, |read| read.version)?
                }
                Submitted::Kept(object) => {
                    put(version, object.version);
                    object
                }
                other => {
                    state.submitted.insert(operation, other);
                    let text = format!("operation {operation} is no read; give it to rcbox_wait()");
                    return Err(Failure::argument(text));
                }
            };
            let copied = put_value(&object.value, buffer, buffer_bytes, value_bytes);
            if copied.is_err() {
                state.submitted.insert(operation, Submitted::Kept(object));
            }
            copied
        })
    }
}

/// Gives an operation up, and forgets its number. It may take effect all the same, or have done so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_cancel(client: *mut Client, operation: u64) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            let cluster = &mut state.cluster;
            let submitted = state.submitted.remove(&operation);
            match submitted.ok_or_else(|| no_operation(operation))? {
                Submitted::Read(ticket) => cluster.cancel(ticket),
                Submitted::Write(ticket) => cluster.cancel(ticket),
                Submitted::Remove(ticket) => cluster.cancel(ticket),
                Submitted::Increment(ticket) => cluster.cancel(ticket),
                Submitted::Kept(_) => {}
            }
            Ok(())
        })
    }
}

/// How many operations were started and neither waited for nor cancelled; 0 for a client that cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_under_way(client: *mut Client) -> usize {
    let mut count = 0;
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        Client::call(client, |state| {
            count = state.submitted.len();
            Ok(())
        });
    }
    count
}
