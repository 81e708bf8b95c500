//! Runs seeds of the simulator.
#![expect(
    clippy::disallowed_types,
    reason = "the driver of the simulator: it counts real seconds and uses all processors, and no run sees any of it"
)]

use std::cell::Cell;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use simulator::{Coverage, Options, Profile, Report, run};

const EXAMPLES: &str = "\
Examples:
  simulate --seeds 0..1000 --quick    every seed twice with equal trace hashes, everything met at least once
  simulate --seed 17 --trace          what happens in seed 17, one line per event
  simulate --seconds 3600             new seeds for an hour

Exit code: 0 all good, 1 something failed (the command that runs the failed seed again is printed), 2 wrong usage.";

/// Runs whole clusters in one thread, from seeds, with faults, and checks what clients saw.
#[derive(Parser)]
#[command(version, about, after_help = EXAMPLES)]
struct Arguments {
    /// Run one seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "seconds"])]
    seed: Option<u64>,
    /// Run the seeds from A to B - 1
    #[arg(long, value_name = "A..B", value_parser = parse_range, conflicts_with = "seconds")]
    seeds: Option<(u64, u64)>,
    /// Run new seeds for so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Fail if something that the seeds should meet was never met
    #[arg(long)]
    quick: bool,
    /// Overwrite objects until every disk was filled several times
    #[arg(long, conflicts_with = "quick")]
    overwriting: bool,
    /// Print every event (with --seed)
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Seeds that run at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print the summary as JSON on standard output; progress goes to standard error
    #[arg(long)]
    json: bool,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match text.split_once("..").map(|(a, b)| (number(a), number(b))) {
        Some((Some(first), Some(end))) if first < end => Ok((first, end)),
        _ => Err("give two numbers, the second larger, such as 0..200".to_owned()),
    }
}

thread_local! {
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
}

fn rerun_command(seed: u64, profile: Profile) -> String {
    let more = match profile {
        Profile::Overwriting => " --overwriting",
        Profile::Any | Profile::Replicated => "",
    };
    format!("hack/simulate.sh --seed {seed}{more} --trace")
}

/// Runs a seed; a panic is a failure like any other, and so are two runs that differ.
fn run_seed(seed: u64, profile: Profile, times: u32, prints: bool) -> Report {
    RUNNING.set(Some(seed));
    let options = Options {
        prints,
        profile,
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
    profile: Profile,
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
    seeds: u64,
    events: u64,
    operations: u64,
    simulated_ns: u64,
    coverage: Coverage,
    failures: Vec<(u64, String)>,
}

/// Failures after which no more seeds are run.
const MAX_FAILURES: usize = 5;

fn run_all(work: &Work, jobs: usize, started: Instant) -> Summary {
    let mut summary = Summary::default();
    let (sender, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(seed) = work.take() {
                    if sender.send(run_seed(seed, work.profile, 2, false)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut shown = started;
        for report in reports {
            summary.seeds += 1;
            summary.events += report.events;
            summary.operations += report.operations;
            summary.simulated_ns += report.simulated_ns;
            summary.coverage.merge(&report.coverage);
            if let Some(text) = report.failure {
                eprintln!("seed {} failed: {text}", report.seed);
                eprintln!("run it again: {}", rerun_command(report.seed, work.profile));
                summary.failures.push((report.seed, text));
                if summary.failures.len() >= MAX_FAILURES {
                    work.stop.store(true, Ordering::Relaxed);
                }
            }
            if shown.elapsed() >= Duration::from_secs(5) {
                shown = Instant::now();
                eprintln!(
                    "{:>6} s  {} seeds, {} failed",
                    started.elapsed().as_secs(),
                    summary.seeds,
                    summary.failures.len()
                );
            }
        }
    });
    summary
}

fn print_summary(summary: &Summary, profile: Profile, elapsed: Duration, is_json: bool) {
    if is_json {
        let coverage: serde_json::Map<_, _> = summary
            .coverage
            .iter()
            .map(|(what, count)| (what.to_owned(), count.into()))
            .collect();
        let failures: Vec<_> = summary
            .failures
            .iter()
            .map(|(seed, text)| {
                serde_json::json!({"seed": seed, "text": text, "rerun": rerun_command(*seed, profile)})
            })
            .collect();
        let value = serde_json::json!({
            "seeds": summary.seeds,
            "events": summary.events,
            "operations": summary.operations,
            "simulatedSeconds": summary.simulated_ns / 1_000_000_000,
            "elapsedSeconds": elapsed.as_secs_f64(),
            "coverage": coverage,
            "failures": failures,
        });
        println!("{value:#}");
        return;
    }
    for (what, count) in summary.coverage.iter() {
        println!("{count:>12}  {what}");
    }
    println!(
        "{} seeds (each run twice), {} events, {} operations, {} simulated seconds in {:.1} s: {} failed",
        summary.seeds,
        summary.events,
        summary.operations,
        summary.simulated_ns / 1_000_000_000,
        elapsed.as_secs_f64(),
        summary.failures.len()
    );
}

fn one_seed(seed: u64, profile: Profile, trace: bool) -> ExitCode {
    let report = run_seed(seed, profile, if trace { 1 } else { 2 }, trace);
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
            rerun_command(seed, profile)
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
    let profile = match arguments.overwriting {
        true => Profile::Overwriting,
        false => Profile::Any,
    };
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        default_hook(info);
        if let Some(seed) = RUNNING.get() {
            eprintln!(
                "in seed {seed}; run it again: {}",
                rerun_command(seed, profile)
            );
        }
        let _ = std::io::stderr().flush();
    }));
    if let Some(seed) = arguments.seed {
        return one_seed(seed, profile, arguments.trace);
    }
    let started = Instant::now();
    let (first, end) = match (arguments.seeds, arguments.seconds) {
        (Some(range), _) => range,
        (None, Some(_)) => {
            // Not those of last time.
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let first = since.map_or(0, |since| since.as_secs()) * 1_000_000;
            eprintln!("seeds from {first} on");
            (first, u64::MAX)
        }
        (None, None) => (0, 1000),
    };
    let work = Work {
        profile,
        next: AtomicU64::new(first),
        end,
        deadline: arguments
            .seconds
            .map(|seconds| started + Duration::from_secs(seconds)),
        stop: AtomicBool::new(false),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(processors).max(1);
    let mut summary = run_all(&work, jobs, started);
    print_summary(&summary, profile, started.elapsed(), arguments.json);
    if arguments.quick {
        let missing = summary.coverage.missing();
        if !missing.is_empty() {
            eprintln!(
                "never met: {}; a set of seeds that misses it proves too little",
                missing.join(", ")
            );
            summary.failures.push((first, "coverage".to_owned()));
        }
    }
    if summary.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
