//! What is handed in and given, and how it is looked at.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use client::{Error, Options as ClientOptions, RejectRules};

use crate::status::{Failure, Status};

/// How a client behaves. Fill it with 0, set size to sizeof(rcbox_options), and set what shall be otherwise;
/// in C, `rcbox_options options = {.size = sizeof options, .timeout_us = 2000000};`
#[repr(C)]
pub struct Options {
    /// sizeof(rcbox_options), so that a later version can add to it.
    pub size: usize,
    /// An operation that is not over after this fails with RCBOX_ERR_TIMEOUT; until then it is tried again. 0: 10 s.
    pub timeout_us: u64,
    /// How long to spin for an answer before sleeping; costs a core and saves the time to wake up. 0: 100 us; below 0: sleeps at once.
    pub spin_us: i64,
    /// A connection that owes answers and is silent for this long is given up and opened again. 0: 500 ms.
    pub session_timeout_us: u64,
}

/// When a store refuses an operation; all 0: never. The numbers of set rules are 1. Tested in the moment the operation takes effect.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Rules {
    pub given_version: u64,
    /// Refuse with RCBOX_OBJECT_DOESNT_EXIST if there is none.
    pub doesnt_exist: u8,
    /// Refuse with RCBOX_OBJECT_EXISTS if there is one.
    pub exists: u8,
    /// Refuse with RCBOX_WRONG_VERSION if there is one whose version is at most given_version.
    pub version_le_given: u8,
    /// Refuse with RCBOX_WRONG_VERSION if there is one whose version is not given_version.
    pub version_ne_given: u8,
}

/// Bytes that the library allocated: free them with rcbox_buffer_free(). Empty: data is NULL.
#[repr(C)]
pub struct Buffer {
    pub data: *mut c_void,
    pub bytes: usize,
}

impl Buffer {
    pub const EMPTY: Buffer = Buffer {
        data: std::ptr::null_mut(),
        bytes: 0,
    };
}

impl From<Vec<u8>> for Buffer {
    fn from(value: Vec<u8>) -> Buffer {
        if value.is_empty() {
            return Buffer::EMPTY;
        }
        let bytes = value.len();
        let data = Box::into_raw(value.into_boxed_slice()).cast();
        Buffer { data, bytes }
    }
}

/// Frees what is in a buffer, and empties it: freeing it twice does nothing. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_buffer_free(buffer: *mut Buffer) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: the caller's buffer, which nobody else uses now.
    let Buffer { data, bytes } = unsafe { buffer.replace(Buffer::EMPTY) };
    if !data.is_null() {
        let slice = std::ptr::slice_from_raw_parts_mut(data.cast::<u8>(), bytes);
        // SAFETY: made by `Buffer::from` of a box of so many bytes, and not freed yet.
        drop(unsafe { Box::from_raw(slice) });
    }
}

/// More is nobody's patience, and fits into every clock.
const MAX_PATIENCE: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(crate) fn duration(us: u64, what: &str) -> Result<Duration, Failure> {
    let duration = Duration::from_micros(us);
    if duration > MAX_PATIENCE {
        return Err(Failure::argument(format!(
            "{what} is {us}; it has to be at most {} (10 years)",
            MAX_PATIENCE.as_micros()
        )));
    }
    Ok(duration)
}

/// # Safety
/// `options` is NULL or points to a size and so many bytes in all.
pub(crate) unsafe fn options(options: *const Options) -> Result<ClientOptions, Failure> {
    let mut result = ClientOptions::default();
    if options.is_null() {
        return Ok(result);
    }
    // SAFETY: the size comes first, in every version.
    let size = unsafe { (&raw const (*options).size).read() };
    if size != size_of::<Options>() {
        return Err(Failure::argument(format!(
            "rcbox_options.size is {size}; set it to sizeof(rcbox_options), which is {} here",
            size_of::<Options>()
        )));
    }
    // SAFETY: it has this size, and any bytes will do.
    let given = unsafe { options.read() };
    if given.timeout_us > 0 {
        result.timeout = duration(given.timeout_us, "rcbox_options.timeout_us")?;
    }
    if given.session_timeout_us > 0 {
        let what = "rcbox_options.session_timeout_us";
        result.session_timeout = duration(given.session_timeout_us, what)?;
    }
    match u64::try_from(given.spin_us) {
        Ok(0) => {}
        Ok(us) => result.spin = duration(us, "rcbox_options.spin_us")?,
        Err(_) => result.spin = Duration::ZERO,
    }
    Ok(result)
}

/// # Safety
/// `rules` is NULL or points to some.
pub(crate) unsafe fn rules(rules: *const Rules) -> RejectRules {
    if rules.is_null() {
        return RejectRules::default();
    }
    // SAFETY: any bytes will do.
    let given = unsafe { rules.read() };
    RejectRules {
        given_version: given.given_version,
        doesnt_exist: given.doesnt_exist != 0,
        exists: given.exists != 0,
        version_le_given: given.version_le_given != 0,
        version_ne_given: given.version_ne_given != 0,
    }
}

/// # Safety
/// `data` is NULL or points to `length` bytes that stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() || length > isize::MAX as usize {
        return Err(Failure::argument(format!(
            "the {what} is {length} bytes at {data:p}, where there cannot be so many"
        )));
    }
    // SAFETY: not NULL, not too long, and readable as the caller promised.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// # Safety
/// `text` is NULL or ends with a NUL, and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("the {what} is NULL")));
    }
    // SAFETY: not NULL, and NUL at its end as the caller promised.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Writes where the caller wants something to be written.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it may be written; what was there needs no drop.
        unsafe { place.write(value) };
    }
}

/// As [`put`], for what must be asked for.
///
/// # Safety
/// As there.
pub(crate) unsafe fn put_required<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: promised by the caller.
    unsafe { put(place, value) };
    Ok(())
}

/// Writes the version: of the result, or the one for which it was refused, or 0.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn put_version<T>(
    place: *mut u64,
    result: Result<T, Error>,
    version: impl FnOnce(&T) -> u64,
) -> Result<T, Failure> {
    let result = result.map_err(Failure::from);
    let version = match &result {
        Ok(output) => version(output),
        Err(failure) => failure.version,
    };
    // SAFETY: promised by the caller.
    unsafe { put(place, version) };
    result
}

/// Copies a value into the caller's buffer, and tells how long it is in any case.
///
/// # Safety
/// `buffer` is NULL or has room for `buffer_bytes`; `value_bytes` may be written.
pub(crate) unsafe fn put_value(
    value: &[u8],
    buffer: *mut c_void,
    buffer_bytes: usize,
    value_bytes: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: promised by the caller.
    unsafe { put_required(value_bytes, value.len(), "value_bytes")? };
    if value.is_empty() {
        return Ok(());
    }
    if value.len() > buffer_bytes {
        let (there, wanted) = (buffer_bytes, value.len());
        let text = format!("the value has {wanted} bytes, the buffer has room for {there}");
        return Err(Failure::new(Status::RCBOX_ERR_BUFFER, text));
    }
    if buffer.is_null() {
        return Err(Failure::argument("the buffer is NULL"));
    }
    // SAFETY: there is room, and the caller's buffer is none of this library's.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len()) };
    Ok(())
}
