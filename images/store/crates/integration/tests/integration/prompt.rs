//! The prompt of `rcbox`, and what else it does on a terminal, driven through a pseudo-terminal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{DEADLINE, Store, program, rcbox};
use rexpect::reader::Options;
use rexpect::session::{PtySession, spawn_with_options};

/// `rcbox` on a terminal of its own; the history is below `home`.
fn terminal(
    store: &Store,
    home: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> PtySession {
    let mut command = Command::new(program("rcbox"));
    command
        .args(arguments)
        .env_clear()
        .env("RCBOX_COORDINATOR", &store.coordinator.locator)
        .env("XDG_STATE_HOME", home)
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let milliseconds = u64::try_from(DEADLINE.as_millis()).unwrap();
    let options = Options::new().timeout_ms(Some(milliseconds));
    spawn_with_options(command, options).unwrap()
}

/// Sees `text` come.
fn expect(session: &mut PtySession, text: &str) -> String {
    match session.exp_string(text) {
        Ok(before) => before,
        Err(error) => panic!("waited for {text:?}: {error}"),
    }
}

fn send(session: &mut PtySession, text: &str) {
    session.send(text).unwrap();
    session.flush().unwrap();
}

/// Sees the program end with this exit code.
fn expect_end(mut session: PtySession, code: i32) -> String {
    let rest = session.exp_eof().unwrap();
    let status = format!("{:?}", session.process().wait().unwrap());
    assert!(status.ends_with(&format!(", {code})")), "{status}: {rest}");
    rest
}

fn put(store: &Store, key: &str, value: &[u8]) {
    let output = rcbox(&store.coordinator.locator, &["put", "fruit", key], value);
    assert!(output.status.success(), "{output:?}");
}

fn store_with_fruit() -> Store {
    let store = Store::start(1, &[]);
    store.cluster().create_table("fruit", 1).unwrap();
    put(&store, "apple", b"green");
    store
}

#[test]
fn commands_are_completed_carried_out_and_remembered() {
    let store = store_with_fruit();
    let home = tempfile::tempdir().unwrap();
    let mut session = terminal(&store, home.path(), &[], &[]);
    expect(&mut session, "Ctrl-D leaves");
    expect(&mut session, "rcbox> ");
    // A command, a table's name; the key.
    send(&mut session, "ge\tfr\tapple\r");
    expect(&mut session, "green\r\n");
    expect(&mut session, "rcbox> ");
    send(&mut session, "get fruit nothing\r");
    expect(&mut session, "error: there is no object \"nothing\"");
    send(&mut session, "frobnicate\r");
    expect(&mut session, "error: unrecognized subcommand");
    send(&mut session, "use fruit\r");
    expect(&mut session, "rcbox fruit> ");
    send(&mut session, "put apple 'dark red'\r");
    expect(&mut session, "2\r\n");
    expect(&mut session, "rcbox fruit> ");
    // Nothing of what is typed ahead or pasted gets lost.
    send(
        &mut session,
        "put a 1\rput b 2\r\x1b[200~get a --json\nget b --json\x1b[201~\r",
    );
    expect(&mut session, "\"key\":\"a\"");
    expect(&mut session, "\"key\":\"b\"");
    expect(&mut session, "rcbox fruit> ");
    // Ctrl-C at the prompt leaves the line.
    send(&mut session, "rm apple\x03");
    expect(&mut session, "rcbox fruit> ");
    send(&mut session, "get apple\r");
    expect(&mut session, "dark red\r\n");
    expect(&mut session, "rcbox fruit> ");
    send(&mut session, "\x04");
    expect_end(session, 0);

    let history = home.path().join("rcbox/history");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&history), 0o600);
    assert_eq!(mode(&home.path().join("rcbox")), 0o700);
    let text = std::fs::read_to_string(&history).unwrap();
    assert!(text.contains("put apple 'dark red'"), "{text}");
    // The last line of the former prompt comes back.
    let mut session = terminal(&store, home.path(), &["shell"], &[]);
    expect(&mut session, "rcbox> ");
    send(&mut session, "\x1b[A");
    expect(&mut session, "get apple");
    send(&mut session, "\x03");
    expect(&mut session, "rcbox> ");
    send(&mut session, "exit\r");
    expect_end(session, 0);
}

