//! Runs seeds of the simulator.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the driver of the simulator: it counts real seconds, uses all processors and writes a file, and no run sees any of it"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use simulator::{Coverage, Options, Profile, Report, run};

const EXAMPLES: &str = "\
Examples:
  simulate --seeds 0..1000 --quick           every seed twice with equal trace hashes, everything met at least once
  simulate --seed 17 --trace                 what happens in seed 17, one line per event
  simulate --seconds 3600 --once             new seeds for an hour
  simulate --seeds 5000 --once --json        5000 new seeds, with the summary as JSON
  simulate --seeds 20000..30000 --seconds 60 as many of these as a minute allows
  simulate --seeds 0..3000 --once --hashes F what two builds that do the same have in common

Exit code: 0 all good, 1 a seed failed or, with --quick, something was never met; 2 wrong usage.
For each seed that failed the command that runs it again with its trace is printed.";

/// Runs whole clusters in one thread, from seeds, with faults, and checks what clients saw.
#[derive(Parser)]
#[command(version, about, after_help = EXAMPLES)]
struct Arguments {
    /// Run one seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "seconds", "hashes"])]
    seed: Option<u64>,
    /// Run the seeds from A to B - 1, or so many new ones [default: 0..1000, without end with --seconds]
    #[arg(long, value_name = "A..B|COUNT", value_parser = parse_seeds)]
    seeds: Option<Seeds>,
    /// Begin no more seeds after so many seconds [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Run each seed once, not a second time to compare
    #[arg(long)]
    once: bool,
    /// Run only every so many-th seed a second time to compare
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    repeat_every: u64,
    /// Fail if something that the seeds should meet was never met
    #[arg(long)]
    quick: bool,
    /// Overwrite objects until every disk was filled several times
    #[arg(long, conflicts_with = "quick")]
    overwriting: bool,
    /// Coordinators take over from each other in every seed
    #[arg(long, conflicts_with_all = ["quick", "overwriting"])]
    fail_over: bool,
    /// Move tablets between servers, whose logs have replicas, all the time
    #[arg(long, conflicts_with_all = ["quick", "overwriting"])]
    migrating: bool,
    /// No log has replicas, and tablets move between servers all the time
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "fail_over", "replicated"])]
    unreplicated: bool,
    /// Lose all that the coordinator has noted with all processes, and make the store again from its disks, now and then
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "fail_over", "unreplicated"])]
    rebuilding: bool,
    /// Drain servers, whose logs have replicas, and lose them with their disks then
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "fail_over", "rebuilding", "unreplicated"])]
    draining: bool,
    /// All logs have replicas, and no tablet is moved
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "draining"])]
    replicated: bool,
    /// Upgrade servers and coordinators to a build with another format, and back, in every seed
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "fail_over", "replicated", "unreplicated"])]
    upgrade: bool,
    /// Restart members again and again, and give orders while they are away, in stores that are hardly used
    #[arg(long, conflicts_with_all = ["quick", "overwriting", "migrating", "fail_over", "replicated", "upgrade", "draining", "rebuilding"])]
    quiet_life: bool,
    /// Servers are reached by datagrams, too, in every seed
    #[arg(long, conflicts_with = "quick")]
    fast: bool,
    /// Print every event (with --seed)
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Seeds that run at a time [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1000))]
    jobs: Option<u64>,
    /// Print the summary as JSON on standard output; progress and failures go to standard error in any case
    #[arg(long)]
    json: bool,
    /// Write the trace hash of each seed to a file, to compare two builds that should do the same
    #[arg(long, value_name = "FILE")]
    hashes: Option<PathBuf>,
}

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
enum Seeds {
    Range(u64, u64),
    /// So many that nobody has run before.
    New(u64),
}

impl Seeds {
    /// First and end.
    fn resolve(self) -> (u64, u64) {
        match self {
            Seeds::Range(first, end) => (first, end),
            Seeds::New(count) => {
                // Not those of last time.
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let first = since.map_or(0, |since| since.as_secs()) * 1_000_000;
                (first, first.saturating_add(count))
            }
        }
    }
}

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let seeds = match text.split_once("..") {
        Some((first, end)) => match (number(first), number(end)) {
            (Some(first), Some(end)) if first < end => Some(Seeds::Range(first, end)),
            _ => None,
        },
        None => number(text).filter(|&count| count > 0).map(Seeds::New),
    };
    seeds.ok_or_else(|| "give two numbers, the second larger, such as 0..200, or how many new seeds, such as 5000".to_owned())
}

thread_local! {
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What kind of runs.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    profile: Profile,
    fast: bool,
}

fn rerun_command(seed: u64, kind: Kind) -> String {
    let fast = if kind.fast { " --fast" } else { "" };
    let more = match kind.profile {
        Profile::Overwriting => " --overwriting",
        Profile::FailOver => " --fail-over",
        Profile::Migrating => " --migrating",
        Profile::Unreplicated => " --unreplicated",
        Profile::Rebuilding => " --rebuilding",
        Profile::Draining => " --draining",
        Profile::Replicated => " --replicated",
        Profile::Upgrade => " --upgrade",
        Profile::Quiet => " --quiet-life",
        Profile::Any => "",
    };
    format!("hack/simulate.sh --seed {seed}{more}{fast} --trace")
}

