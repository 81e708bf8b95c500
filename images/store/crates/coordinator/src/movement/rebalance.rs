//! Tablets are moved, split and merged without an order: what is planned is begun.

use core::time::Duration;
use std::collections::BTreeMap;

use base::time::Time;
use wire::member::TabletRange;

use crate::CoordinatorEffects;
use crate::directory::tables::{Cut, NOBODY};
use crate::movement::balance::backoff::Hold;
use crate::movement::balance::plan::{self, Plan, Step, Tablet, View};
use crate::movement::{Movement, Terms};
use crate::orders::MigrateError;
use crate::registry::members::{Member, Server};
use crate::reports::TableEvent;
use crate::status;
use crate::store::Store;

/// Time that a look at one tablet may take: a look at many comes less often.
const INTERVAL_OF_TABLET: Duration = Duration::from_micros(100);

impl Movement {
    /// Looks, if that is due, at what waits and what should move; answers when the next look is.
    pub(crate) fn look(
        &mut self,
        store: &mut Store,
        terms: Terms,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Time {
        if now < self.balance.next_look {
            return self.balance.next_look;
        }
        let count = u32::try_from(store.tables.tablet_count()).unwrap_or(u32::MAX);
        self.balance.next_look = now + store.config.balancing.interval + count * INTERVAL_OF_TABLET;
        self.begin_waiting(store, now, out);
        let tablets = store.tables.tablets();
        let tablets = tablets.map(|(table, tablet)| table.range(tablet));
        self.balance.loads.keep(tablets);
        self.balance.rests.retain(|_, until| *until > now);
        let (tables, pauses) = (&store.tables, store.config.balancing.pauses());
        let is_there = |tablet: &TabletRange| tables.has(tablet);
        self.balance.backoff.forget(now, pauses, is_there);
        if terms.evens_out {
            self.merge_tablets(store, out);
        }
        let (view, mut waits_for) = self.view(store, terms, now);
        let mut plan = plan::plan(view);
        self.balance.was_uneven = plan.uneven;
        let steps = std::mem::take(&mut plan.steps);
        for step in steps {
            if let Err(error) = self.begin_step(store, terms, now, &step, out) {
                plan.waits_for.push(error.to_string());
            }
        }
        waits_for.append(&mut plan.waits_for);
        self.show_plan(store, terms, now, &plan, waits_for);
        self.balance.next_look
    }

    fn begin_step(
        &mut self,
        store: &mut Store,
        terms: Terms,
        now: Time,
        step: &Step,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), MigrateError> {
        self.may_migrate(store, &step.tablet, step.source, step.target)?;
        let Some(table) = store.tables.get(step.tablet.table_id) else {
            return Ok(());
        };
        let (name, display_name) = (table.name.clone(), table.display_name());
        if let Some(cut_at) = step.cut_at {
            let cut = self.split(store, now, &name, cut_at, Cut::Own, out);
            cut.map_err(|error| {
                let text = format!("a tablet of table {display_name:?} cannot be cut: {error:?}");
                MigrateError::Refused(text)
            })?;
            let table = display_name.clone();
            out.report(TableEvent::Cut { table }.into());
        }
        let tablet = step.part();
        let servers = (step.source, step.target);
        let mut shown = self.announce(store, now, &tablet, display_name, servers);
        shown.reason = Some(step.why.clone());
        self.balance.shown.moves_begun += 1;
        let bytes_per_second = terms.bytes_per_second;
        self.begin(store, tablet, servers, bytes_per_second, shown, out);
        Ok(())
    }

    /// A migration to the server with this index has ended.
    pub(crate) fn note_moved(
        &mut self,
        store: &Store,
        now: Time,
        tablet: TabletRange,
        target: u32,
        is_there: bool,
    ) {
        if is_there {
            let until = now + store.config.balancing.rest;
            self.balance.rests.insert(tablet, until);
            self.balance.backoff.moved(&tablet, target);
        } else {
            self.balance.backoff.tablet_failed(now, tablet);
        }
        self.balance.look_soon();
    }

    /// A server could not take a tablet.
    pub(crate) fn note_not_taken(&mut self, now: Time, target: u32) {
        self.balance.backoff.target_failed(now, target);
    }

    /// What the plan is made from, and why servers' evenness is not looked after now.
    fn view<'a>(&'a self, store: &'a Store, terms: Terms, now: Time) -> (View<'a>, Vec<String>) {
        let awaited = self.balance.queue.servers();
        let under_way = self.migrations.ways();
        let members = store.members.iter();
        let places = members.flat_map(|(_, member)| {
            let indexes = member.servers().iter();
            indexes.filter_map(move |&index| Some((member, index, store.members.server(index)?)))
        });
        let servers = places
            .filter(|(_, _, server)| server.has_enlisted() && !server.backup_only)
            .map(|(member, index, server)| {
                let is_free = !awaited.contains(&server.id.0);
                let mut ways = under_way.values();
                let gives = ways.clone().any(|&(source, _)| source == index);
                let takes = ways.any(|&(_, target)| target == index);
                let pauses = store.config.balancing.pauses();
                let hold = self.balance.backoff.of_target(now, index, pauses);
                plan::Server {
                    may_give: is_free && !gives,
                    may_take: is_free && !takes && hold != Hold::All,
                    rests: hold == Hold::Evenness,
                    ..planned_server(index, member, server)
                }
            })
            .collect();
        let (tablets, unknown) = self.balanced_tablets(store, now, &under_way);
        let waits_for = self.why_not_even_out(store, terms, unknown);
        let view = View {
            rules: &store.config.balancing.rules,
            servers,
            tablets,
            under_way: under_way.len(),
            evens_out: terms.evens_out && waits_for.is_none(),
            was_uneven: self.balance.was_uneven,
        };
        (view, waits_for.into_iter().collect())
    }

