use std::process::ExitCode;

use clap::Parser;
use programs::rcbox::{Options, run};

fn main() -> ExitCode {
    run(Options::parse())
}
