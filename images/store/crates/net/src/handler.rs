//! What a reactor asks of its user.

use base::time::Time;

use crate::connection::CloseReason;
use crate::io::Io;

/// What a reactor's user does with what comes. Called by one thread, never again before it has returned.
pub trait Handler {
    /// A connection is open; `listener` is the number of the listener that accepted it, none if it was asked for.
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io);
    /// Messages that probably come next, all at once: a moment to have memory fetched for them. They were not checked, and may be anything.
    fn foresee(&mut self, _messages: &mut dyn Iterator<Item = &[u8]>) {}
    /// A complete message came; `nonce` is 0 on a member stream.
    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io);
    /// As `frame`, for a message that has memory of its own, which the handler may keep: `None` if it does.
    fn message(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: Vec<u8>,
        io: &mut Io,
    ) -> Option<Vec<u8>> {
        self.frame(now, connection, nonce, &payload, io);
        Some(payload)
    }
    /// What was lent with [`Io::send_lent`] under this token, of that length; `None` if it is gone.
    fn lent(&self, _token: u64, _length: usize) -> Option<&[u8]> {
        None
    }
    /// It is not needed any more.
    fn returned(&mut self, _token: u64) {}
    /// A connection that the handler did not close has ended, or could not be opened.
    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io);
    /// Somebody called [`Remote::wake`](crate::Remote::wake); wake-ups may be merged.
    fn woken(&mut self, now: Time, io: &mut Io);
    /// Called after any of the others was, and at the time that the last call gave, which it may pass.
    fn tick(&mut self, now: Time, io: &mut Io) -> Time;
}
