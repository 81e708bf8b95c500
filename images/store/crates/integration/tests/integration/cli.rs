//! `rcbox` as people and their scripts use it: every command against a store of real processes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use crate::common::{self, Store, program, rcbox, wait_for};
use serde_json::{Value, json};

/// What a command has left.
struct Done {
    code: Option<i32>,
    bytes: Vec<u8>,
    out: String,
    error: String,
}

impl Done {
    /// Output of a command that has succeeded.
    fn good(self) -> String {
        assert_eq!((self.code, self.error.as_str()), (Some(0), ""));
        self.out
    }

    /// Errors of a command that has failed with this exit code.
    fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{} {}", self.out, self.error);
        assert!(self.error.starts_with("error: "), "{}", self.error);
        assert!(!self.error.contains("panicked"), "{}", self.error);
        self.error
    }

    fn json_lines(self) -> Vec<Value> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn call_with(store: &Store, arguments: &[&OsStr], input: &[u8]) -> Done {
    use std::io::Write;
    let mut child = Command::new(program("rcbox"))
        .args(arguments)
        .env_clear()
        .env("RCBOX_COORDINATOR", &store.coordinator.locator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Done {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
        bytes: output.stdout,
    }
}

/// Runs a command whose words have no spaces.
fn call(store: &Store, line: &str) -> Done {
    let words: Vec<_> = line.split_whitespace().map(OsStr::new).collect();
    call_with(store, &words, b"")
}

fn store_with_fruit() -> Store {
    let store = Store::start(1, &[]);
    call(&store, "create-table fruit").good();
    // Found, not made again; a string, since a reader may round a number.
    let again = call(&store, "create-table fruit --json").json_lines();
    assert_eq!(again, [json!({"tableId": "0x0000000000000001"})]);
    store
}

#[test]
fn keys_and_values_are_bytes() {
    let store = store_with_fruit();
    let key = OsStr::from_bytes(b"caf\xe9");
    let value = OsStr::from_bytes(b"\xff\n");
    let put = [OsStr::new("put"), OsStr::new("fruit"), key, value];
    assert_eq!(call_with(&store, &put, b"").good(), "1\n");
    // Raw in a pipe, whatever way the key is written.
    for key in [r"-e caf\xe9", "-x 636166e9"] {
        let done = call(&store, &format!("get fruit {key}"));
        assert_eq!((done.code, &done.bytes[..]), (Some(0), &b"\xff\n"[..]));
    }
    let done = call(&store, r"get fruit -e caf\xe9 --as hex");
    assert_eq!(done.good(), "ff0a\n");
    let done = call(&store, r"get fruit -e caf\xe9 --json");
    assert_eq!(
        done.json_lines(),
        [json!({"keyHex": "636166e9", "version": 1, "valueHex": "ff0a"})]
    );
    let done = call(&store, r"get fruit -e caf\xe9 --version-only");
    assert_eq!(done.good(), "1\n");

    call(&store, "put fruit hex 00ff --as hex").good();
    assert_eq!(call(&store, "get fruit hex").bytes, [0, 255]);
    for (line, part) in [
        ("get fruit -x 0g", "'0g' is not written in hexadecimal"),
        (r"get fruit -e a\q", "backslash"),
        ("put fruit a 0 --as hex", "hexadecimal"),
        ("put fruit a many --as int", "whole number"),
    ] {
        let error = call(&store, line).bad(2);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn values_come_from_arguments_files_and_pipes() {
    let store = store_with_fruit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photo");
    let photo: Vec<u8> = (0..=255).collect();
    std::fs::write(&path, &photo).unwrap();
    let path = path.to_str().unwrap();
    call(&store, &format!("put fruit file --file {path}")).good();
    assert_eq!(call(&store, "get fruit file").bytes, photo);
    let words = ["put", "fruit", "pipe"].map(OsStr::new);
    call_with(&store, &words, &photo).good();
    assert_eq!(call(&store, "get fruit pipe").bytes, photo);
    let words = ["put", "fruit", "number", "--as", "int"].map(OsStr::new);
    call_with(&store, &words, b"-7\n").good();
    assert_eq!(call(&store, "get fruit number --as int").good(), "-7\n");

    let too_long = vec![0; (1 << 20) + 1];
    let words = ["put", "fruit", "long"].map(OsStr::new);
    let error = call_with(&store, &words, &too_long).bad(1);
    assert!(error.contains("longer than a value may be"), "{error}");
    let error = call(&store, "put fruit a --file /nonexistent/file").bad(1);
    assert!(error.contains("cannot open /nonexistent/file"), "{error}");
}

#[test]
fn several_objects_at_once() {
    let store = store_with_fruit();
    call(&store, "put fruit apple green").good();
    call(&store, "put fruit pear yellow").good();
    let words = ["put", "fruit", "plum"].map(OsStr::new);
    call_with(&store, &words, b"two\nlines").good();

    let done = call(&store, "get fruit plum apple pear");
    assert_eq!(
        done.good(),
        "plum\ttwo\\nlines\napple\tgreen\npear\tyellow\n"
    );
    let done = call(&store, "get fruit apple nothing pear");
    assert_eq!(done.out, "apple\tgreen\npear\tyellow\n");
    let error = done.bad(1);
    assert!(
        error.contains("no object \"nothing\" in table \"fruit\"")
            && error.contains("1 of 3 failed"),
        "{error}"
    );
    let done = call(&store, "get fruit apple nothing --json");
    assert_eq!(
        done.json_lines(),
        [
            json!({"key": "apple", "version": 1, "value": "green"}),
            json!({"key": "nothing", "error": "OBJECT_DOESNT_EXIST"})
        ]
    );

    let done = call(&store, "rm fruit apple nothing plum");
    // A new object's version is above those of objects before it.
    assert_eq!(done.out, "apple\t1\nplum\t3\n");
    let error = done.bad(1);
    assert!(error.contains("no object \"nothing\""), "{error}");
    let error = call(&store, "get fruit apple").bad(1);
    assert!(error.contains("no object \"apple\""), "{error}");
    assert_eq!(
        call(&store, "rm fruit pear --json").json_lines(),
        [json!({"key": "pear", "version": 2})]
    );
    let error = call(&store, "rm fruit a b --if-version 1").bad(2);
    assert!(error.contains("one key"), "{error}");
}

#[test]
fn a_store_that_does_not_answer_is_asked_once() {
    let store = store_with_fruit();
    store.servers[0].process.stop();
    // Several keys are read together, and removed one after the other.
    for (command, named) in [("get", ""), ("rm", "object \"a\"")] {
        let error = call(&store, &format!("--timeout 0.3 {command} fruit a b c")).bad(1);
        assert_eq!(error.matches("no answer within").count(), 1, "{error}");
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn changes_can_be_conditional() {
    let store = store_with_fruit();
    let error = call(&store, "put fruit apple green --if-exists").bad(1);
    assert!(error.contains("no object \"apple\""), "{error}");
    call(&store, "put fruit apple green --if-absent").good();
    let error = call(&store, "put fruit apple red --if-absent").bad(1);
    assert!(error.contains("already: OBJECT_EXISTS"), "{error}");
    call(&store, "put fruit apple red --if-exists").good();
    let error = call(&store, "put fruit apple blue --if-version 1").bad(1);
    assert!(
        error.contains("WRONG_VERSION") && error.contains("version is 2"),
        "{error}"
    );
    assert!(error.contains("get it again"), "{error}");
    call(&store, "rm fruit apple --if-version 1").bad(1);
    assert_eq!(call(&store, "get fruit apple").out, "red");
    assert_eq!(call(&store, "rm fruit apple --if-version 2").good(), "2\n");

    call(&store, "incr fruit counter --if-exists").bad(1);
    call(&store, "incr fruit counter --if-absent").good();
    call(&store, "incr fruit counter --if-absent").bad(1);
    let version = call(&store, "get fruit counter --version-only").good();
    let version = version.trim();
    call(
        &store,
        &format!("incr fruit counter --if-version {version}"),
    )
    .good();
    call(
        &store,
        &format!("incr fruit counter --if-version {version}"),
    )
    .bad(1);
}

#[test]
fn counters_are_whole_or_floating_point() {
    let store = store_with_fruit();
    for (line, value) in [
        ("incr fruit visits", "1\n"),
        ("incr fruit visits 41", "42\n"),
        ("incr fruit visits -50", "-8\n"),
        ("get fruit visits --as int", "-8\n"),
        ("incr fruit litres 0.25 --float", "0.25\n"),
        ("incr fruit litres -1 --float", "-0.75\n"),
        ("get fruit litres --as float", "-0.75\n"),
    ] {
        assert_eq!(call(&store, line).good(), value, "{line}");
    }
    let shown = call(&store, "incr fruit visits --json").json_lines();
    assert_eq!(shown[0]["value"], -7);
    let error = call(&store, "incr fruit visits 0.5").bad(2);
    assert!(error.contains("--float"), "{error}");
    call(&store, "put fruit apple green").good();
    let error = call(&store, "incr fruit apple").bad(1);
    assert!(error.contains("\"apple\" of table \"fruit\""), "{error}");
}

#[test]
fn scan_lists_what_is_there() {
    let store = Store::start(2, &[]);
    call(&store, "create-table fruit --span 2").good();
    let sorted = |done: Done| {
        let text = done.good();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let without_versions = |done: Done| -> Vec<_> {
        let lines = sorted(done).into_iter();
        lines
            .map(|line| {
                let [key, version, value] = line.split('\t').collect::<Vec<_>>()[..] else {
                    panic!("{line}");
                };
                assert!(version.parse::<u64>().is_ok_and(|version| version > 0));
                format!("{key} {value}")
            })
            .collect()
    };
    assert!(sorted(call(&store, "scan fruit")).is_empty());
    for key in ["apple", "apricot", "pear"] {
        call(&store, &format!("put fruit {key} value-of-{key}")).good();
    }
    call(&store, "put fruit -e \\xff --as hex fe").good();
    assert_eq!(
        without_versions(call(&store, "scan fruit")),
        [
            "\\xff \\xfe",
            "apple value-of-apple",
            "apricot value-of-apricot",
            "pear value-of-pear"
        ]
    );
    let keys = sorted(call(&store, "scan fruit --keys-only --prefix ap"));
    assert_eq!(keys, ["apple", "apricot"]);
    let keys = sorted(call(&store, "scan fruit --keys-only --hex --prefix ff"));
    assert_eq!(keys, ["ff"]);
    let values = without_versions(call(&store, "scan fruit --prefix pe --as hex"));
    assert_eq!(values, ["pear 76616c75652d6f662d70656172"]);
    assert_eq!(sorted(call(&store, "scan fruit --limit 2")).len(), 2);
    assert!(sorted(call(&store, "scan fruit --limit 0")).is_empty());
    let mut shown = call(&store, "scan fruit --json").json_lines();
    assert_eq!(shown.len(), 4);
    for object in &mut shown {
        assert!(object["version"].take().as_u64() > Some(0), "{object}");
    }
    for object in [
        json!({"key": "apple", "version": null, "value": "value-of-apple"}),
        json!({"keyHex": "ff", "version": null, "valueHex": "fe"}),
    ] {
        assert!(shown.contains(&object), "{shown:?}");
    }
    let error = call(&store, "scan nothing").bad(1);
    assert!(error.contains("rcbox create-table nothing"), "{error}");
}

#[test]
fn a_scan_streams_and_ends_quietly_with_its_reader() {
    let store = store_with_fruit();
    let mut cluster = store.cluster();
    let table = cluster.table_id("fruit").unwrap();
    // Far more than pipe and buffers hold.
    let value = [b'v'; 1000];
    let keys: Vec<_> = (0..5000).map(|number| format!("key-{number}")).collect();
    for keys in keys.chunks(500) {
        let objects = keys.iter().map(|key| client::WriteObject {
            table,
            key: key.as_bytes(),
            value: &value,
            rules: client::RejectRules::default(),
        });
        let written = cluster.multi_write(&objects.collect::<Vec<_>>()).unwrap();
        assert!(written.iter().all(Result::is_ok));
    }
    let all = call(&store, "scan fruit --keys-only").good();
    assert_eq!(all.lines().count(), keys.len());

    let mut child = start(&store, &["scan", "fruit"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("key-"), "{line}");
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for its reader"
    );
    drop(out);
    let (code, error) = finish(child);
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

fn start(store: &Store, arguments: &[&str]) -> Child {
    Command::new(program("rcbox"))
        .args(["-C", &store.coordinator.locator])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(mut child: Child) -> (Option<i32>, String) {
    let status = wait_for("the end of rcbox", || child.try_wait().unwrap());
    let mut error = String::new();
    let mut pipe = child.stderr.take().unwrap();
    pipe.read_to_string(&mut error).unwrap();
    (status.code(), error)
}

#[test]
fn an_upgrade_is_shown_and_finalized() {
    let store = Store::start(1, &[]);
    let shown = call(&store, "upgrade status").good();
    assert!(shown.contains("In force: format 1"), "{shown}");
    assert!(shown.contains("reads format 1"), "{shown}");
    // There is nothing newer, so that is what is in force already.
    let done = call(&store, "upgrade finalize --yes").good();
    assert_eq!(done, "Format 1 is in force.\n");
}

#[test]
fn settings_are_changed_while_the_store_runs() {
    let store = Store::start(2, &[]);
    assert!(
        call(&store, "settings show")
            .good()
            .contains("logLevel            as started")
    );
    assert_eq!(
        call(&store, "settings set logLevel=debug pollMicros=0").good(),
        ""
    );
    let shown = wait_for("all servers to have them", || {
        let shown = call(&store, "settings show").good();
        (!shown.contains("Not in force")).then_some(shown)
    });
    assert!(shown.contains("logLevel            debug"), "{shown}");
    assert!(shown.contains("pollMicros          0"), "{shown}");
    let happened = call(&store, "events").good();
    assert!(
        happened.ends_with("ago: settings number 1 are in force\n"),
        "{happened}"
    );
    let happened = call(&store, "--json events").good();
    let happened: Value = serde_json::from_str(&happened).unwrap();
    assert_eq!(happened[0]["kind"], "SETTINGS_CHANGED");
    let left = call(&store, "--json settings unset logLevel").good();
    assert_eq!(left, "{\"pollMicros\":0}\n");

    let refused = call(&store, "settings set replicas=2");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.error.contains("runs without copies"),
        "{}",
        refused.error
    );
    let unknown = call(&store, "settings set copies=2");
    assert!(
        unknown.error.contains("there is no setting"),
        "{}",
        unknown.error
    );
}

#[test]
fn status_check_tells_scripts_whether_all_are_up() {
    let mut store = Store::start(2, &[]);
    assert!(call(&store, "status --check").good().contains("2 up"));
    assert!(call(&store, "status").good().contains("2 up"));
    store.servers.pop();
    let down = wait_for("a member that is not up", || {
        let done = call(&store, "status --check");
        (done.code != Some(0)).then_some(done)
    });
    assert_eq!((down.code, down.error.as_str()), (Some(1), ""));
    assert!(down.out.contains("unreachable"), "{}", down.out);
    // Without --check it is no failure.
    assert!(call(&store, "status").good().contains("unreachable"));
    let empty = common::Coordinator::start(&[]);
    let output = rcbox(&empty.locator, &["status", "--check"], b"");
    assert_eq!(output.status.code(), Some(1), "no member is not all up");
}

#[test]
fn watch_shows_the_store_and_its_rates() {
    let store = store_with_fruit();
    let mut child = start(&store, &["watch", "--json", "--interval", "0.05"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    let shard = &first["members"][0]["shards"][0];
    assert_eq!(shard["connected"], true);
    assert!(
        shard["readsPerSecond"].is_null(),
        "no rate at first: {shard}"
    );
    let mut cluster = store.cluster();
    let table = cluster.table_id("fruit").unwrap();
    wait_for("operations per second", || {
        cluster.write(table, b"apple", b"green").unwrap();
        cluster.read(table, b"apple").unwrap();
        let line = next();
        let shard = &line["members"][0]["shards"][0];
        let positive = |name: &str| shard[name].as_f64().is_some_and(|rate| rate > 0.0);
        (positive("readsPerSecond") && positive("writesPerSecond")).then_some(())
    });
    drop(lines);
    let (code, error) = finish(child);
    assert_eq!((code, error.as_str()), (Some(0), ""), "its reader is gone");

    let text = call(&store, "watch --interval 0.01 --count 2").good();
    assert_eq!(text.matches("READS/S").count(), 2, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn watch_shows_every_version_of_an_object_that_it_sees() {
    let store = store_with_fruit();
    let arguments = [
        "watch",
        "fruit",
        "apple",
        "--interval",
        "0.01",
        "--count",
        "3",
    ];
    let mut child = start(&store, &arguments);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "0\t(absent)");
    call(&store, "put fruit apple green").good();
    assert_eq!(next(), "1\tgreen");
    call(&store, "put fruit apple red").good();
    assert_eq!(next(), "2\tred");
    assert_eq!(finish(child), (Some(0), String::new()));
    let error = call(&store, "watch fruit").bad(2);
    assert!(error.contains("a table and a key"), "{error}");
}

#[test]
fn tables_are_split_and_servers_listed() {
    let store = store_with_fruit();
    call(&store, "put fruit apple green").good();
    call(&store, "split fruit 0x8000000000000000").good();
    let tables = call(&store, "tables").good();
    assert!(
        tables.contains("0x7fffffffffffffff") && tables.contains("0x8000000000000000"),
        "{tables}"
    );
    assert_eq!(call(&store, "get fruit apple").out, "green");
    let error = call(&store, "split vegetables 5").bad(1);
    assert!(error.contains("rcbox create-table vegetables"), "{error}");
    let servers = call(&store, "servers").good();
    assert!(
        servers.contains("master") && servers.contains("UP"),
        "{servers}"
    );
    let servers: Value = serde_json::from_str(&call(&store, "servers --json").good()).unwrap();
    assert_eq!(servers[0]["services"][0], "master", "{servers}");
    assert_eq!(servers[0]["serverId"], "1.0", "{servers}");
    // Scripts are not asked.
    call(&store, "drop-table fruit").good();
    assert!(call(&store, "tables").good().contains("no tables"));
}

#[test]
fn a_script_of_commands_ends_at_the_first_that_fails() {
    let store = store_with_fruit();
    let shell = |script: &str| call_with(&store, &[OsStr::new("shell")], script.as_bytes());
    let done = shell(
        "# fruit\nuse fruit\nput apple 'dark red'\n\nget apple\nuse\nget fruit apple --raw\n",
    );
    assert_eq!(done.good(), "1\ndark red\ndark red");
    let done = shell("get fruit apple\nexit\nnonsense\n");
    assert_eq!(done.good(), "dark red\n");
    for (script, part) in [
        (
            "use fruit\nget nothing\nput late 1\n",
            "line 2: there is no object",
        ),
        ("\nfrobnicate\nput fruit late 1\n", "line 2: unrecognized"),
        ("put fruit 'late\n", "line 1: a quote"),
        ("put fruit late\nvalue\n", "line 1: give the value"),
        (
            "get nothing apple\n",
            "create it with: create-table nothing",
        ),
    ] {
        let error = shell(script).bad(1);
        assert!(error.contains(part), "{error}");
        call(&store, "get fruit late").bad(1);
    }
}

#[test]
fn completion_scripts_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(program("rcbox"))
            .args(["completion", shell])
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("create-table"), "{script}");
        if shell == "bash" {
            let ask = "COMP_WORDS=(rcbox scan --keys); COMP_CWORD=2; _rcbox rcbox --keys scan; echo \"${COMPREPLY[@]}\"";
            let output = Command::new("bash")
                .args(["-c", &format!("{script}\n{ask}")])
                .output()
                .unwrap();
            let reply = String::from_utf8_lossy(&output.stdout);
            assert_eq!(reply.trim(), "--keys-only", "{output:?}");
        }
    }
}
