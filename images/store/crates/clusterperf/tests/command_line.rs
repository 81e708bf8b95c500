//! The program's command line: help, version, and what is refused.

use test_store::command_line::{check_help_and_version, check_usage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clusterperf");
const LOCAL: &str = "tcp:host=127.0.0.1,port=1";

#[test]
fn there_is_help_with_examples_and_a_version() {
    check_help_and_version(PROGRAM);
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_wrong() {
    check_usage(PROGRAM, &["-C", LOCAL, "indexBasic"], "there are: basic");
    check_usage(
        PROGRAM,
        &["-C", LOCAL, "--numClients", "2", "basic"],
        "leave --numClients out",
    );
}
