//! Events that clients cause by requests of administration.

use core::fmt;

use base::level::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A client ends the process.
    Killed,
    /// A request for tests came, and tests are not allowed here.
    TestRequestRefused {
        name: &'static str,
    },
    /// A client's own text.
    Text {
        level: Level,
        text: String,
    },
    /// One event of the time trace, as a client has asked for.
    TraceLine(String),
    NoCacheTrace,
    /// A control operation that is about counters has no effect.
    CountersLeft {
        control_op: u32,
    },
    /// QUIESCE has no effect.
    NothingToQuiesce {
        has_replicas: bool,
    },
}

impl ClientEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            ClientEvent::Killed | ClientEvent::TestRequestRefused { .. } => Level::Warning,
            ClientEvent::Text { level, .. } => *level,
            ClientEvent::TraceLine(_) | ClientEvent::NoCacheTrace => Level::Notice,
            ClientEvent::CountersLeft { .. } | ClientEvent::NothingToQuiesce { .. } => Level::Debug,
        }
    }
}

impl fmt::Display for ClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientEvent::Killed => f.write_str("a client's KILL ends this process"),
            ClientEvent::TestRequestRefused { name } => write!(
                f,
                "refused {name}: it is for tests only; --allowTestRpcs allows it"
            ),
            ClientEvent::Text { text, .. } => f.write_str(text),
            ClientEvent::TraceLine(line) => f.write_str(line),
            ClientEvent::NoCacheTrace => f.write_str("no cache trace is recorded by this build"),
            ClientEvent::CountersLeft { control_op } => write!(
                f,
                "control operation {control_op}: nothing to do, for counters always run and never go back"
            ),
            ClientEvent::NothingToQuiesce { has_replicas: true } => f.write_str(
                "QUIESCE: nothing to do, for backups write what they have to their devices by themselves",
            ),
            ClientEvent::NothingToQuiesce {
                has_replicas: false,
            } => f.write_str("QUIESCE: nothing to do, for this server's log has no copies"),
        }
    }
}
