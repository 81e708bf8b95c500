//! Events that clients cause by requests of administration.

use core::fmt;

use base::level::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A client ends the process.
    Killed,
    /// KILL came, and tests are not allowed here.
    KillRefused,
    /// A client's own text.
    Text { level: Level, text: String },
}

impl ClientEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            ClientEvent::Killed | ClientEvent::KillRefused => Level::Warning,
            ClientEvent::Text { level, .. } => *level,
        }
    }
}

impl fmt::Display for ClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientEvent::Killed => f.write_str("a client's KILL ends this process"),
            ClientEvent::KillRefused => {
                f.write_str("refused KILL: it is for tests only; --allowTestRpcs allows it")
            }
            ClientEvent::Text { text, .. } => f.write_str(text),
        }
    }
}
