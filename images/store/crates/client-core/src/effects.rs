//! What a client tells its driver.

use crate::error::Error;
use crate::operation_id::OperationId;
use crate::outcome::Outcome;

/// What a driver does for the client.
pub trait ClientEffects {
    /// Opens a connection to one locator of [`crate::Config::protocols`]; answered by [`crate::Client::connected`] or
    /// [`crate::Client::disconnected`]. A session whose connection failed may be asked to connect again, elsewhere.
    fn connect(&mut self, session: u64, locator: &str);
    /// Sends a request on an open connection, under this nonce.
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]);
    /// Closes the connection, open or not yet. Not reported back by [`crate::Client::disconnected`].
    fn close(&mut self, session: u64);
    /// An operation is over.
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>);
}