/// Runs a seed; a panic is a failure like any other, and so are two runs that differ.
fn run_seed(seed: u64, kind: Kind, times: u32, prints: bool) -> Report {
    RUNNING.set(Some(seed));
    let options = Options {
        prints,
        profile: kind.profile,
        fast: kind.fast,
        ..Options::default()
    };
    let attempt = || panic::catch_unwind(AssertUnwindSafe(|| run(seed, options)));
    let mut report = match attempt() {
        Ok(report) => report,
        Err(_) => panicked(seed),
    };
    for _ in 1..times {
        if report.failure.is_some() {
            break;
        }
        if let Ok(again) = attempt()
            && again.trace_hash != report.trace_hash
        {
            report.failure = Some(format!(
                "two runs differ: trace hashes {:016x} and {:016x}, {} and {} events; something depends on more than the seed",
                report.trace_hash, again.trace_hash, report.events, again.events
            ));
        }
    }
    RUNNING.set(None);
    report
}

fn panicked(seed: u64) -> Report {
    Report {
        seed,
        trace_hash: 0,
        events: 0,
        operations: 0,
        simulated_ns: 0,
        overwritten: 0.0,
        coverage: Coverage::default(),
        failure: Some("an assertion failed; its text is above".to_owned()),
    }
}

/// Where seeds come from, and for how long.
struct Work {
    kind: Kind,
    next: AtomicU64,
    end: u64,
    deadline: Option<Instant>,
    stop: AtomicBool,
}

impl Work {
    fn take(&self) -> Option<u64> {
        let over = self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        if over || self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        (seed < self.end).then_some(seed)
    }
}

#[derive(Default)]
struct Summary {
    kind: Kind,
    first: u64,
    repeats: Repeats,
    elapsed: Duration,
    seeds: u64,
    events: u64,
    operations: u64,
    simulated_ns: u64,
    coverage: Coverage,
    failures: Vec<(u64, String)>,
    /// By seed.
    hashes: BTreeMap<u64, u64>,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.hashes.insert(report.seed, report.trace_hash);
        self.seeds += 1;
        self.events += report.events;
        self.operations += report.operations;
        self.simulated_ns += report.simulated_ns;
        self.coverage.merge(&report.coverage);
        if let Some(text) = report.failure {
            eprintln!("seed {} failed: {text}", report.seed);
            eprintln!("run it again: {}", rerun_command(report.seed, self.kind));
            self.failures.push((report.seed, text));
        }
    }

    fn simulated_hours(&self) -> f64 {
        self.simulated_ns as f64 / 3.6e12
    }

    fn seeds_per_second(&self) -> f64 {
        self.seeds as f64 / self.elapsed.as_secs_f64().max(1e-3)
    }

    /// What was done, in a line.
    fn text(&self) -> String {
        format!(
            "{} seeds from {} on, {}, {:.1} per second, {:.1} simulated hours, {} failed",
            self.seeds,
            self.first,
            self.repeats,
            self.seeds_per_second(),
            self.simulated_hours(),
            self.failures.len()
        )
    }
}

/// Failures after which no more seeds are run.
const MAX_FAILURES: usize = 5;
/// Time between two lines that say how far it is.
const PROGRESS: Duration = Duration::from_secs(60);

/// Which seeds run a second time, to compare.
#[derive(Clone, Copy, Default)]
enum Repeats {
    #[default]
    None,
    /// Each whose number is divisible by this.
    Every(u64),
}

impl Repeats {
    fn times(self, seed: u64) -> u32 {
        match self {
            Repeats::Every(number) if seed.is_multiple_of(number) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repeats::None => f.write_str("each once"),
            Repeats::Every(1) => f.write_str("each twice"),
            Repeats::Every(number) => write!(f, "one of {number} twice"),
        }
    }
}

fn run_all(work: &Work, jobs: u64, repeats: Repeats) -> Summary {
    let started = Instant::now();
    let mut summary = Summary {
        kind: work.kind,
        first: work.next.load(Ordering::Relaxed),
        repeats,
        ..Summary::default()
    };
    let (sender, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(seed) = work.take() {
                    let report = run_seed(seed, work.kind, repeats.times(seed), false);
                    if sender.send(report).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut next_line = PROGRESS;
        for report in reports {
            summary.add(report);
            summary.elapsed = started.elapsed();
            if summary.failures.len() >= MAX_FAILURES {
                work.stop.store(true, Ordering::Relaxed);
            }
            if summary.elapsed >= next_line {
                next_line += PROGRESS;
                let seconds = summary.elapsed.as_secs();
                eprintln!("{:>4} min  {}", seconds / 60, summary.text());
            }
        }
    });
    summary
}

