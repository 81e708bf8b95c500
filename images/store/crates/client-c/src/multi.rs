//! Many objects at a time.

use std::ffi::c_void;

use client::{Each, Multi, ReadObject, TableId, WriteObject, ops};

use crate::handle::Client;
use crate::status::{Failure, Status};
use crate::types::{Buffer, Rules, bytes, rules};

/// One object of rcbox_multi_read(): the first four are the caller's, the others are written.
#[repr(C)]
pub struct ReadPart {
    pub table: u64,
    pub key: *const c_void,
    pub key_bytes: usize,
    /// NULL: none.
    pub rules: *const Rules,
    /// An rcbox_status.
    pub status: i32,
    pub version: u64,
    /// Give it to rcbox_buffer_free(). Empty if the status is not RCBOX_OK.
    pub value: Buffer,
}

/// One object of rcbox_multi_write(): the first six are the caller's, the others are written.
#[repr(C)]
pub struct WritePart {
    pub table: u64,
    pub key: *const c_void,
    pub key_bytes: usize,
    pub value: *const c_void,
    pub value_bytes: usize,
    /// NULL: none.
    pub rules: *const Rules,
    /// An rcbox_status.
    pub status: i32,
    /// The new one, or the one for which it was refused.
    pub version: u64,
}

/// One object of rcbox_multi_remove(): the first four are the caller's, the others are written.
#[repr(C)]
pub struct RemovePart {
    pub table: u64,
    pub key: *const c_void,
    pub key_bytes: usize,
    /// NULL: none.
    pub rules: *const Rules,
    /// An rcbox_status.
    pub status: i32,
    /// Of what was removed, 0 if there was nothing; or the one for which it was refused.
    pub version: u64,
}

/// What the parts of all three kinds have in common. They are looked at field by field: what is to be written may hold anything before.
///
/// # Safety
/// `describe` reads what the caller filled in. `finish` writes the rest, whatever was there.
unsafe trait Part {
    type Described<'a>;
    type Output;
    unsafe fn describe<'a>(part: *const Self) -> Result<Self::Described<'a>, Failure>;
    unsafe fn finish(part: *mut Self, status: Status, version: u64, output: Option<Self::Output>);
}

// SAFETY: of every part, the caller's fields are read and the others are written.
unsafe impl Part for ReadPart {
    type Described<'a> = ReadObject<'a>;
    type Output = Vec<u8>;

    unsafe fn describe<'a>(part: *const Self) -> Result<ReadObject<'a>, Failure> {
        // SAFETY: the caller's part.
        unsafe { described((*part).table, (*part).key, (*part).key_bytes, (*part).rules) }
    }

    unsafe fn finish(part: *mut Self, status: Status, version: u64, output: Option<Vec<u8>>) {
        // SAFETY: the caller's part; what is overwritten needs no drop.
        unsafe {
            (*part).status = status as i32;
            (*part).version = version;
            (*part).value = output.map_or(Buffer::EMPTY, Buffer::from);
        }
    }
}

// SAFETY: as above.
unsafe impl Part for WritePart {
    type Described<'a> = WriteObject<'a>;
    type Output = ();

    unsafe fn describe<'a>(part: *const Self) -> Result<WriteObject<'a>, Failure> {
        // SAFETY: the caller's part.
        unsafe {
            let ReadObject { table, key, rules } =
                described((*part).table, (*part).key, (*part).key_bytes, (*part).rules)?;
            let value = bytes((*part).value, (*part).value_bytes, "value")?;
            Ok(WriteObject {
                table,
                key,
                value,
                rules,
            })
        }
    }

    unsafe fn finish(part: *mut Self, status: Status, version: u64, _output: Option<()>) {
        // SAFETY: the caller's part.
        unsafe {
            (*part).status = status as i32;
            (*part).version = version;
        }
    }
}

// SAFETY: as above.
unsafe impl Part for RemovePart {
    type Described<'a> = ReadObject<'a>;
    type Output = ();

