//! What recoveries read, and what becomes of it.

use super::*;

impl Recoveries {
    pub fn source_connected(&mut self, backup: ServerId, out: &mut impl ShardEffects) {
        self.reader.connected(backup, out);
    }

    pub fn source_disconnected(
        &mut self,
        store: &mut Store,
        backups: &KnownBackups,
        now: Time,
        backup: ServerId,
        out: &mut impl ShardEffects,
    ) {
        let pieces = self.reader.disconnected(backup);
        self.not_read(pieces, backup, SourceError::Disconnected);
        self.read_more(store, backups, now, out);
    }

    /// Backups that the coordinator does not name any more are lost.
    pub fn forget_lost_sources(
        &mut self,
        store: &mut Store,
        backups: &KnownBackups,
        now: Time,
        out: &mut impl ShardEffects,
    ) {
        let mut lost = self.reader.backups();
        lost.retain(|&backup| backups.locator(backup).is_none());
        for lost in lost {
            let pieces = self.reader.disconnect(lost, out);
            self.not_read(pieces, lost, SourceError::Down);
        }
        self.read_more(store, backups, now, out);
    }

    /// Reads these pieces from others.
    fn not_read(&mut self, pieces: Vec<Piece>, backup: ServerId, error: SourceError) {
        for mut piece in pieces {
            piece.source.failed(backup, Failure::passing(error));
            self.put_back(piece.recovery_id, piece.source);
        }
    }

    fn put_back(&mut self, recovery_id: u64, source: Source) {
        if let Some(at) = self.position(recovery_id) {
            self.active[at].sources.push(source);
        }
    }

    /// `nonce` is that of the question.
    pub fn source_answer(
        &mut self,
        store: &mut Store,
        backups: &KnownBackups,
        now: Time,
        (backup, nonce): (ServerId, u64),
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        let Some(piece) = self.reader.answered(backup, nonce) else {
            return;
        };
        let Piece {
            recovery_id,
            mut source,
            ..
        } = piece;
        match Entries::decode(payload) {
            Ok(entries) => match check(&mut source, &entries) {
                Ok(()) => {
                    let read = Read {
                        backup,
                        source,
                        next_offset: entries.next_offset,
                    };
                    // Replayed by the next ticks, one after the other: clients must not wait for all that came at once.
                    if let Some(at) = self.position(recovery_id) {
                        let kept = &mut self.active[at].kept;
                        kept.push_back((read, entries.data.to_vec()));
                    }
                }
                Err(failure) => {
                    source.failed(backup, failure);
                    self.put_back(recovery_id, source);
                }
            },
            Err(error) => {
                out.report(RecoveryEvent::UnreadableAnswer { backup, error }.into());
                source.failed(backup, Failure::lasting(SourceError::Malformed));
                self.put_back(recovery_id, source);
                let pieces = self.reader.disconnect(backup, out);
                self.not_read(pieces, backup, SourceError::Malformed);
            }
        }
        self.read_more(store, backups, now, out);
    }

    /// Replays what was read; what finds no memory is kept.
    fn replay_read(
        &mut self,
        store: &mut Store,
        now: Time,
        recovery_id: u64,
        mut read: Read,
        data: Vec<u8>,
        out: &mut impl ShardEffects,
    ) {
        let Some(at) = self.position(recovery_id) else {
            return;
        };
        let recovery = &mut self.active[at];
        let Some(replay) = &mut recovery.replay else {
            return;
        };
        let starving_since = recovery.starving_since.take();
        let full = match store.replay(replay, &data) {
            Ok(()) => {
                trace::record(Event::RecoveryReplayed, read.source.replica.segment_id);
                recovery.bytes_read += data.len() as u64;
                read.source.advance(read.next_offset);
                if !read.source.is_done() {
                    recovery.sources.push(read.source);
                }
                return;
            }
            Err(ReplayError::Damaged { error, .. }) => {
                let error = SourceError::DamagedEntry(error);
                read.source.failed(read.backup, Failure::lasting(error));
                recovery.sources.push(read.source);
                return;
            }
            Err(ReplayError::NoRoom(NoRoom::Cleaning)) => {
                recovery.starving_since = Some(starving_since.unwrap_or(now));
                recovery.kept.push_front((read, data));
                return;
            }
            Err(ReplayError::NoRoom(NoRoom::Full)) => NoRoomHere::Log,
            Err(ReplayError::TableFull) => NoRoomHere::Tables,
        };
        self.fail_recovery(store, at, RecoveryError::NoRoom(full), out);
    }

    /// Does what is due for recoveries; when to come again though nothing happens.
    pub fn tend(
        &mut self,
        store: &mut Store,
        backups: &KnownBackups,
        now: Time,
        out: &mut impl ShardEffects,
    ) -> Time {
        if self.active.iter().all(|one| one.is_complete) {
            self.reader.close(out);
            return Time::NEVER;
        }
        for (backup, piece) in self.reader.take_late(now) {
            self.not_read(vec![piece], backup, SourceError::Late);
        }
        let ids: Vec<u64> = self.active.iter().map(|one| one.id).collect();
        for id in ids {
            self.begin_recovery(store, now, id, out);
        }
        self.replay_kept(store, now, out);
        let ids: Vec<u64> = self.active.iter().map(|one| one.id).collect();
        for id in ids {
            self.lose_patience(store, now, id, out);
        }
        self.read_more(store, backups, now, out);
        self.next_replay(now).min(self.reader.next_deadline())
    }