fn print_json(summary: &Summary) {
    let coverage: serde_json::Map<_, _> = summary
        .coverage
        .iter()
        .map(|(what, count)| (what.to_owned(), count.into()))
        .collect();
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|(seed, text)| {
            serde_json::json!({"seed": seed, "text": text, "rerun": rerun_command(*seed, summary.kind)})
        })
        .collect();
    let value = serde_json::json!({
        "firstSeed": summary.first,
        "seeds": summary.seeds,
        "repeatedEvery": match summary.repeats {
            Repeats::None => 0,
            Repeats::Every(number) => number,
        },
        "events": summary.events,
        "operations": summary.operations,
        "simulatedHours": summary.simulated_hours(),
        "elapsedSeconds": summary.elapsed.as_secs_f64(),
        "seedsPerSecond": summary.seeds_per_second(),
        "coverage": coverage,
        "neverMet": summary.coverage.missing(),
        "failures": failures,
    });
    println!("{value:#}");
}

fn write_hashes(summary: &Summary, file: &Path) -> std::io::Result<()> {
    let lines = summary.hashes.iter();
    let text: String = lines
        .map(|(seed, hash)| format!("{seed} {hash:016x}\n"))
        .collect();
    std::fs::write(file, text)
}

fn print_text(summary: &Summary) {
    for (what, count) in summary.coverage.iter() {
        println!("{count:>12}  {what}");
    }
    println!(
        "{} in {:.1} s; {} events, {} operations",
        summary.text(),
        summary.elapsed.as_secs_f64(),
        summary.events,
        summary.operations
    );
    for (seed, text) in &summary.failures {
        println!("seed {seed} failed: {}", text.lines().next().unwrap_or(""));
        println!("  {}", rerun_command(*seed, summary.kind));
    }
    if summary.failures.len() >= MAX_FAILURES {
        println!("no more seeds were begun after {MAX_FAILURES} failures");
    }
}

fn one_seed(seed: u64, kind: Kind, trace: bool) -> ExitCode {
    let report = run_seed(seed, kind, if trace { 1 } else { 2 }, trace);
    let mut text = format!(
        "seed {seed}: trace hash {:016x}, {} events, {} operations, {:.3} simulated seconds\n",
        report.trace_hash,
        report.events,
        report.operations,
        report.simulated_ns as f64 / 1e9
    );
    let is_good = report.failure.is_none();
    match report.failure {
        None => text.push_str("good\n"),
        Some(failure) => text.push_str(&format!("failed: {failure}\n")),
    }
    if !is_good && !trace {
        text.push_str(&format!(
            "see what happens: {}\n",
            rerun_command(seed, kind)
        ));
    }
    // Whoever has read enough of a trace may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let profile = match () {
        () if arguments.overwriting => Profile::Overwriting,
        () if arguments.fail_over => Profile::FailOver,
        () if arguments.migrating => Profile::Migrating,
        () if arguments.unreplicated => Profile::Unreplicated,
        () if arguments.rebuilding => Profile::Rebuilding,
        () if arguments.draining => Profile::Draining,
        () if arguments.replicated => Profile::Replicated,
        () if arguments.upgrade => Profile::Upgrade,
        () if arguments.quiet_life => Profile::Quiet,
        _ => Profile::Any,
    };
    let kind = Kind {
        profile,
        fast: arguments.fast,
    };
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        default_hook(info);
        if let Some(seed) = RUNNING.get() {
            eprintln!(
                "in seed {seed}; run it again: {}",
                rerun_command(seed, kind)
            );
        }
        let _ = std::io::stderr().flush();
    }));
    if let Some(seed) = arguments.seed {
        return one_seed(seed, kind, arguments.trace);
    }
    let seeds = arguments.seeds.unwrap_or(match arguments.seconds {
        Some(_) => Seeds::New(u64::MAX),
        None => Seeds::Range(0, 1000),
    });
    let (first, end) = seeds.resolve();
    if let Seeds::New(_) = seeds {
        eprintln!("new seeds from {first} on");
    }
    let seconds = arguments.seconds.map(Duration::from_secs);
    let work = Work {
        kind,
        next: AtomicU64::new(first),
        end,
        deadline: seconds.and_then(|seconds| Instant::now().checked_add(seconds)),
        stop: AtomicBool::new(false),
    };
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let jobs = arguments.jobs.unwrap_or(processors);
    let repeats = match arguments.once {
        true => Repeats::None,
        false => Repeats::Every(arguments.repeat_every),
    };
    let summary = run_all(&work, jobs, repeats);
    if arguments.json {
        print_json(&summary);
    } else {
        print_text(&summary);
    }
    if let Some(file) = &arguments.hashes
        && let Err(error) = write_hashes(&summary, file)
    {
        eprintln!("error: {}: {error}", file.display());
        return ExitCode::from(2);
    }
    let missing = summary.coverage.missing();
    if arguments.quick && !missing.is_empty() {
        eprintln!(
            "never met: {}; a set of seeds that misses it proves too little",
            missing.join(", ")
        );
        return ExitCode::FAILURE;
    }
    if summary.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
