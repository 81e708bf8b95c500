//! The client for C: `include/rcbox.h` is made of what is here, so that the documentation of a function stands in the header.
//!
//! A function of the C ABI checks what it was handed, runs a call of the crate `client` and writes what came of it. No panic crosses the
//! border: see [`handle::Client::call`].

// Every function that takes a pointer is unsafe in the same way, which the beginning of the header says.
#![allow(clippy::missing_safety_doc)]
#![warn(unsafe_op_in_unsafe_fn)]

mod calls;
mod handle;
mod multi;
mod scan;
mod status;
mod submitted;
mod types;
mod version;

pub use calls::*;
pub use handle::*;
pub use multi::*;
pub use scan::*;
pub use status::*;
pub use submitted::*;
pub use types::*;
pub use version::*;
