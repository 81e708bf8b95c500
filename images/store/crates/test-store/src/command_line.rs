//! What a program does with a command line: output and exit code.

use std::process::Command;

/// How a program has ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

/// Runs a program to its end, with nothing in its environment.
///
/// # Panics
/// If it cannot be started, or its output is not UTF-8.
pub fn run(program: &str, arguments: &[&str]) -> Ended {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        code: output.status.code(),
        out: text(output.stdout),
        error: text(output.stderr),
    }
}

/// Checks that a program has help with examples, and says its version.
///
/// # Panics
/// If it does not.
pub fn check_help_and_version(program: &str) {
    let help = run(program, &["--help"]);
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(help.out.contains("Examples:"), "{help:?}");
    let version = run(program, &["--version"]);
    assert_eq!(version.code, Some(0), "{version:?}");
    assert!(
        version.out.contains(env!("CARGO_PKG_VERSION")),
        "{version:?}"
    );
}

/// Checks that a wrong command line ends the program with exit code 2, and a text that has `part` in it.
///
/// # Panics
/// If it does not.
pub fn check_usage(program: &str, arguments: &[&str], part: &str) {
    let ended = run(program, arguments);
    assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
    assert!(ended.error.contains(part), "{arguments:?}: {ended:?}");
}

/// Checks that the program fails with exit code 1, and an error that has `part` in it.
///
/// # Panics
/// If it does not.
pub fn check_failure(program: &str, arguments: &[&str], part: &str) {
    let ended = run(program, arguments);
    assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
    let is_said = ended.error.starts_with("error: ") && ended.error.contains(part);
    assert!(is_said, "{arguments:?}: {ended:?}");
}
