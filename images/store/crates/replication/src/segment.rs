//! One segment and its replicas.

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use wire::peer::Role;

#[derive(Debug)]
pub struct Segment {
    pub role: Role,
    /// The log adds nothing to it any more.
    pub is_closed: bool,
    /// The log was told that all replicas are closed.
    pub is_settled: bool,
    pub replicas: Vec<Replica>,
    pub sums: Sums,
}

/// Checksums of a segment's beginnings, each with its length.
#[derive(Debug, Default)]
pub struct Sums {
    /// The one that was computed last.
    pub newest: (u32, u32),
    /// Length and checksum of the whole, once it is closed and they are known.
    pub complete: Option<(u32, u32)>,
}

#[derive(Debug)]
pub struct Replica {
    pub backup: ServerId,
    /// [`Role::Side`] for a copy that was begun when the segment was no open head any more.
    pub role: Role,
    pub sent_bytes: u32,
    /// Checksum of that.
    pub sent_crc: u32,
    pub acked_bytes: u32,
    /// Checksum of that.
    pub acked_crc: u32,
    /// When the request went out that opens it.
    pub open_sent: Option<Time>,
    pub close_sent: bool,
    pub is_closed: bool,
}

impl Replica {
    pub fn new(backup: ServerId, role: Role) -> Replica {
        Replica {
            backup,
            role,
            sent_bytes: 0,
            sent_crc: 0,
            acked_bytes: 0,
            acked_crc: 0,
            open_sent: None,
            close_sent: false,
            is_closed: false,
        }
    }

    /// An open head that its backup holds already, from when it was another server. What it has promised then is over.
    pub fn of_open_head(backup: ServerId) -> Replica {
        Replica {
            open_sent: Some(Time::ZERO),
            ..Replica::new(backup, Role::Head)
        }
    }

    /// A complete one that its backup has been found to hold.
    pub fn found(backup: ServerId, bytes: u32, crc: u32) -> Replica {
        Replica {
            backup,
            role: Role::Side,
            sent_bytes: bytes,
            sent_crc: crc,
            acked_bytes: bytes,
            acked_crc: crc,
            open_sent: Some(Time::ZERO),
            close_sent: true,
            is_closed: true,
        }
    }

    /// Its backup holds everything up to `end`.
    pub fn acknowledged(&mut self, end: u32, crc: u32) {
        if end > self.acked_bytes {
            (self.acked_bytes, self.acked_crc) = (end, crc);
        }
    }

    /// What was not acknowledged may have arrived or not: it is sent once more.
    pub fn resume(&mut self) {
        if is_planted(Bug::TakeSentForHeld) {
            self.acked_bytes = self.sent_bytes;
            self.acked_crc = self.sent_crc;
        }
        (self.sent_bytes, self.sent_crc) = (self.acked_bytes, self.acked_crc);
        self.close_sent = false;
    }

    /// Everything is sent once more; its backup passes over what it holds.
    pub fn start_again(&mut self) {
        (self.sent_bytes, self.sent_crc, self.close_sent) = (0, 0, false);
    }

    /// Its backup has said that it is there. What opens a replica carries data.
    pub fn is_open(&self) -> bool {
        self.acked_bytes > 0
    }

    /// Its backup has never said that anything of it is there: no answer, and no list either ([`Replica::of_open_head`]).
    pub fn may_be_absent(&self) -> bool {
        !self.is_open() && self.open_sent != Some(Time::ZERO)
    }

    /// A recovery could take it for the newest head.
    pub fn is_candidate(&self) -> bool {
        self.role == Role::Head && self.open_sent.is_some() && !self.is_closed
    }
}

impl Sums {
    /// Of everything up to `end`, where `data` are the last bytes of it and `before` is the checksum of those before them; computed once for all
    /// replicas that get the same.
    pub fn up_to(&mut self, end: u32, before: u32, data: &[u8]) -> u32 {
        if self.newest.0 != end {
            self.newest = (end, crc32c::crc32c_append(before, data));
        }
        self.newest.1
    }
}

impl Segment {
    pub fn new(role: Role) -> Segment {
        Segment {
            role,
            is_closed: false,
            is_settled: false,
            replicas: Vec::new(),
            sums: Sums::default(),
        }
    }

    /// Whether it shall have replicas already: side segments get them when they are complete, for nobody waits for them.
    pub fn is_awaited(&self) -> bool {
        self.role == Role::Head || self.is_closed
    }

    pub fn replica(&self, backup: ServerId) -> Option<&Replica> {
        let mut replicas = self.replicas.iter();
        replicas.find(|replica| replica.backup == backup)
    }

    pub fn replica_mut(&mut self, backup: ServerId) -> Option<&mut Replica> {
        self.replicas
            .iter_mut()
            .find(|replica| replica.backup == backup)
    }

    pub fn all_open(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.iter().all(Replica::is_open)
    }

    /// All of its backups have opened it as a head, as which a recovery could take it.
    pub fn is_open_head(&self) -> bool {
        self.all_open()
            && self
                .replicas
                .iter()
                .all(|replica| replica.role == Role::Head)
    }

    pub fn all_closed(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.iter().all(|replica| replica.is_closed)
    }

    /// What all replicas hold.
    pub fn acked_bytes(&self) -> u32 {
        let acked = self.replicas.iter().map(|replica| replica.acked_bytes);
        if is_planted(Bug::AcknowledgeBeforeLastReplica) {
            return acked.max().unwrap_or(0);
        }
        acked.min().unwrap_or(0)
    }
}
