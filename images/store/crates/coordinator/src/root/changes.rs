//! What is noted: the changes of each round, and everything.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use wire::format::FIRST_FORMAT;

use crate::records::{Key, Meta, Record};
use crate::resource::Resource;
use crate::root::Coordinator;
use crate::state::{Changes, Pair};

impl Coordinator {
    /// The changes since the last call; the first gives everything. Messages that the coordinator has put out since then must go
    /// nowhere before they are durable. `now` is not before that of any event so far. The work is in proportion to what has changed.
    pub fn take_changes(&mut self, now: Time) -> Changes {
        let cluster_time_ns = self.store.cluster_time_ns(now);
        if cluster_time_ns >= self.store.ledger.time_bound_ns {
            self.store.ledger.time_bound_ns = cluster_time_ns.saturating_add(self.time_ahead_ns());
        }
        self.take_all_changes().0
    }

    /// As [`Coordinator::take_changes`], for a state that takes its time to be noted: what the coordinator puts out goes on leaving while the bound
    /// of cluster time is raised, long before it is reached. Also says whether what was put out since the last call must wait for these changes.
    /// Until [`Coordinator::time_is_noted`] is called with the bound that was noted, cluster time stands still below the one before.
    pub(crate) fn take_changes_ahead(&mut self, now: Time) -> (Changes, bool) {
        if self.leading.refusal().is_some() {
            return (Changes::default(), false);
        }
        self.store.ledger.hold_time(now);
        let ahead_ns = self.time_ahead_ns();
        let cluster_time_ns = self.store.cluster_time_ns(now);
        if cluster_time_ns.saturating_add(ahead_ns / 2) >= self.store.ledger.time_bound_ns {
            self.store.ledger.time_bound_ns = cluster_time_ns.saturating_add(ahead_ns);
        }
        let before = self.noted_meta.clone();
        let (changes, is_more) = self.take_all_changes();
        let is_only_time = before.is_some_and(|before| {
            let raised = Meta {
                time_bound_ns: self.store.ledger.time_bound_ns,
                ..before
            };
            !is_more && self.noted_meta.as_ref() == Some(&raised)
        });
        let must_wait = !changes.is_empty() && !is_only_time;
        (changes, must_wait)
    }

    /// The bound of cluster time that the changes have which were taken last.
    pub(crate) fn time_bound_ns(&self) -> u64 {
        self.store.ledger.time_bound_ns
    }

    /// Changes with this bound of cluster time are noted.
    pub(crate) fn time_is_noted(&mut self, now: Time, bound_ns: u64) {
        self.store.ledger.hold_time(now);
        self.store.ledger.time_limit_ns = bound_ns;
    }

    fn time_ahead_ns(&self) -> u64 {
        u64::try_from(self.store.config.time_ahead.as_nanos()).unwrap_or(u64::MAX / 4)
    }

    /// Also says whether there is anything but counters.
    fn take_all_changes(&mut self) -> (Changes, bool) {
        if self.leading.refusal().is_some() {
            return (Changes::default(), false);
        }
        self.count_version();
        self.keeping.version_is_taken();
        let mut changed = match core::mem::take(&mut self.is_all_changed) {
            true => self.records().map(|record| Key::of(&record)).collect(),
            false => self.newly_noted(),
        };
        changed.remove(&Key::Meta);
        let format = self.upgrades.format();
        for resource in self.resources_mut() {
            let keys = resource.take_changed().into_iter();
            changed.extend(keys.filter(|key| may_be_noted(key.since(), format)));
        }
        let mut changes = Changes::default();
        let meta = self.meta();
        if self.noted_meta.as_ref() != Some(&meta) {
            changes.puts.push(Record::Meta(meta.clone()).into());
            self.noted_meta = Some(meta);
        }
        let is_more = !changed.is_empty();
        for key in changed {
            match self.record(&key) {
                Some(record) => changes.puts.push(record.into()),
                None => changes.deletes.push(key.encode()),
            }
        }
        (changes, is_more)
    }

