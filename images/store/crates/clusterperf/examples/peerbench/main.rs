//! Measures a store beside its peers: the same client loop for all of them, what differs is the text on the wire.
//!
//! usage: peerbench TARGET ADDRESS SECONDS [CASE]   measures everything, SECONDS for each; a line of JSON for each; with
//!                                                  CASE only what has that in its name, as set-100x8x16 (bytes x connections x under way)
//!        peerbench echo ADDRESS                    serves `ping`: sends everything back, polling all the time
//!        peerbench report FOLDER < LINES           medians of all rounds, as tables; FOLDER/peers.json and plot.svg
//! targets: ping, redis, valkey, memcached, rcbox (ADDRESS is the coordinator's), rcbox-library (through the client library)
//!
//! Requests are written to sockets, and sockets are read without sleeping until whole answers are there (but where a row
//! says that the client sleeps). Every answer is checked.

mod connection;
mod echo;
mod library;
mod load;
mod plan;
mod protocols;
mod report;

use std::process::ExitCode;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["echo", address] => echo::serve(address),
        ["report", folder] => report::report(folder.as_ref()),
        [target, address, seconds] => measure(target, address, seconds, ""),
        [target, address, seconds, only] => measure(target, address, seconds, only),
        _ => Err(
            "usage: peerbench TARGET ADDRESS SECONDS [CASE] | echo ADDRESS | report FOLDER".into(),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(target: &str, address: &str, seconds: &str, only: &str) -> Result<(), Failure> {
    let time = Duration::from_secs_f64(seconds.parse()?);
    if target == "rcbox-library" {
        return library::measure(address, time, only);
    }
    let protocol = protocols::of(target, address)?;
    load::measure(target, &*protocol, time, only)
}
