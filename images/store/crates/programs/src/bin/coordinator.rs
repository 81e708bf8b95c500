use std::process::ExitCode;

use clap::Parser;
use programs::coordinator::{Options, run};

fn main() -> ExitCode {
    programs::report(run(&Options::parse()))
}
