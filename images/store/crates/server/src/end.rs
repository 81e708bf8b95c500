//! Why a process is of no use any more.

use core::fmt;

use backup::OpenError;
use master::Refusal;

/// With what to do, as [`fmt::Display`] writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The coordinator does not let this build in; with its text.
    WrongVersion(String),
    /// The backup's storage is not taken into use.
    Storage(OpenError),
    /// A backup has fenced the log that this server wrote.
    Deposed,
    /// The coordinator says so, perhaps before this server ever heard that it was let in; with its reason.
    Superseded(Option<Refusal>),
}

impl End {
    /// Others serve what the server had, or are about to.
    pub fn is_succeeded(&self) -> bool {
        matches!(self, End::Deposed | End::Superseded(_))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::WrongVersion(text) => f.write_str(text),
            End::Storage(error) => error.fmt(f),
            End::Deposed => f.write_str(
                "this server was taken for dead, and what it had is served by others or about to be: it ends, and can safely be started \
                 again",
            ),
            End::Superseded(refusal) => {
                f.write_str(
                    "this server was taken for dead or replaced: it ends, and can safely be started again (",
                )?;
                match refusal {
                    Some(refusal) => refusal.fmt(f)?,
                    None => f.write_str("no reason is given")?,
                }
                f.write_str(")")
            }
        }
    }
}