    /// Begins to replay, unless that has begun or something is in the way.
    fn begin_recovery(
        &mut self,
        store: &mut Store,
        now: Time,
        id: u64,
        out: &mut impl ShardEffects,
    ) {
        let Some(at) = self.position(id) else {
            return;
        };
        let recovery = &mut self.active[at];
        recovery.waits_for_purge &= store.has_purge();
        if recovery.replay.is_some() || recovery.waits_for_purge {
            return;
        }
        match store.begin_replay(recovery.filter.clone()) {
            Ok(replay) => {
                recovery.replay = Some(replay);
                recovery.starving_since = None;
            }
            Err(NoRoom::Cleaning) => {
                recovery.starving_since.get_or_insert(now);
            }
            Err(NoRoom::Full) => {
                self.fail_recovery(store, at, RecoveryError::NoRoom(NoRoomHere::Log), out)
            }
        }
    }

    /// Replays some pieces, of all recoveries in turn; those that wait for memory try it again with each tick.
    fn replay_kept(&mut self, store: &mut Store, now: Time, out: &mut impl ShardEffects) {
        let mut left = PIECES_AT_ONCE;
        let kept = |one: &Recovery| one.kept.len().min(PIECES_AT_ONCE) + 1;
        let most: usize = self.active.iter().map(kept).sum();
        for _ in 0..most {
            let Recoveries { active, turn, .. } = self;
            *turn = if *turn + 1 < active.len() {
                *turn + 1
            } else {
                0
            };
            let Some(recovery) = active.get_mut(*turn) else {
                return;
            };
            let Some((read, data)) = recovery.kept.pop_front() else {
                continue;
            };
            let id = recovery.id;
            self.replay_read(store, now, id, read, data, out);
            let at = self.position(id);
            if at.is_none_or(|at| self.active[at].starving_since.is_none()) {
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }

    fn lose_patience(
        &mut self,
        store: &mut Store,
        now: Time,
        id: u64,
        out: &mut impl ShardEffects,
    ) {
        if let Some(at) = self.position(id)
            && let Some(since) = self.active[at].starving_since
            && since + PATIENCE_FOR_MEMORY <= now
        {
            let error = RecoveryError::NoRoom(NoRoomHere::LogForLong);
            self.fail_recovery(store, at, error, out);
        }
    }

    /// Asks for as much as may be under way.
    pub(super) fn read_more(
        &mut self,
        store: &mut Store,
        backups: &KnownBackups,
        now: Time,
        out: &mut impl ShardEffects,
    ) {
        let mut at = 0;
        while at < self.active.len() {
            let Recoveries { active, reader, .. } = self;
            let kept: usize = active.iter().map(|recovery| recovery.kept.len()).sum();
            let recovery = &mut active[at];
            let mut failed = None;
            while reader.piece_count() + kept < MAX_PIECES {
                let is_known = |backup| backups.locator(backup).is_some();
                let has_room = |backup| reader.has_room(backup);
                match recovery.next_source(is_known, has_room) {
                    Ok(Some((source, backup))) => {
                        let locator = backups.locator(backup).unwrap_or_default();
                        let wanted = Wanted {
                            recovery_id: recovery.id,
                            tablets: &recovery.filter,
                            segment_bytes: store.log.segment_bytes(),
                        };
                        reader.ask(now, (backup, locator), &wanted, source, out);
                    }
                    Ok(None) => break,
                    Err(why) => {
                        failed = Some(why);
                        break;
                    }
                }
            }
            if let Some(failed) = failed {
                self.fail_recovery(store, at, failed, out);
                continue;
            }
            if recovery.is_through() && !reader.is_reading_for(recovery.id) {
                self.complete_recovery(store, now, at, out);
            }
            at += 1;
        }
    }

    fn complete_recovery(
        &mut self,
        store: &mut Store,
        now: Time,
        at: usize,
        out: &mut impl ShardEffects,
    ) {
        let recovery = &mut self.active[at];
        let Some(replay) = &mut recovery.replay else {
            return;
        };
        store.complete_replay(replay);
        trace::record(Event::RecoveryComplete, recovery.id);
        recovery.is_complete = true;
        let (id, took) = (recovery.id, now.since(recovery.began));
        let (bytes, objects) = (recovery.bytes_read, replay.stats().objects);
        let event = RecoveryEvent::Replayed {
            recovery: id,
            bytes,
            objects,
            took_ms: took.as_millis(),
        };
        out.report(event.into());
        let recovered = member::Recovered {
            recovery_id: id,
            from_segment: replay.from_segment(),
            failure: String::new(),
            is_full: false,
            bytes,
            objects,
            replay_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        };
        send(shard::Kind::Recovered(recovered), out);
    }
}

/// Looks at an answer before it is replayed.
fn check(source: &mut Source, entries: &Entries<'_>) -> Result<(), Failure> {
    let error = match entries.status {
        Status::Ok => return source.check(entries.next_offset, entries.data),
        Status::Missing => SourceError::Missing,
        Status::Mismatch => SourceError::Damaged,
        Status::Retired => SourceError::Retired,
        Status::Fenced | Status::Full => SourceError::OddStatus,
    };
    Err(Failure::lasting(error))
}
