//! When disks do what was submitted to them, and tell of it.

use backup::testing::MemoryStorage;

use crate::cluster::Cluster;
use crate::event::{DiskStep, Event, Phase};
use crate::scenario::MILLI;

/// A stall that is over is noticed after so long.
const LOOK: u64 = 50 * MILLI;

impl Cluster {
    /// After how long a disk that has stalled may go on; `None`: it has not.
    pub fn disk_goes_on_in(&self, server: usize, shard: usize) -> Option<u64> {
        let until = self.late_disks.stalled_until(server, shard);
        let left = until.saturating_sub(self.now);
        (left > 0 && self.phase == Phase::Load).then(|| left.min(LOOK))
    }

    /// Has the disk do what was submitted to it.
    pub fn schedule_disk(&mut self, server: usize, shard: usize) {
        let incarnation = self.servers[server].incarnation;
        let node = &mut self.servers[server].shards[shard];
        let Some(backup) = node.core.backup() else {
            return;
        };
        if backup.stalled().is_some() {
            self.coverage.hit("stalls that were reported");
        }
        let (writes, jobs, reports) = backup.storage().waiting();
        let due = [
            (DiskStep::Write, writes > 0),
            (DiskStep::Job, jobs > 0),
            (DiskStep::Report, reports > 0),
        ];
        let due = due.into_iter().filter(|(_, is_due)| *is_due);
        let fresh: Vec<DiskStep> = due
            .map(|(step, _)| step)
            .filter(|step| node.disk_steps.insert(*step))
            .collect();
        for step in fresh {
            let goes_on = Event::Disk {
                server,
                incarnation,
                shard,
                step,
            };
            let delay = self.late_disks.delay();
            self.schedule_in(delay, goes_on);
        }
    }

    pub fn disk_goes_on(&mut self, server: usize, incarnation: u64, shard: usize, step: DiskStep) {
        let node = &self.servers[server];
        if node.incarnation != incarnation || !node.is_up {
            return;
        }
        if let Some(later) = self.disk_goes_on_in(server, shard) {
            let again = Event::Disk {
                server,
                incarnation,
                shard,
                step,
            };
            return self.schedule_in(later, again);
        }
        self.coverage.hit(match step {
            DiskStep::Write => "writes that were late",
            DiskStep::Job => "jobs that were late",
            DiskStep::Report => "completions that were told of late",
        });
        let choice = self.late_disks.choice();
        self.with_shard(server, shard, |node, _, _| {
            node.disk_steps.remove(&step);
            if let Some(backup) = node.core.backup_mut() {
                take(backup.storage_mut(), step, choice);
            }
        });
    }
}

/// The tick that follows hears of what is reported.
fn take(disk: &mut MemoryStorage, step: DiskStep, choice: usize) {
    let (writes, jobs, _) = disk.waiting();
    match step {
        DiskStep::Write => disk.carry_out(1 + choice % writes.max(1)),
        DiskStep::Job => disk.do_job(choice % jobs.max(1)),
        DiskStep::Report => disk.report(),
    }
}
