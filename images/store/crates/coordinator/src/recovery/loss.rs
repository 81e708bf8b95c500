//! Giving up what no backup has any more, by somebody's word.
//!
//! A recovery that misses parts of a log waits for ever. Somebody who knows that these are gone says so, and repeats what the status showed to be missing
//! (its token). From then on the log *is* what was left of it at that moment: exactly these segments, of these lengths, noted durably, so that every
//! later recovery of the same log reads the same, even if a lost disk turns up again. docs/recovery.md, "When disks are gone for ever".

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use wire::ids::ServerId;
use wire::time::Time;

use crate::orders::AcceptLossError;
use crate::recovery::Recoveries;
use crate::status::{Loss, MissingLog};
use crate::store::Store;
use crate::tables::{NOBODY, Tablet};
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
fn token(logs: &MissingLogs) -> String {
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
pub(super) fn shown(logs: &MissingLogs) -> (Vec<MissingLog>, String) {
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

fn describe(logs: &MissingLogs) -> String {
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
    /// Lets a recovery go on without what is missing, if `token` repeats what the status showed of that.
    ///
    /// # Errors
    /// Nothing was accepted; the text says why, and what to do.
    pub(crate) fn accept_loss(
        &mut self,
        store: &mut Store,
        now: Time,
        server: ServerId,
        expected_token: &str,
        out: &mut impl Output,
    ) -> Result<Loss, AcceptLossError> {
        // Backups may have said more since the last look.
        self.look_at_once();
        self.look(store, now, out);
        let logs = self.take_missing(store, now, server, expected_token)?;
        let member = self.under_way[&server].member.clone();
        let missing = describe(&logs);
        let given_up: BTreeSet<ServerId> = logs.keys().copied().collect();
        for (log, missing) in logs {
            if let Some(dead) = self.dead.get_mut(&log) {
                dead.left = Some(Left {
                    segments: missing.left,
                    after_recovery: store.ledger.last_id,
                });
            }
        }
        store.ledger.leave_versions_out();
        let is_hit = |tablet: &Tablet| {
            let mut sources = tablet.sources.iter();
            tablet.owner == NOBODY && sources.any(|source| given_up.contains(&source.log))
        };
        let loss = loss_of(store, now, &member, &given_up, missing, is_hit);
        let text = format!(
            "accepted by an operator: the recovery of server {server} of member {member:?} goes on without what is missing {}; tablets that may have lost objects: {}",
            loss.missing, loss.tablet_count
        );
        out.log_message(level::ERROR, &text);
        self.record_loss(store, loss.clone());
        self.look_at_once();
        Ok(loss)
    }

    /// Takes what a recovery misses out of what is shown, for somebody who has seen it.
    fn take_missing(
        &mut self,
        store: &Store,
        now: Time,
        server: ServerId,
        expected_token: &str,
    ) -> Result<MissingLogs, AcceptLossError> {
        let Some(recovery) = self.under_way.get(&server) else {
            return Err(AcceptLossError::NoRecovery { server });
        };
        let Entry::Occupied(logs) = self.missing.entry(server) else {
            let silent = self.still_asked(store, now, server);
            let waits_for = recovery.waits_for.clone();
            return Err(if silent.is_empty() {
                AcceptLossError::NothingMissing { server, waits_for }
            } else {
                AcceptLossError::StillAsked { server, silent }
            });
        };
        let token = token(logs.get());
        if token != expected_token {
            return Err(AcceptLossError::OtherLoss { server, token });
        }
        Ok(logs.remove())
    }

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
        let given_up = |tablet: &Tablet| {
            let came_with = tablet.sources.last().map_or(0, |last| last.recovery_id);
            let logs = tablet.sources.iter().map(|source| source.log);
            let given_up: Vec<ServerId> = logs
                .filter(|log| {
                    let left = self.dead.get(log).and_then(|dead| dead.left.as_ref());
                    left.is_some_and(|left| came_with <= left.after_recovery)
                })
                .collect();
            given_up
        };
        let is_hit = |tablet: &Tablet| tablet.owner == index && !given_up(tablet).is_empty();
        let tablets = store.tables.tablets().map(|(_, tablet)| tablet);
        let hit = tablets.filter(|tablet| is_hit(tablet));
        let logs: BTreeSet<ServerId> = hit.flat_map(given_up).collect();
        if logs.is_empty() {
            return;
        }
        let named: Vec<String> = logs.iter().map(ServerId::to_string).collect();
        let missing = format!(
            "of the logs of servers {}, of which parts were given up before what had been read of them was on backups again",
            named.join(", ")
        );
        let loss = loss_of(store, now, member, &logs, missing, is_hit);
        let text = format!(
            "{} tablets may have lost objects: missing {}",
            loss.tablet_count, loss.missing
        );
        out.log_message(level::ERROR, &text);
        self.record_loss(store, loss);
    }
}

/// Tablets may have lost objects, for parts of these logs are missing.
fn loss_of(
    store: &Store,
    now: Time,
    member: &str,
    logs: &BTreeSet<ServerId>,
    missing: String,
    is_hit: impl Fn(&Tablet) -> bool,
) -> Loss {
    let hit = store.tables.tablets().filter(|(_, tablet)| is_hit(tablet));
    let (tables, tables_dropped, tablet_count) = store.name_tables(hit);
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
    }
}
