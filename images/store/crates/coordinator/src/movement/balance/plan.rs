//! Which tablet should go where next, and why: a function of what is known, and of nothing else. docs/balancing.md has its rules.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::balancing::{Measure, MoveReason, Rules};
use wire::member::TabletRange;

#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub index: u32,
    /// For people.
    pub name: String,
    /// Tablets may come: it is a master, connected, and not draining.
    pub takes: bool,
    /// Others can read its tablets.
    pub gives: bool,
    pub is_draining: bool,
    /// Takes part in no other migration as its source, or as its target.
    pub may_give: bool,
    pub may_take: bool,
    /// It could not take a tablet several times: only drains try it now.
    pub rests: bool,
    pub has_copies: bool,
    pub capacity_bytes: u64,
    /// Of its memory.
    pub used_bytes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tablet {
    pub range: TabletRange,
    /// Once what is under way has ended.
    pub owner: u32,
    pub bytes: u64,
    /// Operations in a second.
    pub rate: u64,
    /// It is on its way, or shall not be tried again yet.
    pub is_held: bool,
    /// It was moved not long ago, or could not be moved several times: only a drain moves it.
    pub rests: bool,
}

impl Tablet {
    fn amount(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Bytes => self.bytes,
            Measure::Rate => self.rate,
        }
    }
}

pub(crate) struct View<'a> {
    pub rules: &'a Rules,
    pub servers: Vec<Server>,
    pub tablets: Vec<Tablet>,
    pub under_way: usize,
    /// Evenness is looked after, not drains alone.
    pub evens_out: bool,
    /// By measure: moving has begun and not ended.
    pub was_uneven: [bool; 2],
}

/// One tablet, or the part of it from `cut_at` on, is to go from one server to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub tablet: TabletRange,
    pub cut_at: Option<u64>,
    pub source: u32,
    pub target: u32,
    pub why: MoveReason,
}

