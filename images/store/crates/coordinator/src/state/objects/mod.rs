//! The pairs in named, versioned objects of an API server: one root, and immutable chunks that it names.
//!
//! [`Keeper`] is one leadership's state machine, without I/O. A driver hands in what happened, carries out the [`Request`]s that
//! come out, and answers each exactly once, with [`ObjectResponse::Failed`] if nothing came in time. It relies on this of the API server:
//!
//! * a get and a fresh list see all that was answered before they were sent;
//! * a replacement takes effect only if the object has the version that it names, and a version is never used for another content
//!   (also not after the objects were put back to an older state);
//! * a request that failed may have taken effect, or may at any later time.

mod call;
mod chunks;
pub mod format;
mod keeper;
mod lead;
mod load;
mod look;
mod standing;
mod swap;
mod sweep;
mod takeover;
#[cfg(feature = "testing")]
pub mod testing;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use base::time::Time;

pub use super::batch::Batch;
pub use crate::position::{Leadership, Position};
pub(crate) use crate::position::{MAX_PAST, covers, remember};
pub use format::ChunkId;
pub use keeper::Keeper;
pub(crate) use takeover::described;

use super::Pair;

/// What a keeper is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Random; names this leadership. Never used before.
    pub nonce: u64,
    /// Who leads, for people: a pod's name.
    pub leader: String,
    /// Random; what the store is called if there is none yet.
    pub new_cluster_id: u64,
    /// If there is no store yet, none is begun: [`KeeperEffect::Empty`] comes, and [`Keeper::seed`] says which store it is.
    pub awaits_seed: bool,
    pub tuning: Tuning,
}

/// How much is written into which object, and how much is done at once. The defaults fit API servers that take objects of a mebibyte.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Of a chunk's payload, at most.
    pub chunk_bytes: usize,
    /// Of the changes that stand in the root itself, at most.
    pub tail_bytes: usize,
    /// The state is written anew when the runs behind the first are longer than it, and than this.
    pub rewrite_bytes: u64,
    /// Chunks that are read at the same time.
    pub max_reads: usize,
    /// Chunks that are deleted at the same time.
    pub max_deletes: usize,
    /// So often it is looked for chunks that can be deleted, if none are known to be.
    pub sweep_interval: Duration,
    /// A leader that writes nothing reads the root as often as this: it may have been put back, or be another one's.
    pub look_interval: Duration,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            chunk_bytes: 512 << 10,
            tail_bytes: 128 << 10,
            rewrite_bytes: 1 << 20,
            max_reads: 8,
            max_deletes: 32,
            sweep_interval: Duration::from_secs(600),
            look_interval: Duration::from_secs(5),
        }
    }
}

/// Stands alone in the root of a store that is being made again, until all that it knew is committed: a leader that finds it begins anew.
pub const SEED_MARK: &[u8] = &[0];

/// Which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Root,
    Chunk(ChunkId),
}

/// The object's name within its store, as [`ChunkId`]'s.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Root => f.write_str("root"),
            Name::Chunk(id) => id.fmt(f),
        }
    }
}

/// An object's version, as the API server calls it. An empty one in a replacement would mean "whatever is there".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// Of one keeper.
pub type RequestId = u64;

/// A request to the API server. Answered by the [`ObjectResponse`] that is named, or by [`ObjectResponse::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The newest content, never one out of a cache: `Found` or `NotFound`.
    Get(Name),
    /// Of an object that does not exist: `Done`, or `Conflict` if it does.
    Create(Name, Arc<[u8]>),
    /// Of the root, if it has this version: `Done`, `Conflict`, or `NotFound`.
    Replace(Version, Arc<[u8]>),
    /// Of a chunk: `Done` or `NotFound`.
    Delete(ChunkId),
    /// Names of all the store's chunks: `Listed`. A list that need not be `fresh` may come out of a cache.
    List { fresh: bool },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectResponse {
    Found(Version, Vec<u8>),
    NotFound,
    /// It took effect. With the object's new version, if it has one.
    Done(Version),
    Conflict,
    Listed(Vec<ChunkId>),
    /// Whether and when it takes effect is unknown. With what is known, for people.
    Failed(String),
}

/// What a keeper tells its driver, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum KeeperEffect {
    Request(RequestId, Request),
    /// This process leads, and this is the state; none: a new store. [`Keeper::commit`] may be called from now on.
    Loaded {
        cluster_id: u64,
        pairs: Vec<Pair>,
    },
    /// There is nothing, and [`Settings::awaits_seed`].
    Empty,
    /// All commits up to this number are durable: whoever leads next knows of them.
    Committed(u64),
    /// The last effect: this leadership is over. What is not committed may be known to the next leader, or not. With a text
    /// that says what happened, and what to do.
    Ended(Ending, String),
}

/// Why a leadership is over, or never began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another process leads: start anew as a standby.
    Deposed,
    /// `StateRolledBack`: the objects are older than what was told to others. Nothing is written any more.
    RolledBack,
    /// `StateIncomplete`: objects are missing. Nothing is written any more.
    Incomplete,
    /// `StateUnreadable`: an object is damaged, or of another store, or the state cannot be read. Nothing is written any more.
    Unreadable,
    /// `StateUnreadable`: a newer build has put its format in force. Nothing is written any more.
    NewerFormat,
}

impl Ending {
    /// As people read it in a log or a status.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Deposed => "StateDeposed",
            Ending::RolledBack => "StateRolledBack",
            Ending::Incomplete => "StateIncomplete",
            Ending::Unreadable | Ending::NewerFormat => "StateUnreadable",
        }
    }
}

impl Trouble {
    /// A sentence for people.
    pub fn told(&self, now: Time) -> String {
        format!(
            "cannot {} for {} s, in {} tries: {}",
            self.doing,
            now.since(self.since).as_secs(),
            self.failures,
            self.why
        )
    }
}

/// Something that does not get on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is being tried: "write the root".
    pub doing: &'static str,
    pub since: Time,
    pub failures: u32,
    /// What came of the last try.
    pub why: String,
}
