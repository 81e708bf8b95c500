//! The state of a backup, and the requests that are answered at once.

use std::collections::{BTreeMap, BTreeSet};

use base::bugs::{Bug, is_planted};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::peer::{
    Answer, Free, Held, KeepAlive, List, Listed, Listing, ReplicaId, Role, SERVING_PROMISE, Status,
};

use crate::checkpoint::CHECKPOINT_LOG;
use crate::commit::Commit;

use crate::config::Config;
use crate::device::Device;
use crate::disk::StorageError;
use crate::effects::BackupEffects;
use crate::event::{BackupEvent, Stall};
use crate::fencing::Fencing;
use crate::frame::{Frame, Frames};
use crate::jobs::Jobs;
use crate::record::Damage;
use crate::storage::Storage;
use crate::unwritten::Unwritten;

/// What a backup has counted since it was opened, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub frames_free: u32,
    /// Given back, and free with the next sync.
    pub frames_freeing: u32,
    pub frames_open: u32,
    pub frames_closed: u32,
    /// Headers that cannot be read. With the four above, these are all frames.
    pub frames_unusable: u32,
    /// Open and closed ones whose data is known to be lost or wrong.
    pub frames_damaged: u32,
    pub fences: u32,
    pub appends: u64,
    pub bytes_appended: u64,
    pub syncs: u64,
    /// Why nothing new is accepted.
    pub retired: Option<String>,
    /// The operation that the storage takes too long for.
    pub stalled: Option<&'static str>,
}

/// Frames on a storage, and who may write to them. Its driver calls [`Backup::tick`] after every batch of other calls, and at
/// the time that it returned.
pub struct Backup<S> {
    pub(crate) config: Config,
    pub(crate) device: Device<S>,
    pub(crate) frames: Frames,
    pub(crate) replicas: BTreeMap<ReplicaId, u32>,
    /// The lowest is taken first: what is still in the page cache is overwritten there, and never goes to the disk.
    pub(crate) free: BTreeSet<u32>,
    /// Free once that is durable.
    pub(crate) freeing: BTreeSet<u32>,
    /// Until when a log is not released. Those that are over are dropped now and then.
    pub(crate) promises: BTreeMap<ServerId, Time>,
    pub(crate) forget_promises_at: Time,
    pub(crate) fencing: Fencing,
    /// Logs to release, each when so many syncs of the frames have been completed.
    pub(crate) recovering: BTreeMap<ServerId, u64>,
    /// Logs that are released as soon as their open replicas have been looked at.
    pub(crate) inspecting: BTreeSet<ServerId>,
    /// Replicas of fenced logs are being written once more.
    pub(crate) is_rewriting: bool,
    /// Answers to what is being written.
    pub(crate) unwritten: Unwritten,
    pub(crate) jobs: Jobs,
    pub(crate) stalled: Option<Stall>,
    pub(crate) commit: Commit,
    pub(crate) opened_at: Time,
    /// To be reported at the next opportunity.
    pub(crate) unreported: Vec<BackupEvent>,
    pub(crate) retired: Option<String>,
    /// That it has retired was written to the superblock a second time.
    pub(crate) is_noted_again: bool,
    pub(crate) appends: u64,
    pub(crate) bytes_appended: u64,
    /// Numbers of the whole ones, the newest last.
    pub(crate) checkpoints: Vec<u64>,
}

impl<S: Storage> Backup<S> {
    /// Asks for the promise alone. The log must have an open head here: nothing else needs it.
    pub fn keep_alive(
        &mut self,
        now: Time,
        keep_alive: KeepAlive,
        to: ReplyTo,
        out: &mut impl BackupEffects,
    ) {
        let log = keep_alive.log;
        let status = if let Err(status) = self.may_write(log) {
            status
        } else if self.has_open_head(log) {
            self.promise(now, log);
            Status::Ok
        } else {
            Status::Missing
        };
        out.answer(to, Answer { status, bytes: 0 });
    }

    /// From now on new replicas are taken while fewer bytes of writes than these are under way, not as many as usual; and those that are here while fewer
    /// than twice as many are.
    pub fn bound_under_way(&mut self, bytes: usize) {
        self.device.flight.bound(bytes);
    }

    /// Gives a frame back, if the replica has one. The answer waits until that is written, and not for a sync: a freed replica that a crash brings
    /// back is below the open floor, or in no digest. In `Flushed` mode the frame is taken again only after one.
    pub fn free(&mut self, now: Time, free: Free, to: ReplyTo, out: &mut impl BackupEffects) {
        let replica = free.replica;
        self.device.now = now;
        if let Err(status) = self.may_write(replica.log) {
            return out.answer(to, Answer { status, bytes: 0 });
        }
        if let Some(&number) = self.replicas.get(&replica) {
            self.free_frame(number);
        }
        self.answer_written((to, replica.log, 0), out);
    }

    /// All replicas of a log here, for its master. Of the closed ones it learns what they hold, once no crash takes that any more.
    pub fn list(&self, list: List) -> Listing {
        if let Err(status) = self.may_write(list.log) {
            return Listing {
                status,
                replicas: Vec::new(),
            };
        }
        let listed = |(replica, number): (ReplicaId, u32)| Listed {
            segment_id: replica.segment_id,
            held: self.held(number),
        };
        Listing {
            status: Status::Ok,
            replicas: self.of_log(list.log).map(listed).collect(),
        }
    }