    unsafe fn describe<'a>(part: *const Self) -> Result<ReadObject<'a>, Failure> {
        // SAFETY: the caller's part.
        unsafe { described((*part).table, (*part).key, (*part).key_bytes, (*part).rules) }
    }

    unsafe fn finish(part: *mut Self, status: Status, version: u64, _output: Option<()>) {
        // SAFETY: the caller's part.
        unsafe {
            (*part).status = status as i32;
            (*part).version = version;
        }
    }
}

/// # Safety
/// The key and the rules are readable for `'a`.
unsafe fn described<'a>(
    table: u64,
    key: *const c_void,
    key_bytes: usize,
    rules: *const Rules,
) -> Result<ReadObject<'a>, Failure> {
    // SAFETY: promised by the caller.
    let (key, rules) = unsafe { (bytes(key, key_bytes, "key")?, self::rules(rules)) };
    let table = TableId(table);
    Ok(ReadObject { table, key, rules })
}

/// Runs a call over an array of parts. If it fails as a whole, every part says why.
///
/// # Safety
/// `parts` is NULL or an array of `count`.
unsafe fn each<P: Part>(
    client: *mut Client,
    parts: *mut P,
    count: usize,
    run: impl FnOnce(&mut client::Cluster, &[P::Described<'_>]) -> Result<Outcomes<P::Output>, Failure>,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        let finish_all = |status| {
            if !parts.is_null() {
                (0..count).for_each(|at| P::finish(parts.add(at), status, 0, None));
            }
        };
        let status = Client::call(client, |state| {
            if count == 0 {
                return Ok(());
            }
            if parts.is_null() || count > isize::MAX as usize / size_of::<P>() {
                return Err(Failure::argument(format!("{count} parts at {parts:p}")));
            }
            let described = (0..count)
                .map(|at| P::describe(parts.add(at)))
                .collect::<Result<Vec<_>, _>>()?;
            let outcomes = run(&mut state.cluster, &described)?;
            for (at, outcome) in outcomes.into_iter().enumerate() {
                let part = parts.add(at);
                match outcome {
                    Ok((version, output)) => {
                        P::finish(part, Status::RCBOX_OK, version, Some(output));
                    }
                    Err(failure) => P::finish(part, failure.status, failure.version, None),
                }
            }
            Ok(())
        });
        if status != Status::RCBOX_OK && count <= isize::MAX as usize / size_of::<P>() {
            finish_all(status);
        }
        status
    }
}

/// For each part, in order: version and output, or why not.
type Outcomes<T> = Vec<Result<(u64, T), Failure>>;

fn versions(versions: Each<u64>) -> Outcomes<()> {
    let outcome = |version: Result<u64, _>| Ok((version?, ()));
    versions.into_iter().map(outcome).collect()
}

/// Reads `count` objects, in few messages to all servers at once. RCBOX_OK: each part has a status of its own. Not atomic. If it answers
/// something else, every part has that status. What values the parts held before is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_multi_read(
    client: *mut Client,
    parts: *mut ReadPart,
    count: usize,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        each(client, parts, count, |cluster, described| {
            let objects = cluster.multi_read(described)?;
            let outcome = |object: Result<client::Object, _>| {
                let object = object?;
                Ok((object.version, object.value.into()))
            };
            Ok(objects.into_iter().map(outcome).collect())
        })
    }
}

/// Writes `count` objects; see rcbox_multi_read(). Not atomic, and a part whose answer got lost may take effect again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_multi_write(
    client: *mut Client,
    parts: *mut WritePart,
    count: usize,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        each(client, parts, count, |cluster, described| {
            let multi = Multi::writes(described).map_err(client::Error::from)?;
            Ok(versions(cluster.run(ops::MultiChange { multi })?))
        })
    }
}

/// Removes `count` objects; see rcbox_multi_read(). Not atomic, and a part whose answer got lost may take effect again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_multi_remove(
    client: *mut Client,
    parts: *mut RemovePart,
    count: usize,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    unsafe {
        each(client, parts, count, |cluster, described| {
            Ok(versions(cluster.multi_remove(described)?))
        })
    }
}
