//! Giving up what no backup has any more, by somebody's word.
//!
//! A recovery that misses parts of a log waits for ever. Whoever knows that these are gone says so, and repeats what the status showed to be missing
//! (its token). From then on the log *is* what was left of it at that moment: exactly these segments, of these lengths, noted durably, so that every
//! later recovery of the same log reads the same, even if a lost disk turns up again. docs/recovery.md, "When disks are gone for ever".

use std::collections::{BTreeMap, BTreeSet};

use wire::ids::ServerId;
use wire::time::Time;

use crate::orders::{AcceptLossError, Acceptance};
use crate::state::records::Key;
use crate::status::{Loss, MissingLog};
use crate::tables::{NOBODY, Table, Tablet};
use crate::{Coordinator, Output, level};

/// Segments that the status lists.
const MAX_LISTED: usize = 256;
/// How far the bound of versions is noted ahead of those that were given out: more than a server gives out between two of its reports, or while
/// there is no coordinator.
const VERSIONS_AHEAD: u64 = 1 << 40;

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

impl Coordinator {
    /// Lets a recovery go on without what is missing: see [`Acceptance`].
    ///
    /// # Errors
    /// Nothing was accepted; the text says why, and what to do.
    pub fn accept_loss(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl Output,
    ) -> Result<Loss, AcceptLossError> {
        self.gated(out, |it, out| it.accept_now(now, acceptance, out))
    }

    fn accept_now(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl Output,
    ) -> Result<Loss, AcceptLossError> {
        if let Some(why) = self.refusal() {
            return Err(AcceptLossError::DoesNotLead(why.to_owned()));
        }
        self.check_store(acceptance.expected_cluster_id)
            .map_err(AcceptLossError::OtherStore)?;
        let server = ServerId(acceptance.server_id);
        // What a backup has said a moment ago counts.
        self.recoveries.look_at_once();
        self.recover(now, out);
        let Some(recovery) = self.recoveries.under_way(server) else {
            return Err(AcceptLossError::NoRecovery { server });
        };
        let (member, waits_for) = (recovery.member.clone(), recovery.waits_for.clone());
        let Some(logs) = self.recoveries.missing.remove(&server) else {
            let silent = self.still_asked(now, server);
            return Err(if silent.is_empty() {
                AcceptLossError::NothingMissing { server, waits_for }
            } else {
                AcceptLossError::StillAsked { server, silent }
            });
        };
        let token = token(&logs);
        if token != acceptance.token {
            self.recoveries.missing.insert(server, logs);
            return Err(AcceptLossError::OtherLoss { server, token });
        }
        let missing = describe(&logs);
        let after_recovery = self.recoveries.last_id;
        let given_up: BTreeSet<ServerId> = logs.keys().copied().collect();
        for (log, missing) in logs {
            if let Some(dead) = self.recoveries.dead.get_mut(&log) {
                dead.left = Some(Left {
                    segments: missing.left,
                    after_recovery,
                });
                self.changed.insert(Key::Log(log.0));
            }
        }
        // Nobody knows which versions were used in what is lost: none that anybody can have got is used again.
        self.version_floor = self.version_bound;
        self.note_versions(self.version_floor);
        let is_hit = |tablet: &Tablet| {
            let mut sources = tablet.sources.iter();
            tablet.owner == NOBODY && sources.any(|source| given_up.contains(&source.log))
        };
        let hit = self.tables.tablets().filter(|(_, tablet)| is_hit(tablet));
        let (tables, tables_dropped, tablet_count) = self.name_tables(hit);
        let text = format!(
            "accepted by an operator: the recovery of server {server} of member {member:?} goes on without what is missing {missing}; tablets that may have lost objects: {tablet_count}"
        );
        out.log_message(level::ERROR, &text);
        let loss = Loss {
            cluster_time_ns: self.cluster_time_ns(now),
            member,
            server_ids: given_up.iter().map(|log| log.0).collect(),
            tables,
            tables_dropped,
            tablet_count,
            object_count: 0,
            live_bytes: 0,
            missing,
            uncounted: false,
            instance: String::new(),
        };
        self.record_loss(loss.clone());
        self.recoveries.look_at_once();
        Ok(loss)
    }

    /// A server is dead that had brought tablets back from logs while these were whole; parts of them were given up since, so that the next recovery
    /// finds less.
    pub(crate) fn lose_given_up(
        &mut self,
        now: Time,
        member: &str,
        index: u32,
        out: &mut impl Output,
    ) {
        let recoveries = &self.recoveries;
        let mut logs = BTreeSet::new();
        let mut is_hit = |tablet: &Tablet| {
            let came_with = tablet.sources.last().map_or(0, |last| last.recovery_id);
            let given_up = tablet.sources.iter().filter(|source| {
                let dead = recoveries.dead.get(&source.log);
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
        let hit: Vec<(&Table, &Tablet)> = self
            .tables
            .tablets()
            .filter(|(_, tablet)| is_hit(tablet))
            .collect();
        let (tables, tables_dropped, tablet_count) = self.name_tables(hit.into_iter());
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
        self.record_loss(Loss {
            cluster_time_ns: self.cluster_time_ns(now),
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
        });
    }

    /// Losses are kept, the newest of them.
    pub(crate) fn record_loss(&mut self, loss: Loss) {
        if self.losses.len() == self.config.limits.max_losses {
            self.losses.pop_front();
            self.changed.insert(Key::Loss(self.losses_dropped));
            self.losses_dropped += 1;
        }
        let number = self.losses_dropped + self.losses.len() as u64;
        self.changed.insert(Key::Loss(number));
        self.losses.push_back(loss);
    }

    /// Names of these tablets' tables (the first few), how many more there are, and how many tablets.
    pub(crate) fn name_tables<'a>(
        &self,
        tablets: impl Iterator<Item = (&'a Table, &'a Tablet)>,
    ) -> (Vec<String>, u64, u64) {
        let mut names = Vec::new();
        let (mut more, mut tablet_count, mut last) = (0, 0, None);
        for (table, _) in tablets {
            tablet_count += 1;
            if last == Some(table.id) {
                continue;
            }
            last = Some(table.id);
            if names.len() < self.config.limits.max_names_listed {
                names.push(table.display_name());
            } else {
                more += 1;
            }
        }
        (names, more, tablet_count)
    }

    /// A server says, or was told, that versions below this one may be in use. A bound ahead of all of them is noted.
    pub(crate) fn note_versions(&mut self, next_version: u64) {
        if next_version.saturating_add(VERSIONS_AHEAD / 2) > self.version_bound {
            self.version_bound = next_version.saturating_add(VERSIONS_AHEAD);
        }
    }
}
