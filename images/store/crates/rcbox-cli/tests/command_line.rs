//! The program's command line: help, version, and what is refused.

use test_store::command_line::{check_failure, check_help_and_version, check_usage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rcbox");
const LOCAL: &str = "tcp:host=127.0.0.1,port=1";

#[test]
fn there_is_help_with_examples_and_a_version() {
    check_help_and_version(PROGRAM);
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_wrong() {
    check_usage(PROGRAM, &["-C", LOCAL, "frobnicate"], "frobnicate");
}

#[test]
fn failures_end_with_1_and_say_what_to_do() {
    check_failure(PROGRAM, &["status"], "RCBOX_COORDINATOR");
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "status"],
        "is the coordinator running",
    );
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "--timeout", "0.2", "get", "t", "k"],
        "cannot connect",
    );
}
