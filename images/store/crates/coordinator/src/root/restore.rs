//! A coordinator out of its pairs.

use core::mem::take;
use std::collections::BTreeSet;

use base::time::Time;
use prost::Message;
use wire::format::{FIRST_FORMAT, Formats};

use crate::admin::settings::InForce;
use crate::admin::upgrade::Upgrades;
use crate::directory::leases::Leases;
use crate::directory::tables::{NOBODY, Tables};
use crate::records::{Key, Sorted, Value};
use crate::recovery::Recoveries;
use crate::registry::members::Members;
use crate::reports::RestoreError;
use crate::state::leading::Leading;
use crate::state::objects::{Ending, MAX_PAST};
use crate::state::{FORMER_TIME_AHEAD_NS, Pair};
use crate::{Config, Coordinator};

/// Nothing has happened more often.
const MAX_COUNT: u64 = 1 << 48;

/// How a leadership ends that finds such a state.
pub(crate) fn ending_of(error: &RestoreError) -> Ending {
    match error {
        RestoreError::NewerFormat { .. } => Ending::NewerFormat,
        RestoreError::OlderFormat { .. }
        | RestoreError::Unreadable { .. }
        | RestoreError::Contradiction(_) => Ending::Unreadable,
    }
}

impl Coordinator {
    /// The coordinator that `pairs` are of, at cluster time that goes on where it can have been at most. Nobody is connected;
    /// servers that say hello as what they were resume. Which store it is comes from the pairs, whatever `config` says.
    ///
    /// # Errors
    /// The pairs were written by a newer build, or do not fit together.
    pub fn restore(
        config: Config,
        pairs: impl IntoIterator<Item = Pair>,
        now: Time,
    ) -> Result<Coordinator, RestoreError> {
        let sorted = sort(pairs, config.formats)?;
        build(config, sorted, now).map_err(RestoreError::Contradiction)
    }
}

fn sort(pairs: impl IntoIterator<Item = Pair>, known: Formats) -> Result<Sorted, RestoreError> {
    let mut sorted = Sorted::default();
    let mut keys = BTreeSet::new();
    // Of a newer format not even the records need be readable: that it is newer is what must be said then.
    let mut unreadable = None;
    // The kind of record that only the newest format has.
    let (mut newest, mut newest_key) = (FIRST_FORMAT, None);
    for pair in pairs {
        let value = Value::decode(pair.value.as_slice());
        let Some(record) = value.ok().and_then(|value| value.record) else {
            unreadable.get_or_insert(pair.key);
            continue;
        };
        if record.since() > newest {
            (newest, newest_key) = (record.since(), Some(pair.key.clone()));
        }
        let key = Key::of(&record).encode();
        if key != pair.key || !keys.insert(key) {
            unreadable.get_or_insert(pair.key);
            continue;
        }
        sorted.add(record);
    }
    let meta = sorted.metas.first();
    let version = meta.map_or(FIRST_FORMAT, |meta| meta.format_version);
    if version > known.newest {
        return Err(RestoreError::NewerFormat { version, known });
    }
    if version != 0 && version < known.oldest {
        return Err(RestoreError::OlderFormat { version, known });
    }
    if version == 0 {
        unreadable.get_or_insert(Key::Meta.encode());
    }
    // Older builds go on with a state of this format, and could not read it.
    if newest > version {
        unreadable = unreadable.or(newest_key);
    }
    match unreadable {
        Some(key) => Err(RestoreError::Unreadable { key }),
        None => Ok(sorted),
    }
}

