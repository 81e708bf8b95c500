//! The client's handle: who may use it now, and what keeps mistakes on this side of the border.

use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use client::Cluster;

use crate::status::{Failure, Status};
use crate::submitted::Submitted;
use crate::types::{Options, options, put_required, text};

/// A store, as one thread at a time uses it.
pub struct Client {
    /// A thread is in here. C cannot be asked to keep others out, and a data race would be anybody's guess: so the second one is told.
    busy: AtomicBool,
    process: u32,
    state: UnsafeCell<State>,
}

pub(crate) struct State {
    pub cluster: Cluster,
    /// Where a value goes before it is known to fit into the caller's buffer.
    pub value: Vec<u8>,
    pub submitted: BTreeMap<u64, Submitted>,
    error: CString,
    /// There was a panic: nobody knows what the state is.
    is_broken: bool,
}

thread_local! {
    /// Why this thread has no client.
    static NOT_CONNECTED: RefCell<CString> = RefCell::default();
}

impl Client {
    /// Makes a call. What it fails with becomes what the function answers and the text of [`rcbox_error`]; a panic ends here, if the
    /// library was compiled to unwind.
    ///
    /// # Safety
    /// `client` is NULL, or came from [`rcbox_connect`] and was not closed.
    pub(crate) unsafe fn call(
        client: *mut Client,
        call: impl FnOnce(&mut State) -> Result<(), Failure>,
    ) -> Status {
        // SAFETY: promised by the caller.
        let Some(client) = (unsafe { client.as_ref() }) else {
            return Status::RCBOX_ERR_ARGUMENT;
        };
        if let Err(status) = client.enter() {
            return status;
        }
        // SAFETY: `enter` lets one thread in at a time.
        let state = unsafe { &mut *client.state.get() };
        let status = state.run(call);
        client.leave();
        status
    }

    fn enter(&self) -> Result<(), Status> {
        // Its connections and what waits for them are the parent's as well.
        if self.process != std::process::id() {
            return Err(Status::RCBOX_ERR_FORKED);
        }
        match self.busy.swap(true, Ordering::Acquire) {
            true => Err(Status::RCBOX_ERR_BUSY),
            false => Ok(()),
        }
    }

    fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }
}

impl State {
    fn run(&mut self, call: impl FnOnce(&mut State) -> Result<(), Failure>) -> Status {
        if self.is_broken {
            return Status::RCBOX_ERR_INTERNAL;
        }
        let failure = match guarded(|| call(self)) {
            Ok(Ok(())) => return Status::RCBOX_OK,
            Ok(Err(failure)) => failure,
            Err(failure) => {
                self.is_broken = true;
                failure
            }
        };
        self.error = c_text(failure.text);
        failure.status
    }
}

/// Runs something that may panic.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Failure> {
    // Whoever sees the state afterwards is told that it is broken.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = format!(
            "a mistake in the library, please report it: {}",
            said(&*panic)
        );
        Failure::new(Status::RCBOX_ERR_INTERNAL, text)
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it did not say which")
}

fn c_text(mut text: String) -> CString {
    text.retain(|letter| letter != '\0');
    CString::new(text).unwrap_or_default()
}

/// Makes a client of the store whose coordinator has this locator, such as "tcp:host=10.0.0.1,port=11100", or one of these, separated by
/// ";". It opens no connection yet: that nobody is there shows with the first call.
///
/// The client belongs to the caller, until rcbox_close(). options may be NULL. If it fails, *client is NULL and rcbox_error(NULL) says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_connect(
    locator: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
) -> Status {
    // SAFETY: promised by the caller, as the header says.
    let result = guarded(|| unsafe { connect(locator, options, client) });
    match result.unwrap_or_else(Err) {
        Ok(()) => Status::RCBOX_OK,
        Err(failure) => {
            let text = c_text(failure.text);
            NOT_CONNECTED.with_borrow_mut(|error| *error = text);
            failure.status
        }
    }
}

