//! Giving up what no backup has any more, by somebody's word.
//!
//! A recovery that misses parts of a log waits for ever. Whoever knows that these are gone says so, and repeats what the status showed to be missing
//! (its token). From then on the log *is* what was left of it at that moment: exactly these segments, of these lengths, noted durably, so that every
//! later recovery of the same log reads the same, even if a lost disk turns up again. docs/recovery.md, "When disks are gone for ever".

use std::collections::{BTreeMap, BTreeSet};

use wire::ids::ServerId;
use wire::time::Time;

use crate::recovery::Recoveries;
use crate::status::{Loss, MissingLog};
use crate::store::Store;
use crate::tables::{Table, Tablet};
use crate::{Output, level};

/// Segments that the status lists.
const MAX_LISTED: usize = 256;

/// What of a log no backup that answers has, and what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub segments: Vec<u64>,
    /// No head: which other segments belong to the log is not known either.
    pub lacks_head: bool,
    /// Segments of which something can be read: id, and how many bytes.
    pub left: BTreeMap<u64, u32>,
    /// For people.
    pub text: String,
}

/// What a log consists of since somebody has accepted that the rest is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Segment id and length.
    pub segments: BTreeMap<u64, u32>,
    /// The recovery that was ordered last before that: tablets of later ones have the losses already that were recorded.
    pub after_recovery: u64,
}

/// By the log that something is missing of.
pub(crate) type MissingLogs = BTreeMap<ServerId, Missing>;

/// Says shortly what is missing and what is left: whoever repeats it has seen both.
pub(crate) fn token(logs: &MissingLogs) -> String {
    let mut crc = 0;
    let mut add = |number: u64| crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    for (log, missing) in logs {
        add(log.0);
        add(u64::from(missing.lacks_head));
        add(missing.segments.len() as u64);
        missing.segments.iter().for_each(|id| add(*id));
        add(missing.left.len() as u64);
        for (segment_id, bytes) in &missing.left {
            add(*segment_id);
            add(u64::from(*bytes));
        }
    }
    format!("{crc:08x}")
}

/// For the status: the logs, and their token, which is empty if nothing is missing.
pub(crate) fn shown(logs: &MissingLogs) -> (Vec<MissingLog>, String) {
    let view = |(log, missing): (&ServerId, &Missing)| MissingLog {
        server_id: log.0,
        segments: missing.segments.iter().copied().take(MAX_LISTED).collect(),
        segment_count: missing.segments.len() as u64,
        lacks_head: missing.lacks_head,
        segments_left: missing.left.len() as u64,
        bytes_left: missing.left.values().map(|bytes| u64::from(*bytes)).sum(),
        text: missing.text.clone(),
    };
    let token = if logs.is_empty() {
        String::new()
    } else {
        token(logs)
    };
    (logs.iter().map(view).collect(), token)
}

pub(crate) fn describe(logs: &MissingLogs) -> String {
    let parts = logs.iter().map(|(log, missing)| {
        let mut what = Vec::new();
        if missing.lacks_head {
            what.push("its end (the head segment), and whatever only the head named".to_owned());
        }
        if !missing.segments.is_empty() {
            what.push(format!("{} segments", missing.segments.len()));
        }
        let bytes = missing.left.values().map(|bytes| u64::from(*bytes));
        format!(
            "of the log of server {log}: {}; {} segments ({} MiB) were left",
            what.join(" and "),
            missing.left.len(),
            bytes.sum::<u64>().div_ceil(1 << 20)
        )
    });
    parts.collect::<Vec<_>>().join("; ")
}

impl Recoveries {
    /// A server is dead that had brought tablets back from logs while these were whole; parts of them were given up since, so that the next recovery
    /// finds less.
    pub(crate) fn lose_given_up(
        &mut self,
        store: &Store,
        now: Time,
        member: &str,
        index: u32,
        out: &mut impl Output,
    ) {
        let dead_logs = &self.dead;
        let mut logs = BTreeSet::new();
        let mut is_hit = |tablet: &Tablet| {
            let came_with = tablet.sources.last().map_or(0, |last| last.recovery_id);
            let given_up = tablet.sources.iter().filter(|source| {
                let dead = dead_logs.get(&source.log);
                let left = dead.and_then(|dead| dead.left.as_ref());
                left.is_some_and(|left| came_with <= left.after_recovery)
            });
            let given_up: Vec<ServerId> = given_up.map(|source| source.log).collect();
            let is_hit = tablet.owner == index && !given_up.is_empty();
            if is_hit {
                logs.extend(given_up);
            }
            is_hit
        };
        let hit: Vec<(&Table, &Tablet)> = store
            .tables
            .tablets()
            .filter(|(_, tablet)| is_hit(tablet))
            .collect();
        let (tables, tables_dropped, tablet_count) = store.name_tables(hit.into_iter());
        if tablet_count == 0 {
            return;
        }
        let named: Vec<String> = logs.iter().map(ServerId::to_string).collect();
        let missing = format!(
            "of the logs of servers {}, of which parts were given up before what had been read of them was on backups again",
            named.join(", ")
        );
        let text = format!("{tablet_count} tablets may have lost objects: missing {missing}");
        out.log_message(level::ERROR, &text);
        self.losses.record(
            store.config.limits.max_losses,
            Loss {
                cluster_time_ns: store.cluster_time_ns(now),
                member: member.to_owned(),
                server_ids: logs.iter().map(|log| log.0).collect(),
                tables,
                tables_dropped,
                tablet_count,
                object_count: 0,
                live_bytes: 0,
                missing,
                uncounted: false,
                instance: String::new(),
            },
        );
    }
}