fn build(mut config: Config, mut sorted: Sorted, now: Time) -> Result<Coordinator, String> {
    let meta = sorted.metas.pop();
    let meta = meta.ok_or("it does not say which store it is of")?;
    config.cluster_id = meta.cluster_id;
    config.cluster_tag = meta.cluster_tag;
    if meta.lease_shift_ns > meta.time_bound_ns
        || meta.next_lease_id >> 32 < u64::from(meta.cluster_tag)
        || meta.member_changes.max(meta.losses_dropped) > MAX_COUNT
        || meta.last_recovery_id > MAX_COUNT
        || meta.version_floor.max(meta.first_version) > meta.version_bound
        || meta.term > MAX_COUNT
        || meta.past.len() > MAX_PAST
    {
        return Err(format!("its counters are impossible: {meta:?}"));
    }
    let limits = config.limits.clone();
    let members = Members::restore(
        limits.clone(),
        &meta,
        take(&mut sorted.members),
        take(&mut sorted.servers),
        take(&mut sorted.removed),
    )?;
    let tables = Tables::restore(limits.clone(), &meta, take(&mut sorted.tables))?;
    if let Some(owner) = tables
        .owners()
        .find(|owner| members.server(*owner).is_none())
    {
        return Err(format!(
            "a tablet belongs to the server with index {owner}, which is not there"
        ));
    }
    // Cluster time may jump by so much now; leases must not end earlier for it.
    let ahead_ns = match meta.time_ahead_ns {
        0 => FORMER_TIME_AHEAD_NS,
        ahead_ns => ahead_ns,
    };
    let shift_ns = meta.lease_shift_ns.saturating_add(ahead_ns);
    let leases = Leases::restore(
        limits.max_client_leases,
        &meta,
        shift_ns,
        take(&mut sorted.leases),
    )?;
    let recoveries = Recoveries::restore(&meta, take(&mut sorted.losses), take(&mut sorted.logs))?;
    let mut coordinator = Coordinator::new(config, now);
    coordinator.store.ledger.time_base_ns = meta.time_bound_ns;
    coordinator.store.ledger.time_bound_ns = meta.time_bound_ns;
    coordinator.upgrades = Upgrades::of(coordinator.store.config.formats, meta.format_version);
    coordinator.store.members = members;
    coordinator.store.tables = tables;
    coordinator.store.leases = leases;
    coordinator.recoveries = recoveries;
    coordinator.store.ledger.last_id = meta.last_recovery_id;
    coordinator.store.ledger.version_bound = meta.version_bound;
    coordinator.store.ledger.version_floor = meta.version_floor;
    coordinator.store.ledger.first_version = meta.first_version;
    coordinator.leading = Leading::noted(&meta);
    coordinator.settings = InForce::noted(&meta);
    coordinator.noted_meta = Some(meta);
    for resource in coordinator.resources_mut() {
        resource.load(&mut sorted)?;
    }
    coordinator.check_sources()?;
    coordinator.recoveries.resume(&coordinator.store, now);
    Ok(coordinator)
}

impl Coordinator {
    /// A tablet that nobody owns has something to be brought back from, and no recovery is still to come that is named already.
    fn check_sources(&self) -> Result<(), String> {
        let last_id = self.store.ledger.last_id;
        for (table, tablet) in self.store.tables.tablets() {
            if tablet.owner == NOBODY && tablet.sources.is_empty() {
                return Err(format!(
                    "nobody owns a tablet of table {:#x}, and no log is named that holds it",
                    table.id
                ));
            }
            let mut sources = tablet.sources.iter();
            if let Some(source) = sources.find(|source| source.recovery_id > last_id) {
                return Err(format!(
                    "a tablet of table {:#x} came back with recovery {}, and the last one was {last_id}",
                    table.id, source.recovery_id
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{self, Meta, Record};

    #[test]
    fn every_counter_comes_back() {
        let meta = Meta {
            format_version: FIRST_FORMAT,
            cluster_id: 2,
            cluster_tag: 3,
            last_server_index: 4,
            member_changes: 5,
            last_table_number: 6,
            last_used_server: 7,
            next_lease_id: 3 << 32 | 8,
            time_bound_ns: 10,
            lease_shift_ns: 9,
            losses_dropped: 11,
            last_recovery_id: 12,
            version_bound: 14,
            version_floor: 13,
            first_version: 12,
            time_ahead_ns: 60_000_000_000,
            term: 3,
            nonce: 15,
            past: vec![records::Leadership {
                term: 2,
                nonce: 16,
                last_sequence: 17,
            }],
            rebuilt_term: 2,
            rebuilt: None,
            settings: None,
            copies_asked_by: None,
        };
        let pairs = [Pair::from(Record::Meta(meta.clone()))];
        let restored = Coordinator::restore(Config::new(0, 0, "test"), pairs, Time(77)).unwrap();
        let expected = Meta {
            lease_shift_ns: 9 + 60_000_000_000,
            ..meta
        };
        assert_eq!(restored.meta(), expected);
        assert_eq!(restored.store.cluster_time_ns(Time(80)), 13);
    }
}
