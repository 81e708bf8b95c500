//! One seed, from its scenario to the verdict.

use wire::status::Status;

use crate::cluster::builds::Builds;
use crate::cluster::{Beginning, Cluster};
use crate::coverage::Coverage;
use crate::faults::Faults;
use crate::net::datagrams::{self, Wish};
use crate::oracles::checker;
use crate::oracles::checker::{Input, Keys, Output, Verdict};
use crate::oracles::history::Ending;
use crate::random::Streams;
use crate::scenario::Scenario;
pub use crate::scenario::profile::Profile;
use crate::trace;
use crate::watch::boundaries;
use crate::world::World;

/// Configurations that the search for one key may look at. Histories that are linearizable need about as many as they have
/// operations.
const MAX_CONFIGURATIONS: usize = 100_000;

/// So many times each disk is filled in a run that is about that.
pub const OVERWRITES: f64 = 4.0;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Prints every event.
    pub prints: bool,
    pub profile: Profile,
    /// Servers are reached by datagrams, too, in every seed; otherwise in one of seven of [`Profile::Any`].
    pub fast: bool,
    /// What is broken on purpose, to show that it is found.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<base::bugs::Bug>,
}

impl Options {
    /// Whether something is broken on purpose.
    pub(crate) fn has_bug(&self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.bug.is_some();
        #[cfg(not(feature = "planted-bugs"))]
        false
    }
}

/// Of so many seeds of the usual kind, one has coordinators that take over from each other, another one has processes of different builds, and in a third one
/// stores are made again from their disks.
const SPECIAL_OF: u64 = 20;

/// One in so many has a quiet life, which is long: seed 3, and so on; none of those above.
const QUIET_OF: u64 = 50;
const QUIET: u64 = 3;

/// What came out.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    /// Of everything that happened: equal in every run of a seed by the same build.
    pub trace_hash: u64,
    pub events: u64,
    pub operations: u64,
    pub simulated_ns: u64,
    /// Appended to each backup, in units of what its frames hold; of that on which it was least.
    pub overwritten: f64,
    pub coverage: Coverage,
    /// What was wrong; `None` for a good run.
    pub failure: Option<String>,
}

/// Runs a seed.
pub fn run(seed: u64, options: Options) -> Report {
    let mut streams = Streams::new(seed);
    let random = streams.of("scenario");
    let is_special = |number| options.profile == Profile::Any && seed % SPECIAL_OF == number;
    let is_upgrading = is_special(SPECIAL_OF / 2);
    let is_quiet = options.profile == Profile::Any && seed % QUIET_OF == QUIET;
    let mut scenario = match options.profile {
        Profile::Any if is_quiet => Scenario::draw_quiet(random),
        Profile::Any if is_special(SPECIAL_OF - 1) => Scenario::draw_fail_over(random),
        Profile::Any if is_upgrading => Scenario::draw_upgrading(random),
        Profile::Any if is_special(SPECIAL_OF * 3 / 4) => Scenario::draw_rebuilding(random),
        Profile::Upgrade => Scenario::draw_upgrading(random),
        Profile::Any => Scenario::draw(random),
        Profile::FailOver => Scenario::draw_fail_over(random),
        Profile::Replicated => Scenario::draw_replicated(random),
        Profile::Migrating => Scenario::draw_migrating(random),
        Profile::Unreplicated => Scenario::draw_unreplicated(random),
        Profile::Rebuilding => Scenario::draw_rebuilding(random),
        Profile::Draining => Scenario::draw_draining(random),
        Profile::Overwriting => Scenario::draw_overwriting(random),
        Profile::Quiet => Scenario::draw_quiet(random),
    };
    #[cfg(feature = "planted-bugs")]
    base::bugs::plant(options.bug);
    let is_usual = options.profile == Profile::Any && !options.has_bug() && !scenario.is_quiet;
    let wish = match (options.fast, is_usual) {
        (true, _) => Wish::Always,
        (false, true) => Wish::Perhaps,
        (false, false) => Wish::Never,
    };
    let datagrams = datagrams::draw(&mut streams, wish, &mut scenario);
    let prints = options.prints && trace::print(&format!("{scenario:#?}"));
    let (faults, put_back) =
        Faults::draw(seed, &mut streams, options.profile, is_upgrading, &scenario);
    let beginning = Beginning {
        datagrams,
        put_back,
        builds: Builds::new(faults.has_builds()),
        balancing: faults.balancing(),
        prints,
    };
    let cluster = Cluster::new(scenario, streams, beginning);
    let mut world = World::new(seed, cluster, faults);
    world.run();
    boundaries::look(&mut world.cluster);
    let overwritten = world.cluster.overwritten();
    judge(&mut world, overwritten);
    Report {
        seed,
        trace_hash: world.cluster.trace.hash(),
        events: world.cluster.trace.events,
        operations: world.cluster.history.records.len() as u64,
        simulated_ns: world.cluster.now,
        overwritten,
        coverage: world.cluster.coverage,
        failure: world.cluster.failure,
    }
}

