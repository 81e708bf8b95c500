//! All objects of a table.

use std::ffi::c_void;
use std::vec::IntoIter;

use client::ops::{Enumerate, Page, Position};
use client::{Keyed, TableId};

use crate::handle::Client;
use crate::status::{Failure, Status};
use crate::types::put_required;

/// For rcbox_scan_new(): leaves the values at the servers.
pub const RCBOX_SCAN_KEYS_ONLY: u32 = 1;

/// Where somebody is in a table.
pub struct Scan {
    table: TableId,
    keys_only: bool,
    ready: IntoIter<Keyed>,
    /// What was shown last.
    shown: Option<Keyed>,
    /// `None`: at the end.
    next: Option<Position>,
}

/// An object, as a scan shows it. It belongs to the scan.
#[repr(C)]
pub struct Object {
    pub key: *const c_void,
    pub key_bytes: usize,
    /// NULL, if it is empty or was left at the servers.
    pub value: *const c_void,
    pub value_bytes: usize,
    pub version: u64,
}

/// Begins a scan of all objects of a table. flags: 0, or RCBOX_SCAN_KEYS_ONLY. It belongs to the caller, until rcbox_scan_free(); it is
/// bound to no client. NULL if a flag is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn rcbox_scan_new(table: u64, flags: u32) -> *mut Scan {
    if flags & !RCBOX_SCAN_KEYS_ONLY != 0 {
        return std::ptr::null_mut();
    }
    Box::into_raw(Box::new(Scan {
        table: TableId(table),
        keys_only: flags & RCBOX_SCAN_KEYS_ONLY != 0,
        ready: Vec::new().into_iter(),
        shown: None,
        next: Some(Position::default()),
    }))
}

/// Shows the next object: what *object points to is good until the next call with the same scan. RCBOX_ERR_END behind the last one.
/// After another failure, the next call tries the same place again.
///
/// Objects that are there from the beginning of the scan to its end come at least once; those that are written or removed meanwhile may
/// come or not. Of an object with several keys, the first is shown. Two threads cannot use a scan at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_scan_next(
    client: *mut Client,
    scan: *mut Scan,
    object: *mut Object,
) -> Status {
    // SAFETY: promised by the caller, as the header says; nobody else uses the scan.
    unsafe {
        Client::call(client, |state| {
            let scan = scan
                .as_mut()
                .ok_or_else(|| Failure::argument("the scan is NULL"))?;
            while scan.ready.as_slice().is_empty() {
                let position = scan.next.clone().ok_or_else(|| {
                    Failure::new(Status::RCBOX_ERR_END, "the scan has come to its end")
                })?;
                let Page { objects, next } = state.cluster.run(Enumerate {
                    table: scan.table,
                    keys_only: scan.keys_only,
                    position,
                })?;
                (scan.ready, scan.next) = (objects.into_iter(), next);
            }
            scan.shown = scan.ready.next();
            let Some(shown) = &scan.shown else {
                return Err(Failure::argument(
                    "the scan was used by two threads at once",
                ));
            };
            put_required(object, show(shown), "object")
        })
    }
}

fn show(shown: &Keyed) -> Object {
    let at = |bytes: &[u8]| match bytes.is_empty() {
        true => std::ptr::null(),
        false => bytes.as_ptr().cast(),
    };
    Object {
        key: at(shown.key()),
        key_bytes: shown.key().len(),
        value: at(&shown.value),
        value_bytes: shown.value.len(),
        version: shown.version,
    }
}

/// Ends a scan; NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_scan_free(scan: *mut Scan) {
    if !scan.is_null() {
        // SAFETY: made by `rcbox_scan_new`, and not freed yet.
        drop(unsafe { Box::from_raw(scan) });
    }
}
