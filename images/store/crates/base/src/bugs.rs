//! Bugs on purpose: what tests must find.
//!
//! Each place in the code that could have one of these bugs asks [`is_planted`]. In programs that is `false` at compile time; a build with the feature
//! `planted-bugs`, for tests, answers what [`plant`] has set for this thread.

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The result of an RPC is logged but not remembered: a retried write takes effect twice.
    ForgetRpcResult,
    /// Replies leave before what they show is durable.
    OpenGateEarly,
    /// A removed key's slot goes before its tombstone is durable: "not found" is shown too early.
    DropTombstoneEarly,
    /// A removal does not raise the safe version: a key made again may get an old version.
    VersionRestartsAfterRemove,
    /// The result of an increment is not recorded: a retried one adds twice.
    RepeatIncrement,
    /// An enumeration that comes to a tablet that was split leaves some of its buckets out.
    ScanSkipsAfterSplit,
    /// Room in the hash table is looked for as if each new key of a plan were the only one.
    ReserveKeysSeparately,
    /// A request of several steps that waits for something that does not come is never answered.
    WaitForEver,
    /// Objects of every format are read as if they were of the first.
    IgnoreObjectFormat,
    /// A multi-write answers OK for an object that its conditions refused.
    MultiWriteHidesRefusal,
    /// What the last backup of a head has not acknowledged counts as durable.
    AcknowledgeBeforeLastReplica,
    /// When a session of the member protocol goes on, messages that the other side has not heard are not sent again.
    ForgetUnheard,
    /// A log frees what another one of the same id has written.
    IgnoreNamesake,
    /// When a connection to a backup breaks, what was under way counts as acknowledged.
    TakeSentForHeld,
    /// Refusals leave although what they show is not durable.
    RefuseEarly,
    /// A master serves without its backups' promises.
    SkipServingLease,
    /// A recovery believes an open replica that was left behind.
    UseStaleOpenReplica,
    /// A recovery replays all closed replicas that it finds, whatever the digest says.
    IgnoreDigest,
    /// A backup takes appends of a log that is being recovered.
    AppendAfterFencing,
    /// A fenced backup tells a recovery of what the loss of power can take.
    TellOfUnsynced,
    /// A replay passes tombstones over.
    DropTombstoneInReplay,
    /// After a replay versions begin where they would have without it.
    ReuseVersionAfterReplay,
    /// The replicas of a cleaned segment are freed before a digest leaves it out.
    FreeReplicaEarly,
    /// What a drained backup has is freed while the copy in its place is still being made.
    FreeDrainedReplicaEarly,
    /// A replay passes RPC results over.
    ForgetReplayedResult,
    /// A backup that opens its storage believes headers whose data is not there.
    BelieveTornFrame,
    /// The coordinator's root is written whatever version it has: a deposed leader writes over its successor's.
    SwapWithoutVersion,
    /// The coordinator's root names a chunk that is still being written.
    NameChunkEarly,
    /// A shard does not remember which coordinator it has obeyed, and obeys one of an older term; and that one welcomes it without a commit, which would
    /// show that it leads no more. One of the two would do no harm.
    ObeyOldTerm,
    /// A migration leaves RPC results behind.
    ForgetMigratedResult,
    /// A tablet that is frozen for its migration is still written.
    WriteAfterFreeze,
    /// A tablet that was stopped for its migration is still read.
    ReadAfterStop,
    /// Two tablets become one although a recovery would read other segments for the one than for the other.
    MergeWhateverTheSources,
    /// A table that is to be split gets half of the boundaries that it lacks, and the order counts as carried out.
    SplitHalfway,
    /// The record of a table does not say that somebody has ordered a boundary: the next coordinator takes it for one of the store's own.
    ForgetOrderedBoundary,
    /// After a loss versions begin where they would have if its tablets had never come from elsewhere.
    ReuseVersionAfterLoss,
    /// A format is put in force although some members do not read it.
    FinalizeTooEarly,
    /// A segment is cleaned, and used again, although something in it is lent.
    CleanLent,
    /// The coordinator takes a lower number of copies, or none, from whoever sends it.
    ObeyFewerCopies,
    /// The cleaner leaves segments that were closed early as they are while enough others are free.
    LeaveUnusedEnds,
    /// Unused ends of segments that were closed early count as those of segments that were full: they take of the room for live data, and stay.
    EarlyEndsCostRoom,
    /// A digest makes a bare head one that holds data, though no memory is free to replace it.
    FillBareHead,
    /// A request that comes again in a datagram is handed over again when it has its answer.
    HandOverAgain,
    /// A request of several packets begins to arrive whatever memory those have that arrive already.
    AdmitWithoutRoom,
    /// Two parts of a recovery may take two heads of one log.
    TakeAnotherHead,
    /// A tablet is its target's before its source has stopped to serve it.
    MoveBeforeStop,
    /// One server that does not reach another is believed, though it may be cut off itself.
    BelieveOneProber,
    /// The id of a table that was dropped is given to the next one.
    ReuseTableId,
    /// A checkpoint counts as kept while it is on its way to a backup.
    CountUnkept,
    /// A member may leave although segments that it has copies of have too few of them.
    LeaveWithTheLastCopy,
    /// The coordinator notes records of a kind that no build knows which still may go on with the state.
    NoteTooEarly,
    /// A server is dead because a client says so.
    BelieveHint,
    /// A change of the coordinator's state counts as noted while it is on its way to the disk.
    NoteUnsynced,
    /// Short answers pass a long one without end.
    StarveLongAnswers,
    /// A backup answers that an append is written while it is being written.
    AnswerUnwritten,
    /// A sync begins before what it is to carry is written.
    SyncUnwritten,
    /// A job's finding about a frame is believed although the frame has another use since.
    BelieveOldCompletion,
    /// A backup that takes nothing for now says that it has no room, though a part of the replica is there; and the master takes that for the answer to
    /// the request that opened the replica, and forgets it. One of the two would do no harm.
    ForgetOpenReplica,
    /// A driver carries out a write before another one that was submitted earlier.
    OvertakeWrite,
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::Bug;
    use core::cell::Cell;

    std::thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Breaks what this thread runs from now on; `None`: nothing.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this is broken.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Whether anything is.
    pub fn is_any_planted() -> bool {
        PLANTED.get().is_some()
    }
}

#[cfg(feature = "planted-bugs")]
pub use planted::{is_any_planted, is_planted, plant};

/// Whether this is broken.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

/// Whether anything is.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_any_planted() -> bool {
    false
}