/// # Safety
/// As for [`rcbox_connect`].
unsafe fn connect(
    locator: *const c_char,
    given: *const Options,
    client: *mut *mut Client,
) -> Result<(), Failure> {
    // SAFETY: promised by the caller.
    let (locator, options) = unsafe {
        put_required(client, std::ptr::null_mut(), "client")?;
        (text(locator, "locator")?, options(given)?)
    };
    let locator = locator
        .to_str()
        .map_err(|_| Failure::argument("the locator is not UTF-8"))?;
    let made = Box::new(Client {
        busy: AtomicBool::new(false),
        process: std::process::id(),
        state: UnsafeCell::new(State {
            cluster: Cluster::with_options(locator, options)?,
            value: Vec::new(),
            submitted: BTreeMap::new(),
            error: CString::default(),
            is_broken: false,
        }),
    });
    // SAFETY: promised by the caller.
    unsafe { put_required(client, Box::into_raw(made), "client") }
}

/// Ends a client, and gives up what it has under way, which may take effect all the same. NULL is allowed. If it answers RCBOX_ERR_BUSY,
/// the client is as it was; otherwise it is gone. In a child process of the one that made it, it does nothing to the connections, which are
/// the parent's as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_close(client: *mut Client) -> Status {
    // SAFETY: promised by the caller: NULL, or a client that is not closed.
    let Some(shared) = (unsafe { client.as_ref() }) else {
        return Status::RCBOX_OK;
    };
    match shared.enter() {
        Ok(()) => {}
        // What the child has is a copy in memory, which ends with it.
        Err(Status::RCBOX_ERR_FORKED) => return Status::RCBOX_OK,
        Err(status) => return status,
    }
    // SAFETY: made by `rcbox_connect`; nobody else is in here, and the caller uses it no more.
    let client = unsafe { Box::from_raw(client) };
    match guarded(|| drop(client)) {
        Ok(()) => Status::RCBOX_OK,
        Err(failure) => failure.status,
    }
}

/// What was wrong when a call with this client failed last, and what to do about it; "" if none has. With NULL: why rcbox_connect() failed
/// in this thread. The text belongs to the client (or the thread) and is good until the next call with it.
///
/// RCBOX_ERR_BUSY, RCBOX_ERR_FORKED and a NULL for a client leave no text: their names say all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcbox_error(client: *mut Client) -> *const c_char {
    // SAFETY: promised by the caller: NULL, or a client that is not closed.
    let Some(client) = (unsafe { client.as_ref() }) else {
        return NOT_CONNECTED.with_borrow(|error| error.as_ptr());
    };
    let text: &CStr = match client.enter() {
        Ok(()) => {
            // SAFETY: `enter` lets one thread in at a time.
            let text = unsafe { &(*client.state.get()).error };
            client.leave();
            text
        }
        Err(Status::RCBOX_ERR_FORKED) => {
            c"this client was made by another process; after fork(), make a new one"
        }
        Err(_) => c"another thread uses this client; make one for each thread",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> *mut Client {
        let mut client = std::ptr::null_mut();
        let locator = c"tcp:host=127.0.0.1,port=1";
        // SAFETY: valid pointers.
        let status = unsafe { rcbox_connect(locator.as_ptr(), std::ptr::null(), &raw mut client) };
        assert_eq!(status, Status::RCBOX_OK);
        client
    }

    fn error(client: *mut Client) -> String {
        // SAFETY: a client that lives.
        let text = unsafe { CStr::from_ptr(rcbox_error(client)) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border_and_the_client_says_so_from_then_on() {
        let client = client();
        // SAFETY: a client that lives.
        unsafe {
            let status = Client::call(client, |_| panic!("of a test"));
            assert_eq!(status, Status::RCBOX_ERR_INTERNAL);
            assert!(error(client).ends_with("please report it: of a test"));
            let status = Client::call(client, |_| Ok(()));
            assert_eq!(status, Status::RCBOX_ERR_INTERNAL);
            assert_eq!(rcbox_close(client), Status::RCBOX_OK);
        }
    }

    #[test]
    fn the_second_thread_is_told_that_it_is_the_second() {
        let client = client();
        // SAFETY: a client that lives.
        unsafe {
            let status = Client::call(client, |_| {
                assert_eq!(Client::call(client, |_| Ok(())), Status::RCBOX_ERR_BUSY);
                assert!(error(client).contains("make one for each thread"));
                assert_eq!(rcbox_close(client), Status::RCBOX_ERR_BUSY);
                Ok(())
            });
            assert_eq!(status, Status::RCBOX_OK);
            assert_eq!(rcbox_close(client), Status::RCBOX_OK);
        }
    }
}