    fn held(&self, number: u32) -> Held {
        let frame = &self.frames[number];
        let content = frame.content().expect("a frame in use");
        let is_safe = match self.config.durability.is_flushed() {
            true => frame.newest_is_safe(&self.device),
            false => self.device.flight.has_ended(frame.written_by()),
        };
        if content.damage.is_some() {
            Held::Nothing
        } else if content.closed && is_safe {
            let (bytes, crc) = (content.bytes, content.crc);
            Held::Closed { bytes, crc }
        } else if content.role == Role::Head {
            Held::OpenHead
        } else {
            Held::Nothing
        }
    }

    /// Its recovery is complete everywhere: all frames of the log are free.
    pub fn forget_log(&mut self, now: Time, log: ServerId) {
        self.device.now = now;
        self.recovering.remove(&log);
        self.inspecting.remove(&log);
        if self.retired.is_some() {
            return;
        }
        let numbers: Vec<u32> = self.of_log(log).map(|(_, number)| number).collect();
        for number in numbers {
            self.free_frame(number);
        }
    }

    /// Logs that have frames here, in order; the coordinator knows which of them are still needed.
    pub fn logs(&self) -> impl Iterator<Item = ServerId> {
        let mut last = None;
        self.replicas
            .keys()
            .map(|replica| replica.log)
            .filter(move |&log| log != CHECKPOINT_LOG && last.replace(log) != Some(log))
    }

    /// Segments of a log that have a frame here, in order: its master may free what it does not need, when this backup comes back.
    pub fn segments(&self, log: ServerId) -> impl Iterator<Item = u64> {
        self.of_log(log).map(|(replica, _)| replica.segment_id)
    }

    /// The store's format is this one from now on: whoever opens the storage next has to read it.
    pub fn activate(&mut self, format: u32) {
        if format > self.config.format {
            self.config.format = format;
            self.fencing.changed();
        }
    }

    /// Looks at every frame: for now and then.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            frames_free: self.free.len() as u32,
            frames_freeing: self.freeing.len() as u32,
            fences: self.fencing.fences.len() as u32,
            appends: self.appends,
            bytes_appended: self.bytes_appended,
            syncs: self.device.syncs.completed,
            retired: self.retired.clone(),
            stalled: self.stalled(),
            ..Stats::default()
        };
        for frame in self.frames.iter() {
            match frame.map(Frame::content) {
                None => stats.frames_unusable += 1,
                Some(None) => {}
                Some(Some(content)) => {
                    if content.closed {
                        stats.frames_closed += 1;
                    } else {
                        stats.frames_open += 1;
                    }
                    stats.frames_damaged += u32::from(content.damage.is_some());
                }
            }
        }
        stats
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn storage(&self) -> &S {
        &self.device.storage
    }

    /// For the driver's own purposes; what it writes to it is lost, or worse.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.device.storage
    }

    /// Lets go of the storage as it is, as a crash would.
    pub fn into_storage(self) -> S {
        self.device.storage
    }

    pub(crate) fn of_log(&self, log: ServerId) -> impl Iterator<Item = (ReplicaId, u32)> {
        let [first, last] = [0, u64::MAX].map(|segment_id| ReplicaId { log, segment_id });
        self.replicas
            .range(first..=last)
            .map(|(&replica, &number)| (replica, number))
    }

    pub(crate) fn may_write(&self, log: ServerId) -> Result<(), Status> {
        if self.fencing.fences.covers(log) && !is_planted(Bug::AppendAfterFencing) {
            Err(Status::Fenced)
        } else if self.retired.is_some() {
            Err(Status::Retired)
        } else {
            Ok(())
        }
    }

    pub(crate) fn promise(&mut self, now: Time, log: ServerId) {
        let until = now + SERVING_PROMISE;
        let promised = self.promises.entry(log).or_insert(until);
        *promised = until.max(*promised);
    }

    fn has_open_head(&self, log: ServerId) -> bool {
        self.of_log(log).any(|(_, number)| {
            self.frames[number].content().is_some_and(|content| {
                content.role == Role::Head && !content.closed && content.damage.is_none()
            })
        })
    }

    pub(crate) fn free_frame(&mut self, number: u32) {
        let frame = &mut self.frames[number];
        let replica = frame.content().expect("a frame in use").replica;
        frame.free(&mut self.device);
        let removed = self.replicas.remove(&replica);
        assert_eq!(removed, Some(number), "the index has one frame per replica");
        // What power brings back must be whole: its data is overwritten when no crash can bring it back any more. Without power
        // nothing open is believed that was only buffered, so there is nothing to wait for.
        let is_new = if self.config.durability.is_flushed() {
            self.freeing.insert(number)
        } else {
            self.free.insert(number)
        };
        assert!(is_new, "a frame is freed once");
        self.commit.unsettled.insert(number);
    }

    pub(crate) fn name_damage(&mut self, number: u32, damage: Damage) {
        let frame = &mut self.frames[number];
        if frame.damage(damage)
            && let Some(content) = frame.content()
        {
            let replica = content.replica;
            self.unreported.push(BackupEvent::ReplicaDamaged {
                frame: number,
                replica,
                damage,
            });
        }
    }

    /// The storage is not trusted with anything new.
    pub(crate) fn retire(&mut self, error: &StorageError, out: &mut impl BackupEffects) {
        if self.retired.is_none() {
            out.report(BackupEvent::Retired {
                error: error.clone(),
            });
            self.retired = Some(error.0.clone());
            self.note_failure();
        }
        self.give_up_waiting(out);
    }
}
