//! How a client behaves.

use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// An operation that is not over after this fails with [`crate::Error::Timeout`]; until then it is tried again and again.
    pub timeout: Duration,
    /// How long to spin for an answer before sleeping. Spinning costs a core and saves the time to wake up.
    pub spin: Duration,
    /// A connection that owes answers and is silent for this long is given up and opened again.
    pub session_timeout: Duration,
    /// Servers that offer it are spoken to by the `fast` protocol over UDP; if that does not work, or with false, over TCP.
    pub fast: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            spin: Duration::from_micros(100),
            session_timeout: Duration::from_millis(500),
            fast: true,
        }
    }
}
