//! Whether the backups have room for what a recovery brings back.
//!
//! A dead log keeps its frames until everything of it lies in the logs of others, which takes frames, too. When many servers are recovered at once,
//! on disks that have room for some of them only, all of these would take what is free, none would be finished, and no frame would ever get free.
//! So those for which there is no room wait for the ones before them, each of which frees as much as it took, and more.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::ServerId;
use wire::member::SegmentSource;

use crate::store::Store;

/// Frames that recoveries take which have begun, by the log that is brought back.
#[derive(Debug, Default)]
pub(crate) struct Reserved(BTreeMap<ServerId, u64>);

impl Reserved {
    /// Reserves frames for bringing what was in `log` back; or what that waits for. `begun`: logs that are being brought back.
    pub(super) fn reserve(
        &mut self,
        begun: &BTreeSet<ServerId>,
        log: ServerId,
        needed: u64,
        free: u64,
    ) -> Result<(), String> {
        let reserved = &mut self.0;
        reserved.retain(|log, _| begun.contains(log));
        // What has begun must end; and the first is let go in any case: what is alive of a log takes less room than the log.
        let taken: u64 = reserved.values().sum();
        if !begun.is_empty() && !begun.contains(&log) && taken + needed > free {
            let text = "the backups have too few free frames to bring it back beside the recoveries under way, and it goes on when these have freed \
                 theirs; if nothing moves, give servers more room (a larger --segmentFrames or device, and a restart), or the store more servers";
            return Err(text.to_owned());
        }
        let before = reserved.entry(log).or_insert(0);
        *before = needed.max(*before);
        Ok(())
    }
}

/// At most: every byte of these segments on as many backups as masters want, and for each master a head and the end of a side segment.
pub(super) fn frames_needed(store: &Store, segments: &[SegmentSource]) -> u64 {
    let masters = store.members.enlisted().map(|(server, _)| server.replicas);
    let masters = masters.filter(|&replicas| replicas > 0);
    let (count, replicas) = masters.fold((0, 0), |(count, most), replicas| {
        (count + 1, u64::from(replicas).max(most))
    });
    let bytes: u64 = segments.iter().map(|one| u64::from(one.bytes)).sum();
    let reports = store.members.enlisted();
    let reports = reports.filter_map(|(server, _)| server.backup.as_ref());
    let frame_bytes = reports.map(|report| u64::from(report.segment_bytes)).min();
    (bytes.div_ceil(frame_bytes.unwrap_or(1).max(1)) + 2 * count) * replicas
}

pub(super) fn frames_free(store: &Store) -> u64 {
    let reports = store.members.enlisted();
    let reports = reports.filter_map(|(server, _)| server.backup.as_ref());
    let usable = reports.filter(|report| report.retired.is_empty());
    usable.map(|report| u64::from(report.frames_free)).sum()
}
