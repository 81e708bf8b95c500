//! What a backup is to a replicator, without storage: it never forgets what it holds.

use core::time::Duration;
use std::collections::BTreeMap;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use wire::peer::{
    Answer, Append, Held, Listed, Listing, ReplicaId, Request, Role, SERVING_PROMISE, Status,
};

use crate::BackupInfo;

/// To a backup and back, without what jitter adds.
pub const DELAY: Duration = Duration::from_micros(20);

pub struct ModelReplica {
    pub role: Role,
    pub bytes: Vec<u8>,
    pub is_closed: bool,
    pub is_damaged: bool,
    /// Its master was told that it is complete.
    pub was_listed: bool,
    pub is_listed_wrong: bool,
}

impl ModelReplica {
    pub fn is_complete(&self) -> bool {
        self.is_closed && !self.is_damaged
    }

    /// An open head that a recovery believes.
    pub fn is_candidate(&self) -> bool {
        self.role == Role::Head && !self.is_closed && !self.is_damaged
    }

    fn held(&self) -> Held {
        if self.is_complete() {
            Held::Closed {
                bytes: self.bytes.len() as u32,
                crc: crc32c::crc32c(&self.bytes) ^ u32::from(self.is_listed_wrong),
            }
        } else if self.is_candidate() {
            Held::OpenHead
        } else {
            Held::Nothing
        }
    }
}

pub struct ModelBackup {
    pub info: BackupInfo,
    pub is_alive: bool,
    /// Not alive, but its disk is not lost.
    pub is_away: bool,
    pub is_connected: bool,
    pub is_full: bool,
    /// It takes the next replica's beginning, and then nothing: so much is under way there.
    pub stops_after_opening: bool,
    pub is_stopped: bool,
    pub is_retired: bool,
    pub is_fenced: bool,
    pub delay: Duration,
    pub replicas: BTreeMap<u64, ModelReplica>,
    pub promise_until: Time,
}

impl ModelBackup {
    /// The payload of the answer.
    pub fn handle(&mut self, now: Time, payload: &[u8]) -> Vec<u8> {
        let (status, bytes) = match Request::decode(payload).unwrap() {
            Request::Append(append) => self.append(append),
            Request::KeepAlive(_) => (Status::Ok, 0),
            Request::Free(free) => {
                let ReplicaId { segment_id, .. } = free.replica;
                self.replicas.remove(&segment_id);
                (Status::Ok, 0)
            }
            Request::List(_) => return self.list(),
            Request::Read(_) | Request::ReadEntries(_) | Request::MigrateRead(_) => {
                panic!("a replicator reads nothing")
            }
        };
        let status = if self.is_fenced {
            Status::Fenced
        } else {
            status
        };
        let holds_head = self.replicas.values().any(ModelReplica::is_candidate);
        if status == Status::Ok && holds_head {
            self.promise_until = now + SERVING_PROMISE;
        }
        Answer { status, bytes }.to_bytes().to_vec()
    }

    /// Whether the connection is to be closed on which this has come: there is no memory for it.
    pub fn closes_connection(&self, payload: &[u8]) -> bool {
        let Ok(Request::Append(append)) = Request::decode(payload) else {
            return false;
        };
        let is_there = self.replicas.contains_key(&append.replica.segment_id);
        self.is_stopped && is_there && !is_planted(Bug::ForgetOpenReplica)
    }

    fn list(&mut self) -> Vec<u8> {
        let mut listing = Listing {
            status: Status::Ok,
            replicas: Vec::new(),
        };
        if self.is_fenced {
            listing.status = Status::Fenced;
        } else if self.is_retired {
            listing.status = Status::Retired;
        } else {
            for (&segment_id, replica) in &mut self.replicas {
                replica.was_listed |= replica.is_complete() && !replica.is_listed_wrong;
                let held = replica.held();
                listing.replicas.push(Listed { segment_id, held });
            }
        }
        let mut payload = Vec::new();
        listing.encode(&mut payload);
        payload
    }

    fn append(&mut self, append: Append<'_>) -> (Status, u32) {
        let id = append.replica.segment_id;
        if self.is_fenced {
            return (Status::Fenced, 0);
        }
        if self.is_retired {
            return (Status::Retired, 0);
        }
        let is_new = !self.replicas.contains_key(&id);
        if is_new && append.offset > 0 {
            return (Status::Missing, 0);
        }
        if is_new && (self.is_full || self.is_stopped) {
            return (Status::Full, 0);
        }
        if self.is_stopped && is_planted(Bug::ForgetOpenReplica) {
            return (Status::Full, 0);
        }
        self.is_stopped = is_new && self.stops_after_opening;
        let new = || ModelReplica {
            role: append.role,
            bytes: Vec::new(),
            is_closed: false,
            is_damaged: false,
            was_listed: false,
            is_listed_wrong: false,
        };
        let replica = self.replicas.entry(id).or_insert_with(new);
        let (held, offset) = (replica.bytes.len(), append.offset as usize);
        if offset > held {
            return (Status::Missing, held as u32);
        }
        if replica.role != append.role || replica.is_damaged {
            return (Status::Mismatch, 0);
        }
        if let Some(news) = append.data.get(held - offset..) {
            assert!(
                news.is_empty() || !replica.is_closed,
                "an append to a closed replica"
            );
            replica.bytes.extend_from_slice(news);
            assert_eq!(crc32c::crc32c(&replica.bytes), append.crc);
        }
        replica.is_closed |= append.closes;
        (Status::Ok, replica.bytes.len() as u32)
    }
}