fn judge(world: &mut World, overwritten: f64) {
    if world.cluster.failure.is_some() {
        return;
    }
    if world.cluster.scenario.is_overwriting && overwritten < OVERWRITES {
        let text = format!(
            "too little was written: some disk was filled {overwritten:.1} times, not {OVERWRITES}"
        );
        return world.cluster.fail(text);
    }
    for server in 0..world.cluster.servers.len() {
        for shard in std::mem::take(&mut world.cluster.servers[server].shards) {
            world.cluster.count_shard(&shard);
            if let Err(text) = shard.core.shard().audit() {
                world.cluster.fail(format!(
                    "the books of a shard of m{} are wrong: {text}",
                    server + 1
                ));
            }
            world.objects += shard.core.shard().stats().objects;
        }
    }
    for client in 0..world.cluster.clients.len() {
        if let Some(ports) = world.cluster.clients[client].ports.take() {
            world.cluster.count_ports(&ports);
        }
    }
    count_operations(world);
    let found = final_objects(world);
    if world.objects != found {
        let text = format!(
            "the shards count {} objects, and {found} could be read in the end",
            world.objects
        );
        world.cluster.fail(text);
    }
    for ((table, key), operations) in world.cluster.history.by_key() {
        world.cluster.coverage.hit("keys checked");
        let verdict = checker::check(&operations, MAX_CONFIGURATIONS);
        if verdict != Verdict::Linearizable {
            let key = key.escape_ascii().to_string();
            return world
                .cluster
                .fail(format!("key {key} of table {table}: {verdict:?}"));
        }
    }
}

/// Objects that the reads at the end have found.
fn final_objects(world: &World) -> u64 {
    let found = world.cluster.history.records[world.first_final_read..]
        .iter()
        .filter(|record| matches!(record.output, Some(Ending::Known(Output::Found(..)))))
        .count();
    found as u64
}

fn count_operations(world: &mut World) {
    let coverage = &mut world.cluster.coverage;
    for record in &world.cluster.history.records {
        let what = match (record.input, record.output) {
            (
                Input::Increment(..),
                Some(Ending::Known(Output::Refused(Status::InvalidObject, _))),
            ) => "increments of what is no number refused",
            (Input::Increment(addend, _), Some(Ending::Known(Output::Incremented(..))))
                if addend.double != 0 =>
            {
                "increments as doubles"
            }
            (Input::Write(..) | Input::Remove(_), Some(Ending::Known(Output::Refused(..)))) => {
                "conditional operations refused"
            }
            (Input::Read(_), Some(Ending::Known(Output::Found(_, sight))))
                if matches!(sight.keys, Some(Keys::Of(_))) =>
            {
                "objects with several keys read"
            }
            (_, Some(Ending::Unknown)) => "operations with unknown outcome",
            _ => continue,
        };
        coverage.hit(what);
    }
    let parts = world.cluster.history.records.iter();
    for record in parts.filter(|record| record.is_multi) {
        coverage.hit(match record.input {
            Input::Read(_) => "multi-read objects",
            Input::Write(..) => "multi-written objects",
            Input::Increment(..) => "multi-incremented objects",
            Input::Remove(_) | Input::Loss | Input::Rebuild(_) => "multi-removed objects",
        });
        match record.output {
            Some(Ending::Unknown) => coverage.hit("parts of multi-ops with unknown outcome"),
            Some(Ending::Known(Output::Refused(..))) => coverage.hit("parts of multi-ops refused"),
            Some(Ending::Known(Output::Done(_) | Output::Incremented(..)))
                if record.attempts > 1 =>
            {
                coverage.hit("parts of multi-ops that may have taken effect twice");
            }
            _ => {}
        }
    }
}
