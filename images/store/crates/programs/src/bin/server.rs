use std::process::ExitCode;

use clap::Parser;
use programs::server::{Options, check, run};

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(text) = check(&options) {
        eprintln!("error: {text}");
        return ExitCode::from(programs::EXIT_USAGE);
    }
    programs::report(run(&options))
}