impl Step {
    /// What moves.
    pub fn part(&self) -> TabletRange {
        TabletRange {
            start_key_hash: self.cut_at.unwrap_or(self.tablet.start_key_hash),
            ..self.tablet
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    pub uneven: [bool; 2],
    /// To leave servers that drain, what is on its way not counted.
    pub tablets_to_evacuate: u64,
    pub bytes_to_evacuate: u64,
    /// That some servers have above their shares.
    pub bytes_to_even_out: u64,
    /// Why not more is begun, for people.
    pub waits_for: Vec<String>,
}

pub(crate) fn plan(view: View<'_>) -> Plan {
    let mut planner = Planner::new(view);
    planner.evacuate();
    for measure in [Measure::Bytes, Measure::Rate] {
        let is_uneven = planner.view.evens_out && planner.even_out(measure);
        planner.plan.uneven[measure as usize] = is_uneven;
    }
    planner.plan
}

struct Planner<'a> {
    /// What is planned counts as done in it.
    view: View<'a>,
    /// By place of the server.
    held: Vec<Held>,
    plan: Plan,
}

/// What a server's tablets come to.
#[derive(Clone, Default)]
struct Held {
    tablets: u64,
    /// By measure.
    amounts: [u64; 2],
}

impl Held {
    fn add(&mut self, tablet: &Tablet) {
        self.tablets += 1;
        self.amounts[0] = self.amounts[0].saturating_add(tablet.bytes);
        self.amounts[1] = self.amounts[1].saturating_add(tablet.rate);
    }
    fn subtract(&mut self, tablet: &Tablet) {
        self.tablets = self.tablets.saturating_sub(1);
        self.amounts[0] = self.amounts[0].saturating_sub(tablet.bytes);
        self.amounts[1] = self.amounts[1].saturating_sub(tablet.rate);
    }
}

/// What a server has above its share, or below.
#[derive(Clone, Copy)]
struct Excess {
    measure: Measure,
    server: usize,
    amount: u64,
    share: u64,
}

impl Excess {
    fn above(&self) -> u64 {
        self.amount.saturating_sub(self.share)
    }
    fn below(&self) -> u64 {
        self.share.saturating_sub(self.amount)
    }
    fn is_above_by(&self, percent: u64, least: u64) -> bool {
        let limit = u128::from(self.share) * u128::from(100 + percent);
        u128::from(self.amount) * 100 >= limit && self.above() >= least.max(1)
    }
    /// By how much of its share, to compare servers.
    fn permille(&self) -> u128 {
        u128::from(self.amount) * 1000 / u128::from(self.share.max(1))
    }
}

impl<'a> Planner<'a> {
    fn new(view: View<'a>) -> Planner<'a> {
        let places: BTreeMap<u32, usize> = (view.servers.iter().enumerate())
            .map(|(place, server)| (server.index, place))
            .collect();
        let mut held = vec![Held::default(); view.servers.len()];
        for tablet in &view.tablets {
            if let Some(&place) = places.get(&tablet.owner) {
                held[place].add(tablet);
            }
        }
        Planner {
            view,
            held,
            plan: Plan::default(),
        }
    }

    fn has_room(&self) -> bool {
        self.view.under_way + self.plan.steps.len() < self.view.rules.max_under_way
    }

    fn waits(&mut self, text: String) {
        const MAX: usize = 4;
        if self.plan.waits_for.len() < MAX && !self.plan.waits_for.contains(&text) {
            self.plan.waits_for.push(text);
        }
    }

    // ---- drains ----

    fn evacuate(&mut self) {
        let draining = self.view.servers.iter();
        let draining = draining
            .enumerate()
            .filter(|(_, server)| server.is_draining);
        let draining: Vec<usize> = draining.map(|(at, _)| at).collect();
        for source in draining {
            let owner = self.view.servers[source].index;
            let mut tablets = self.view.tablets.iter();
            let first = tablets.position(|tablet| tablet.owner == owner && !tablet.is_held);
            self.plan.tablets_to_evacuate += self.held[source].tablets;
            self.plan.bytes_to_evacuate += self.held[source].amounts[0];
            if let Some(first) = first {
                self.evacuate_one(source, first);
            }
        }
    }

    fn evacuate_one(&mut self, source: usize, tablet: usize) {
        let name = self.view.servers[source].name.clone();
        if !self.view.servers[source].gives {
            return self.waits(format!(
                "{name} drains, and is not connected, or runs an older build that has no port at which others could read its tablets"
            ));
        }
        if !self.view.servers[source].may_give || !self.has_room() {
            return;
        }
        let others = 0..self.view.servers.len();
        let able = others.filter(|&to| self.fits(source, to, &self.view.tablets[tablet]));
        let able: Vec<usize> = able.collect();
        if able.is_empty() {
            return self.waits(format!(
                "{name} drains, and no other server that is connected can take its next tablet, or has memory for it"
            ));
        }
        // Those that are busy are not waited for.
        let free = able
            .into_iter()
            .filter(|&to| self.view.servers[to].may_take);
        let Some(target) = free.min_by_key(|&to| (self.fill(to), to)) else {
            return;
        };
        let why = MoveReason::Drains { server: name };
        self.step(source, target, tablet, None, why);
    }

    /// Of its memory, in thousandths; with one for each tablet, so that empty ones are spread, too.
    fn fill(&self, server: usize) -> u128 {
        let tablets = u128::from(self.held[server].tablets);
        let server = &self.view.servers[server];
        let capacity = u128::from(server.capacity_bytes.max(1));
        u128::from(server.used_bytes) * 1000 / capacity + tablets
    }

    /// Whether nothing stands against it that lasts.
    fn fits(&self, source: usize, target: usize, tablet: &Tablet) -> bool {
        let (from, to) = (&self.view.servers[source], &self.view.servers[target]);
        let limit = u128::from(to.capacity_bytes) * u128::from(self.view.rules.full_percent);
        from.index != to.index
            && to.takes
            && (to.has_copies || !from.has_copies)
            && u128::from(to.used_bytes.saturating_add(tablet.bytes)) * 100 <= limit
    }

    // ---- evenness ----

    /// What each server has that takes tablets, beside its share: of bytes after its memory, of operations all the same.
    fn excesses(&self, measure: Measure) -> Vec<Excess> {
        let servers = self.view.servers.iter().enumerate();
        let taking: Vec<usize> = servers
            .filter(|(_, server)| server.takes)
            .map(|(place, _)| place)
            .collect();
        let weight = |place: usize| match measure {
            Measure::Bytes => u128::from(self.view.servers[place].capacity_bytes),
            Measure::Rate => 1,
        };
        let amount = |place: usize| self.held[place].amounts[measure as usize];
        let total: u128 = taking.iter().map(|&at| u128::from(amount(at))).sum();
        let weights: u128 = taking.iter().map(|&at| weight(at)).sum();
        let excess = |server| Excess {
            measure,
            server,
            amount: amount(server),
            share: (total * weight(server) / weights.max(1)) as u64,
        };
        taking.into_iter().map(excess).collect()
    }

    fn least(&self, measure: Measure, server: usize) -> u64 {
        let rules = self.view.rules;
        match measure {
            Measure::Bytes => {
                let capacity = u128::from(self.view.servers[server].capacity_bytes);
                let part = capacity * u128::from(rules.min_capacity_percent) / 100;
                rules.min_bytes.max(part as u64)
            }
            Measure::Rate => rules.min_rate,
        }
    }

    /// Plans moves that make it more even; says whether it is uneven still.
    fn even_out(&mut self, measure: Measure) -> bool {
        let at = measure as usize;
        let mut excesses = self.excesses(measure);
        if measure == Measure::Bytes {
            self.plan.bytes_to_even_out = excesses.iter().map(Excess::above).sum();
        }
        let rules = self.view.rules;
        let gives = |planner: &Self, excess: &Excess| {
            excess.is_above_by(rules.end_percent, planner.least(measure, excess.server) / 2)
        };
        let is_uneven = |planner: &Self, excess: &Excess| match planner.view.was_uneven[at] {
            true => gives(planner, excess),
            false => excess.is_above_by(rules.begin_percent, planner.least(measure, excess.server)),
        };
        if !excesses.iter().any(|excess| is_uneven(self, excess)) {
            return false;
        }
        let begun = self.plan.steps.len();
        let mut has_moved = true;
        while has_moved && self.has_room() {
            excesses.sort_by_key(|it| (Reverse(it.permille()), it.server));
            has_moved = excesses.iter().any(|from| {
                let targets = excesses.iter().rev().take_while(|to| to.below() > 0);
                gives(self, from)
                    && targets
                        .into_iter()
                        .any(|to| self.relieve(measure, from, to))
            });
            excesses = self.excesses(measure);
        }
        if self.plan.steps.len() == begun && self.view.under_way == 0 {
            self.waits(format!(
                "no tablet, nor a part of one, can move now that would make servers' {} more even",
                measure.name()
            ));
        }
        true
    }

    /// Plans a move from one to the other, if there is one that makes both more even.
    fn relieve(&mut self, measure: Measure, from: &Excess, to: &Excess) -> bool {
        let (source, target) = (from.server, to.server);
        let servers = &self.view.servers;
        let wanted = from.above().min(to.below());
        let is_worth_it = wanted >= (self.least(measure, source) / 8).max(1);
        if !servers[source].gives
            || !servers[source].may_give
            || !servers[target].may_take
            || servers[target].rests
            || !is_worth_it
        {
            return false;
        }
        let Some((tablet, cut_at)) = self.choose(measure, source, target, wanted) else {
            return false;
        };
        let why = MoveReason::Uneven {
            server: servers[source].name.clone(),
            amount: from.amount,
            measure,
            share: from.share,
        };
        self.step(source, target, tablet, cut_at, why);
        true
    }

    /// The largest tablet of no more than what is wanted; if that is less than half of it, rather a part of a larger one.
    fn choose(
        &self,
        measure: Measure,
        source: usize,
        target: usize,
        wanted: u64,
    ) -> Option<(usize, Option<u64>)> {
        let mut others = self.excesses(measure.other()).into_iter();
        let other = others.find(|excess| excess.server == target)?;
        let owner = self.view.servers[source].index;
        let may_go = |tablet: &Tablet| {
            tablet.owner == owner && !tablet.is_held && !tablet.rests && tablet.amount(measure) > 0
        };
        let tablets = self.view.tablets.iter().enumerate();
        let (mut whole, mut larger): (Option<usize>, Option<usize>) = (None, None);
        for (at, tablet) in tablets.filter(|(_, tablet)| may_go(tablet)) {
            let amount = tablet.amount(measure);
            let of = |at: usize| self.view.tablets[at].amount(measure);
            if amount > wanted {
                larger = larger.filter(|&best| of(best) <= amount).or(Some(at));
            } else if self.is_harmless(source, tablet, &other) {
                whole = whole.filter(|&best| of(best) >= amount).or(Some(at));
            }
        }
        let is_enough = |&at: &usize| self.view.tablets[at].amount(measure) >= wanted.div_ceil(2);
        if let Some(at) = whole.filter(is_enough) {
            return Some((at, None));
        }
        let part = larger.and_then(|at| {
            let tablet = &self.view.tablets[at];
            let cut_at = cut_off(&tablet.range, wanted, tablet.amount(measure))?;
            let (_, second) = cut(tablet, cut_at);
            self.is_harmless(source, &second, &other)
                .then_some((at, Some(cut_at)))
        });
        part.or(whole.map(|at| (at, None)))
    }

    /// The target has memory for it, and would not be above its share of the other measure.
    fn is_harmless(&self, source: usize, tablet: &Tablet, target: &Excess) -> bool {
        let at = target.server;
        let after = Excess {
            amount: target.amount.saturating_add(tablet.amount(target.measure)),
            ..*target
        };
        let least = self.least(target.measure, at) / 2;
        self.fits(source, at, tablet) && !after.is_above_by(self.view.rules.end_percent, least)
    }

    // ---- both ----

    fn step(
        &mut self,
        source: usize,
        target: usize,
        tablet: usize,
        cut_at: Option<u64>,
        why: MoveReason,
    ) {
        let whole = self.view.tablets[tablet].clone();
        let (from, to) = (
            self.view.servers[source].index,
            self.view.servers[target].index,
        );
        let moved = match cut_at {
            None => tablet,
            Some(cut_at) => {
                let (first, second) = cut(&whole, cut_at);
                self.held[source].tablets += 1;
                self.view.tablets[tablet] = first;
                self.view.tablets.push(second);
                self.view.tablets.len() - 1
            }
        };
        let moved = &mut self.view.tablets[moved];
        moved.owner = to;
        moved.is_held = true;
        let bytes = moved.bytes;
        self.held[source].subtract(moved);
        self.held[target].add(moved);
        self.view.servers[source].may_give = false;
        self.view.servers[target].may_take = false;
        self.view.servers[target].used_bytes += bytes;
        self.plan.steps.push(Step {
            tablet: whole.range,
            cut_at,
            source: from,
            target: to,
            why,
        });
    }
}

/// Where to cut a tablet so that the part behind holds so much of it, if keys are where hashes put them. `None`: it cannot be cut.
fn cut_off(range: &TabletRange, wanted: u64, amount: u64) -> Option<u64> {
    let width = u128::from(range.end_key_hash - range.start_key_hash) + 1;
    if width == 1 {
        return None;
    }
    let part = width * u128::from(wanted) / u128::from(amount.max(1));
    let part = part.clamp(1, width - 1);
    Some(range.end_key_hash - (part - 1) as u64)
}

/// Both parts of a tablet, each with as much as its width says.
pub(super) fn cut(tablet: &Tablet, cut_at: u64) -> (Tablet, Tablet) {
    let range = tablet.range;
    let width = u128::from(range.end_key_hash - range.start_key_hash) + 1;
    let second_width = u128::from(range.end_key_hash - cut_at) + 1;
    let of = |amount: u64| (u128::from(amount) * second_width / width) as u64;
    let second = Tablet {
        range: TabletRange {
            start_key_hash: cut_at,
            ..range
        },
        bytes: of(tablet.bytes),
        rate: of(tablet.rate),
        ..tablet.clone()
    };
    let first = Tablet {
        range: TabletRange {
            end_key_hash: cut_at - 1,
            ..range
        },
        bytes: tablet.bytes - second.bytes,
        rate: tablet.rate - second.rate,
        ..tablet.clone()
    };
    (first, second)
}
