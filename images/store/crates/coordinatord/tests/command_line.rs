//! The program's command line: help, version, and what is refused.

use test_store::command_line::{check_failure, check_help_and_version, check_usage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_coordinator");

#[test]
fn there_is_help_with_examples_and_a_version() {
    check_help_and_version(PROGRAM);
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_wrong() {
    check_usage(PROGRAM, &["--nonsense"], "--nonsense");
    check_usage(PROGRAM, &[], "--coordinator");
}

#[test]
fn failures_end_with_1_and_say_what_to_do() {
    check_failure(PROGRAM, &["-C", "infrc:host=a,port=1"], "use tcp");
}