    /// Everything, in no particular order.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.records().map(Pair::from)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let format = self.upgrades.format();
        let records = self.resources().flat_map(Resource::records);
        let records = records.filter(move |record| may_be_noted(record.since(), format));
        core::iter::once(Record::Meta(self.meta())).chain(records)
    }

    pub(crate) fn meta(&self) -> Meta {
        let (last_table_number, last_used_server) = self.store.tables.counters();
        let noted = self.leading.noted_position();
        let (rebuilt_term, rebuilt) = self.leading.rebuilt();
        Meta {
            format_version: self.upgrades.format(),
            cluster_id: self.store.config.cluster_id,
            cluster_tag: self.store.config.cluster_tag,
            last_server_index: self.store.members.last_index(),
            member_changes: self.store.members.changes(),
            last_table_number,
            last_used_server,
            next_lease_id: self.store.leases.next_id(),
            time_bound_ns: self.store.ledger.time_bound_ns,
            lease_shift_ns: self.store.leases.shift_ns(),
            losses_dropped: self.recoveries.losses().dropped(),
            last_recovery_id: self.store.ledger.last_id,
            version_bound: self.store.ledger.version_bound,
            version_floor: self.store.ledger.version_floor,
            first_version: self.store.ledger.first_version,
            time_ahead_ns: self.time_ahead_ns(),
            term: noted.map_or(0, |position| position.term),
            nonce: noted.map_or(0, |position| position.nonce),
            past: self.leading.past().to_vec(),
            rebuilt_term,
            rebuilt: rebuilt.cloned(),
            settings: self.settings.in_force(),
            copies_asked_by: self.settings.copies_asked_by.clone(),
        }
    }

    /// Records that there are already, of kinds that only the format has which is in force since the last call.
    fn newly_noted(&self) -> BTreeSet<Key> {
        let format = self.upgrades.format();
        let before = self.noted_meta.as_ref();
        let before = before.map_or(FIRST_FORMAT, |meta| meta.format_version);
        if format <= before {
            return BTreeSet::new();
        }
        let records = self.records().filter(|record| record.since() > before);
        records.map(|record| Key::of(&record)).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        if *key == Key::Meta {
            return Some(Record::Meta(self.meta()));
        }
        self.resources().find_map(|resource| resource.record(key))
    }

    /// If this round has changed what matters, it begins a version. Also to be called before changes are taken.
    pub(super) fn count_version(&mut self) {
        if self.keeping.is_counted() {
            return;
        }
        let is_changed =
            self.is_all_changed || self.resources().any(Resource::is_worth_a_checkpoint);
        let meta = self.meta();
        self.keeping.count(is_changed, meta);
    }
}

/// Whether all builds that go on with a state of this format know records that there are since another one.
fn may_be_noted(since: u32, format: u32) -> bool {
    since <= format || is_planted(Bug::NoteTooEarly)
}

#[cfg(test)]
mod tests {
    use base::bugs::plant;

    use super::*;
    use crate::Config;
    use crate::status::EventKind;

    /// Restores the state of a coordinator that has recorded an event in the first format.
    fn goes_on() -> Result<usize, String> {
        let mut coordinator = Coordinator::new(Config::new(7, 0, "test"), Time(1000));
        let event = "something".to_owned();
        coordinator.record_event(Time(2000), EventKind::MemberRemoved, event);
        let noted = coordinator.take_changes(Time(3000)).puts;
        let config = Config::new(7, 0, "test");
        let restored =
            Coordinator::restore(config, noted, Time(4000)).map_err(|error| error.to_string())?;
        Ok(restored.events(Time(4000)).1.len())
    }

    #[test]
    fn what_older_builds_could_not_read_is_not_noted_while_they_may_come_back() {
        assert_eq!(goes_on(), Ok(0));
        plant(Some(Bug::NoteTooEarly));
        let refused = goes_on();
        plant(None);
        assert!(refused.is_err(), "the planted bug is not found");
    }
}
