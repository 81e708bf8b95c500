//! Connections to backups for reading, and the requests on them.

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use trace::Event;
use wire::member::TabletRange;
use wire::peer::ReadEntries;

use super::source::Source;
use crate::effects::{Channel, ShardEffects};

/// Bytes of entries that are asked for at once, and the same as a part of a segment: in stores with small segments, as simulated ones have, these
/// come in several pieces as well.
const PIECE_BYTES: u32 = 256 << 10;
const PIECES_OF_SEGMENT: u32 = 4;
/// Pieces under way, or waiting for memory, of all recoveries together.
pub(super) const MAX_PIECES: usize = 16;
/// Of those, from one backup.
const MAX_PIECES_OF_BACKUP: usize = 4;
/// A backup that has not answered for so long is left alone if there is another. It may have a disk, and many who ask.
const SLOW: Duration = Duration::from_secs(3);
/// The same if there is no other.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Reader(BTreeMap<ServerId, BackupConnection>);

#[derive(Default)]
struct BackupConnection {
    is_up: bool,
    last_nonce: u64,
    under_way: Vec<Piece>,
}

/// What of a segment is asked for.
pub(super) struct Wanted<'a> {
    pub recovery_id: u64,
    pub tablets: &'a [TabletRange],
    pub segment_bytes: u32,
}

/// A piece of a segment that was asked for.
pub(super) struct Piece {
    pub recovery_id: u64,
    pub source: Source,
    /// 0: not sent yet.
    nonce: u64,
    deadline: Time,
    /// What is to be sent when the connection is there.
    request: Vec<u8>,
}

impl Reader {
    pub fn piece_count(&self) -> usize {
        self.0.values().map(|link| link.under_way.len()).sum()
    }

    pub fn is_reading_for(&self, recovery_id: u64) -> bool {
        let mut pieces = self.0.values().flat_map(|link| &link.under_way);
        pieces.any(|piece| piece.recovery_id == recovery_id)
    }

    pub fn has_room(&self, backup: ServerId) -> bool {
        let link = self.0.get(&backup);
        link.is_none_or(|link| link.under_way.len() < MAX_PIECES_OF_BACKUP)
    }

    /// Asks for the next piece of a segment.
    pub fn ask(
        &mut self,
        now: Time,
        (backup, locator): (ServerId, &str),
        wanted: &Wanted<'_>,
        source: Source,
        out: &mut impl ShardEffects,
    ) {
        let link = self.0.entry(backup).or_insert_with(|| {
            out.connect_backup(Channel::Recovery, backup, locator);
            BackupConnection::default()
        });
        trace::record(Event::RecoveryAsked, source.replica.segment_id);
        let mut request = Vec::new();
        ReadEntries::encode(
            source.replica,
            source.offset,
            PIECE_BYTES.min(wanted.segment_bytes / PIECES_OF_SEGMENT),
            wanted.tablets,
            &mut request,
        );
        let patience = if source.is_last_chance(backup) {
            PATIENCE
        } else {
            SLOW
        };
        link.under_way.push(Piece {
            recovery_id: wanted.recovery_id,
            source,
            nonce: 0,
            deadline: now + patience,
            request,
        });
        link.send_waiting(backup, out);
    }

    pub fn connected(&mut self, backup: ServerId, out: &mut impl ShardEffects) {
        if let Some(link) = self.0.get_mut(&backup) {
            link.is_up = true;
            link.send_waiting(backup, out);
        }
    }

    /// The connection is gone; what was under way on it.
    pub fn disconnected(&mut self, backup: ServerId) -> Vec<Piece> {
        let link = self.0.remove(&backup);
        link.map_or_else(Vec::new, |link| link.under_way)
    }

    /// Ends a connection; what was under way on it.
    pub fn disconnect(&mut self, backup: ServerId, out: &mut impl ShardEffects) -> Vec<Piece> {
        if self.0.contains_key(&backup) {
            out.disconnect_backup(Channel::Recovery, backup);
        }
        self.disconnected(backup)
    }

    /// What is answered with this; nothing, if nobody waits for it any more.
    pub fn answered(&mut self, backup: ServerId, nonce: u64) -> Option<Piece> {
        let pieces = &mut self.0.get_mut(&backup)?.under_way;
        let at = pieces.iter().position(|piece| piece.nonce == nonce)?;
        Some(pieces.swap_remove(at))
    }

    /// Pieces for which nobody waits any longer, and who did not send them.
    pub fn take_late(&mut self, now: Time) -> Vec<(ServerId, Piece)> {
        let mut late = Vec::new();
        for (&backup, link) in &mut self.0 {
            let is_late = |piece: &mut Piece| piece.deadline <= now;
            late.extend(
                link.under_way
                    .extract_if(.., is_late)
                    .map(|piece| (backup, piece)),
            );
        }
        late
    }

    pub fn next_deadline(&self) -> Time {
        let pieces = self.0.values().flat_map(|link| &link.under_way);
        let deadlines = pieces.map(|piece| piece.deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }

    /// A recovery has ended: its answers are not waited for.
    pub fn forget(&mut self, recovery_id: u64) {
        for link in self.0.values_mut() {
            link.under_way
                .retain(|piece| piece.recovery_id != recovery_id);
        }
    }

    pub fn backups(&self) -> Vec<ServerId> {
        self.0.keys().copied().collect()
    }

    /// Nothing more is to be read.
    pub fn close(&mut self, out: &mut impl ShardEffects) {
        // Every tick comes here.
        if self.0.is_empty() {
            return;
        }
        for (backup, _) in std::mem::take(&mut self.0) {
            out.disconnect_backup(Channel::Recovery, backup);
        }
    }
}

impl BackupConnection {
    fn send_waiting(&mut self, backup: ServerId, out: &mut impl ShardEffects) {
        if !self.is_up {
            return;
        }
        for piece in self.under_way.iter_mut().filter(|piece| piece.nonce == 0) {
            self.last_nonce += 1;
            piece.nonce = self.last_nonce;
            let request = std::mem::take(&mut piece.request);
            out.send_backup(Channel::Recovery, backup, piece.nonce, &[&request]);
        }
    }
}
