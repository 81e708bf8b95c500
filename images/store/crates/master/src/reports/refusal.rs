//! Why a shard and its coordinator do not work together.

use core::fmt;

use wire::format::Formats;
use wire::member::Position;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The coordinator does not let the shard in; its own text.
    Told(String),
    /// The coordinator that let the shard in leads no more.
    OldLeader { told: Position, known: Position },
    /// The store is of a format that this build does not read.
    UnknownFormat { format: u32, known: Formats },
    /// The coordinator counts on something that was not made here.
    NotMadeHere(Brought),
}

/// A recovery or a migration that brings tablets, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    Recovery(u64),
    Migration(u64),
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Brought::Recovery(id) => write!(f, "recovery {id}"),
            Brought::Migration(id) => write!(f, "migration {id}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Told(text) => f.write_str(text),
            Refusal::OldLeader { told, known } => {
                let what = match told.term == known.term {
                    true => {
                        "another one led in the same term: the coordinator's state was put back to an older one, and its status says what to do"
                    }
                    false => {
                        "a later one leads already: this connection leads to a coordinator that is to be ended, if it does not end by itself"
                    }
                };
                write!(
                    f,
                    "a coordinator of term {} ({:016x}) is not obeyed, for this server knows term {} ({:016x}); {what}",
                    told.term, told.nonce, known.term, known.nonce
                )
            }
            Refusal::UnknownFormat { format, known } => write!(
                f,
                "the store is of format {format}, and this build reads {known}: start a server of the store's version"
            ),
            Refusal::NotMadeHere(what) => write!(
                f,
                "the coordinator counts on {what}, which this process has not made: it serves nothing more; restart it, and others bring its \
                 tablets back"
            ),
        }
    }
}
