//! A segment that is to be read, and what each of its backups has said so far.

use base::ids::ServerId;
use wire::entry::{RawEntry, SegmentHeader};
use wire::member::SegmentSource;
use wire::peer::ReplicaId;

use crate::reports::{RecoveryError, SourceError};

/// Answers of one backup that bring nothing, at most: it has to look through megabytes before it finds something.
const MAX_IDLE_ANSWERS: u32 = 64;

#[derive(Debug)]
pub(super) struct Source {
    pub replica: ReplicaId,
    /// Length of the replicas that are to be read.
    bytes: u32,
    backups: Vec<ServerId>,
    /// Where to go on reading.
    pub offset: u32,
    idle_answers: u32,
    tried: Vec<Tried>,
}

#[derive(Debug)]
struct Tried {
    backup: ServerId,
    count: u32,
    error: SourceError,
    may_retry: bool,
}

/// Why a backup is not read from any further.
pub(super) struct Failure {
    pub error: SourceError,
    /// It was not the replica: the backup is asked once more if the others do not help.
    pub may_retry: bool,
}

impl Failure {
    /// Of the backup, or of the way there.
    pub fn passing(error: SourceError) -> Failure {
        Failure {
            error,
            may_retry: true,
        }
    }

    /// Of the replica.
    pub fn lasting(error: SourceError) -> Failure {
        Failure {
            error,
            may_retry: false,
        }
    }
}

impl Source {
    pub fn new(source: &SegmentSource) -> Source {
        Source {
            replica: ReplicaId {
                log: ServerId(source.log),
                segment_id: source.segment_id,
            },
            bytes: source.bytes,
            backups: source.backups.iter().copied().map(ServerId).collect(),
            offset: 0,
            idle_answers: 0,
            tried: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.offset >= self.bytes
    }

    /// Backups to ask, the best first: those that were not asked yet; after all were, those that may do better.
    pub fn candidates(&self) -> Vec<ServerId> {
        let fresh = self.backups.iter().copied().filter(|&id| {
            let mut tried = self.tried.iter();
            tried.all(|tried| tried.backup != id)
        });
        let fresh: Vec<ServerId> = fresh.collect();
        if !fresh.is_empty() {
            return fresh;
        }
        let again = self
            .tried
            .iter()
            .filter(|tried| tried.may_retry && tried.count < 2);
        again.map(|tried| tried.backup).collect()
    }

    /// Whether this is the last time that this backup is asked, so that patience is worth it.
    pub fn is_last_chance(&self, backup: ServerId) -> bool {
        self.tried.iter().any(|tried| tried.backup == backup)
    }

    /// The segment is read anew, from somebody else: replaying some of it twice does no harm.
    pub fn failed(&mut self, backup: ServerId, failure: Failure) {
        self.offset = 0;
        self.idle_answers = 0;
        let Failure { error, may_retry } = failure;
        if let Some(tried) = self.tried.iter_mut().find(|tried| tried.backup == backup) {
            tried.count += 1;
            tried.error = error;
            tried.may_retry = may_retry;
        } else {
            self.tried.push(Tried {
                backup,
                count: 1,
                error,
                may_retry,
            });
        }
    }

    /// Looks at an answer before it is replayed.
    pub fn check(&mut self, next_offset: u32, data: &[u8]) -> Result<(), Failure> {
        if next_offset > self.bytes {
            let found_bytes = self.bytes;
            return Err(Failure::lasting(SourceError::TooLong { found_bytes }));
        }
        if next_offset < self.offset {
            return Err(Failure::lasting(SourceError::NotAsked));
        }
        if self.offset == 0 && next_offset > 0 {
            self.check_header(data)?;
        }
        if next_offset == self.offset {
            self.idle_answers += 1;
            if self.idle_answers > MAX_IDLE_ANSWERS || !data.is_empty() {
                return Err(Failure::lasting(SourceError::GivesNothing {
                    beyond: next_offset,
                    bytes: self.bytes,
                }));
            }
        }
        Ok(())
    }

    /// Every segment starts with its header, which every filter lets pass.
    fn check_header(&self, data: &[u8]) -> Result<(), Failure> {
        let header = RawEntry::read_checked(data).and_then(|entry| entry.decode());
        match header {
            Ok(SegmentHeader {
                server_id,
                segment_id,
                ..
            }) if server_id == self.replica.log && segment_id == self.replica.segment_id => Ok(()),
            Ok(other) => Err(Failure::lasting(SourceError::OtherSegment {
                segment_id: other.segment_id,
                log: other.server_id,
            })),
            Err(error) => Err(Failure::lasting(SourceError::NoHeader(error))),
        }
    }

    /// What was read up to here is replayed.
    pub fn advance(&mut self, next_offset: u32) {
        if next_offset > self.offset {
            self.idle_answers = 0;
        }
        self.offset = next_offset;
    }

    /// Why nobody is left to ask.
    pub fn complaint(&self) -> RecoveryError {
        let tried = self.tried.iter();
        RecoveryError::Unreadable {
            replica: self.replica,
            tried: tried.map(|tried| (tried.backup, tried.error)).collect(),
        }
    }
}
