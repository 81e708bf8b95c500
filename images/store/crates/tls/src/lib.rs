//! Who is at the other end of a connection, and how nobody else reads it: TLS 1.3 with certificates on both sides.
//!
//! * [`Identity`]: what a certificate of a store says of its holder: which store, and coordinator, member, operator or user.
//! * [`Credentials`]: a process's own certificate and the authorities that it trusts, as files tell.
//! * [`Guard`]: the credentials that count now; they are exchanged while connections stay.
//! * [`Channel`]: one connection's encryption. It does no I/O: its driver hands it what came, and sends what it gives.

#![forbid(unsafe_code)]

mod channel;
mod credentials;
mod error;
mod guard;
mod identity;
mod verifier;

pub use channel::{Channel, Opened, RECORD_BYTES, is_hello};
pub use credentials::{Credentials, CredentialsError};
pub use error::ChannelError;
pub use guard::{Guard, ReloadError, time_left};
pub use identity::{Identity, IdentityError, Role, StoreId};
/// For stacks that do their own I/O.
pub use rustls;
pub use verifier::{Admits, Refusal};
