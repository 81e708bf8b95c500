//! Which backups there are, as masters were told.

use wire::member::{Backup, BackupReport, Backups, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::reports::MemberEvent;
use crate::store::Store;

/// What masters were told of backups.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// Last.
    list: Vec<Backup>,
    /// How often they were told something new.
    number: u64,
    /// No backup had a free frame when one last reported.
    are_full: bool,
}

impl Announced {
    /// Backups that masters know of.
    pub fn list(&self) -> &[Backup] {
        &self.list
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// All shards learn of backups that have come or gone; `newcomer`, a connection that was just welcomed, of all.
    pub fn announce(
        &mut self,
        store: &mut Store,
        newcomer: Option<u64>,
        out: &mut impl CoordinatorEffects,
    ) {
        let enlisted = store.members.enlisted();
        let backups: Vec<Backup> = enlisted
            .filter_map(|(server, member)| {
                let report = server.backup.as_ref()?;
                Some(Backup {
                    server_id: server.id.0,
                    host_id: member.host_id.clone(),
                    domain: server.domain.clone(),
                    locator: server.backup_locator.clone(),
                    segment_bytes: report.segment_bytes,
                    is_retired: !report.retired.is_empty(),
                    is_draining: member.is_draining,
                    is_last_resort: member.is_last_resort,
                })
            })
            .collect();
        let is_new = backups != self.list;
        self.number += u64::from(is_new);
        let message = ToShard::from(coordinator::Kind::Backups(Backups {
            backups: backups.clone(),
            number: self.number,
        }));
        self.list = backups;
        if is_new {
            for (_, _, link) in store.members.linked() {
                link.note_told();
                out.send_member(link.connection, message.clone());
            }
        } else if let Some(connection) = newcomer
            && self.number > 0
        {
            out.send_member(connection, message);
        }
    }

    /// A backup has opened its storage, or something about it has changed. Answers the logs that it has something of.
    pub fn report(
        &mut self,
        store: &mut Store,
        index: u32,
        mut report: BackupReport,
        out: &mut impl CoordinatorEffects,
    ) -> Option<Vec<u64>> {
        let logs = std::mem::take(&mut report.logs);
        let server = store.members.server_mut(index)?;
        let before = server.backup.replace(report);
        let id = server.id;
        if let Some(BackupReport { retired, .. }) = &server.backup
            && !retired.is_empty()
            && before
                .as_ref()
                .is_none_or(|before| before.retired.is_empty())
        {
            let event = MemberEvent::BackupRetired {
                server: id,
                why: retired.clone(),
            };
            out.report(event.into());
        }
        if let Some(BackupReport { stalled, .. }) = &server.backup {
            let before = before.map(|before| before.stalled).unwrap_or_default();
            if before.is_empty() && !stalled.is_empty() {
                let event = MemberEvent::StorageStopped {
                    server: id,
                    why: stalled.clone(),
                };
                out.report(event.into());
            } else if !before.is_empty() && stalled.is_empty() {
                out.report(MemberEvent::StorageGoesOn { server: id }.into());
            }
        }
        self.announce(store, None, out);
        Some(logs)
    }

    /// Says so when the last free frame of all backups is taken: writes wait from then on, and so does what a recovery has brought back.
    pub fn look_for_full(&mut self, store: &Store, out: &mut impl CoordinatorEffects) {
        let enlisted = store.members.enlisted();
        let reports = enlisted.filter_map(|(server, _)| server.backup.as_ref());
        let usable: Vec<&BackupReport> =
            reports.filter(|report| report.retired.is_empty()).collect();
        let frames: u64 = usable.iter().map(|report| u64::from(report.frames)).sum();
        let are_full = frames > 0 && usable.iter().all(|report| report.frames_free == 0);
        if are_full && !std::mem::replace(&mut self.are_full, are_full) {
            let backups = usable.len();
            out.report(MemberEvent::BackupsFull { frames, backups }.into());
        }
        self.are_full = are_full;
    }
}
