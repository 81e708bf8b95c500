//! The programs of a store as real processes: where they are, what they do with a command line, and a coordinator and a server for as long as an
//! example runs. Programs that are not of the crate under test must have been built: `cargo test --workspace` and hack/test-programs.sh do that.

pub mod command_line;

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

/// A program that ends when this is dropped.
struct Process {
    child: Child,
    /// What it says of itself when it serves.
    serving: Value,
}

impl Process {
    fn start(program: &str, arguments: &[&str], serving: &str) -> Process {
        let path = self::program(program);
        let mut child = Command::new(&path)
            .args(arguments)
            .args(["--logFormat", "json"])
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{}: {error}; build it first: hack/test-programs.sh",
                    path.display()
                )
            });
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains(serving) {
            line.clear();
            let read = log.read_line(&mut line).expect("a log in UTF-8");
            assert!(read > 0, "{program} ended before it served");
        }
        // Nobody reads on; a full pipe would stop the program.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let serving = serde_json::from_str(&line).expect("a line of JSON");
        Process { child, serving }
    }

    fn text(&self, name: &str) -> &str {
        self.serving[name].as_str().expect("a text")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo puts a program: beside the tests that it runs.
pub fn program(name: &str) -> PathBuf {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")),
        PathBuf::from,
    );
    target.join(profile).join(name)
}

/// Runs `example` with the locator of a store of one server, which is gone afterwards.
///
/// # Panics
/// If the example fails, or the store does not get up.
pub fn with_store<E: Debug>(example: impl FnOnce(&str) -> Result<(), E>) {
    with_server(|locator, _| example(locator));
}

/// As [`with_store`], for examples that want to do something to the server's process.
///
/// # Panics
/// As there.
pub fn with_server<E: Debug>(example: impl FnOnce(&str, u32) -> Result<(), E>) {
    let loopback = "tcp:host=127.0.0.1,port=0";
    let coordinator = Process::start("coordinator", &["-C", loopback], "\"member\"");
    let locator = coordinator.text("locator");
    let arguments = ["-C", locator, "-L", loopback, "-t", "64"];
    let server = Process::start("server", &arguments, "serving health");
    wait_until_ready(server.text("http"));
    example(locator, server.child.id()).expect("the example runs to its end");
}

fn wait_until_ready(http: &str) {
    let start = Instant::now();
    while !is_ready(http) {
        assert!(start.elapsed() < DEADLINE, "the server did not get ready");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_ready(http: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(http) else {
        return false;
    };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
    asked
        .and_then(|()| stream.read_to_string(&mut answer))
        .is_ok()
        && answer.contains(" 200 ")
}
