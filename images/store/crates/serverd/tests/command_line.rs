//! The program's command line: help, version, and what is refused.

use test_store::command_line::{check_failure, check_help_and_version, check_usage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_server");
const LOCAL: &str = "tcp:host=127.0.0.1,port=1";

#[test]
fn there_is_help_with_examples_and_a_version() {
    check_help_and_version(PROGRAM);
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_wrong() {
    check_usage(
        PROGRAM,
        &["-C", LOCAL, "-L", LOCAL, "-r", "3", "--minReplicas", "4"],
        "give at most 3",
    );
    check_usage(
        PROGRAM,
        &["-C", LOCAL, "-L", LOCAL, "-B", "-r", "2"],
        "give -r to the masters",
    );
    check_usage(
        PROGRAM,
        &["-C", LOCAL, "-L", LOCAL, "--cores", "0"],
        "--cores",
    );
}

#[test]
fn failures_end_with_1_and_say_what_to_do() {
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "-L", "tcp:host=0.0.0.0,port=0"],
        "--advertise",
    );
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "-L", "tcp:host=127.0.0.1,port=0", "-t", "1"],
        "more memory",
    );
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "-L", LOCAL, "-r", "1", "-f", "/dev/null"],
        "neither a file nor a block device",
    );
    check_failure(
        PROGRAM,
        &["-C", LOCAL, "-L", LOCAL, "-B"],
        "--segmentFrames",
    );
}
