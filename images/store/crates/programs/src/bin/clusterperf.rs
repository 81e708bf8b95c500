use std::process::ExitCode;

use clap::Parser;
use programs::clusterperf::{Options, check, ping, run};

fn main() -> ExitCode {
    // The ping has no store to measure, and options of its own.
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    if arguments.next().is_some_and(|first| first == "ping") {
        let options = ping::Options::parse_from(name.into_iter().chain(arguments));
        return programs::report(ping::run(&options));
    }
    let options = Options::parse();
    if let Err(text) = check(&options) {
        eprintln!("error: {text}");
        return ExitCode::from(programs::EXIT_USAGE);
    }
    programs::report(run(&options))
}