#[test]
fn ctrl_c_gives_the_present_command_up_and_keeps_the_prompt() {
    let store = store_with_fruit();
    let home = tempfile::tempdir().unwrap();
    let mut session = terminal(&store, home.path(), &[], &[]);
    expect(&mut session, "rcbox> ");
    send(&mut session, "watch fruit apple\r");
    expect(&mut session, "1\tgreen");
    session.send_control('c').unwrap();
    expect(&mut session, "rcbox> ");
    // A server that does not answer; the command would take its whole time.
    store.servers[0].process.stop();
    send(&mut session, "put fruit apple red\r");
    // The line is carried out when the terminal is back in its usual mode, which is when this sequence comes.
    expect(&mut session, "\x1b[?2004l");
    session.send_control('c').unwrap();
    expect(&mut session, "given up; the change may take effect");
    expect(&mut session, "rcbox> ");
    store.servers[0].process.signal("CONT");
    send(&mut session, "get fruit apple --json\r");
    expect(&mut session, "\"key\":\"apple\"");
    send(&mut session, "exit\r");
    expect_end(session, 0);
}

#[test]
fn a_table_is_dropped_after_a_yes_only() {
    let store = store_with_fruit();
    let home = tempfile::tempdir().unwrap();
    let mut session = terminal(&store, home.path(), &["drop-table", "fruit"], &[]);
    expect(
        &mut session,
        "Drop table \"fruit\" with all its objects? [y/N] ",
    );
    send(&mut session, "\n");
    assert!(expect_end(session, 1).contains("nothing was done"));
    let mut session = terminal(&store, home.path(), &[], &[]);
    expect(&mut session, "rcbox> ");
    send(&mut session, "drop-table fruit\r");
    expect(&mut session, "[y/N] ");
    send(&mut session, "no\r");
    expect(&mut session, "nothing was done");
    send(&mut session, "get fruit apple\r");
    expect(&mut session, "green");
    send(&mut session, "drop-table fruit\r");
    expect(&mut session, "[y/N] ");
    send(&mut session, "y\r");
    expect(&mut session, "rcbox> ");
    send(&mut session, "get fruit apple\r");
    expect(&mut session, "there is no table \"fruit\"");
    // Between two prompts the terminal itself would take it.
    expect(&mut session, "rcbox> ");
    send(&mut session, "\x04");
    expect_end(session, 0);

    store.cluster().create_table("fruit", 1).unwrap();
    let session = terminal(&store, home.path(), &["drop-table", "fruit", "--yes"], &[]);
    assert_eq!(expect_end(session, 0), "");
}

#[test]
fn a_terminal_gets_escapes_colors_and_line_ends_and_may_refuse_colors() {
    let store = store_with_fruit();
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        expect_end(terminal(&store, home.path(), arguments, environment), 0)
    };
    assert_eq!(run(&["get", "fruit", "apple"], &[]), "green\r\n");
    put(&store, "evil", b"\x1b[31mred\xff");
    assert_eq!(run(&["get", "fruit", "evil"], &[]), "\\x1b[31mred\\xff\r\n");
    put(&store, "poem", b"two\nlines");
    assert_eq!(run(&["get", "fruit", "poem"], &[]), "two\r\nlines\r\n");
    assert!(run(&["status"], &[]).contains("\x1b[32mup"));
    assert!(!run(&["status"], &[("NO_COLOR", "1")]).contains("\x1b[3"));
    let live = run(&["watch", "--count", "2", "--interval", "0.01"], &[]);
    assert_eq!(live.matches("every 10ms").count(), 2, "{live}");
}