    /// All that somebody owns, and of how many nothing is known yet.
    fn balanced_tablets(
        &self,
        store: &Store,
        now: Time,
        under_way: &BTreeMap<TabletRange, (u32, u32)>,
    ) -> (Vec<Tablet>, usize) {
        let pauses = store.config.balancing.pauses();
        let mut unknown = 0;
        let owned = store.tables.tablets();
        let owned = owned.filter(|(_, tablet)| tablet.owner != NOBODY);
        let tablets = owned
            .map(|(table, tablet)| {
                let range = table.range(tablet);
                let load = self.balance.loads.of(&range);
                unknown += usize::from(load.is_none());
                let way = under_way.get(&range);
                let hold = self.balance.backoff.of_tablet(now, &range, pauses);
                Tablet {
                    range,
                    owner: way.map_or(tablet.owner, |&(_, target)| target),
                    bytes: load.map_or(0, |load| load.bytes),
                    rate: load.map_or(0, |load| load.rate),
                    is_held: way.is_some() || hold == Hold::All,
                    rests: hold == Hold::Evenness || self.balance.rests.contains_key(&range),
                }
            })
            .collect();
        (tablets, unknown)
    }

    fn why_not_even_out(&self, store: &Store, terms: Terms, unknown: usize) -> Option<String> {
        if !terms.evens_out {
            return None;
        }
        if terms.recoveries > 0 {
            let text = "servers are recovered: what they held is brought back first";
            return Some(text.to_owned());
        }
        let masters = store.members.enlisted();
        let short = |server: &&Server| server.is_connected() && server.pong.segments_short > 0;
        let short = masters.map(|(server, _)| server).filter(short).count();
        if short > 0 {
            return Some(format!(
                "the logs of {short} servers have fewer copies than they want: these are made first"
            ));
        }
        match unknown {
            0 => None,
            _ => Some(format!(
                "{unknown} tablets' servers have not said yet what is in them"
            )),
        }
    }

    fn show_plan(
        &mut self,
        store: &Store,
        terms: Terms,
        now: Time,
        plan: &Plan,
        mut waits_for: Vec<String>,
    ) {
        let mut doing = Vec::new();
        if plan.tablets_to_evacuate > 0 {
            doing.push("empties members that drain".to_owned());
        }
        for (is_uneven, what) in plan.uneven.into_iter().zip(["bytes", "operations"]) {
            if is_uneven {
                doing.push(format!("evens out {what}"));
            }
        }
        let pauses = store.config.balancing.pauses();
        let (tablets, servers) = self.balance.backoff.held(now, pauses);
        if !doing.is_empty() && tablets + servers > 0 {
            waits_for.push(format!(
                "migrations failed: {tablets} tablets and {servers} servers that were to take one are left alone for a while"
            ));
        }
        self.balance.shown = status::Balance {
            is_on: terms.evens_out,
            doing: doing.join("; "),
            waits_for: waits_for.join("; "),
            tablets_to_evacuate: plan.tablets_to_evacuate,
            bytes_to_evacuate: plan.bytes_to_evacuate,
            bytes_to_even_out: plan.bytes_to_even_out,
            moves_begun: self.balance.shown.moves_begun,
            merges: self.balance.shown.merges,
            tablets_left_alone: tablets,
            servers_left_alone: servers,
        };
    }
}

fn planned_server(index: u32, member: &Member, server: &Server) -> plan::Server {
    let is_connected = server.is_connected();
    let is_draining = member.is_draining;
    plan::Server {
        index,
        name: format!("server {} of {}", server.id, server.member),
        takes: is_connected && !is_draining,
        gives: is_connected && server.reading_locator().is_some(),
        is_draining,
        has_copies: server.replicas > 0,
        capacity_bytes: server.log_capacity_bytes,
        used_bytes: server.pong.log_live_bytes,
        ..plan::Server::default()
    }
}
