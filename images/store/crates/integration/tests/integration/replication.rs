//! Masters and backups as real processes: what is on backups' files, and what happens when a backup dies, gets slow or runs out of disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::frames::{FRAMES, Frames, SEGMENT_BYTES, boot_id, contains};
use crate::common::{Coordinator, DEADLINE, Server, http_get, program, wait_for};
use client::{Cluster, TableId};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A store of masters and backups, each on a host of its own, with files in a folder of its own.
struct Replicated {
    coordinator: Coordinator,
    servers: Vec<Server>,
    folder: TempDir,
}

impl Replicated {
    /// Servers that are both.
    fn start(servers: usize, more: &[&str]) -> Replicated {
        let mut store = Replicated::empty();
        for index in 0..servers {
            store.add(&format!("m{index}"), more);
        }
        store.wait_ready();
        store
    }

    /// One master, and backups that are nothing else.
    fn one_master(backups: usize, of_master: &[&str]) -> Replicated {
        let mut store = Replicated::empty();
        let master = [&["-M", "--hostId", "m0"], of_master].concat();
        store
            .servers
            .push(Server::start(&store.coordinator, "m0", &master));
        for index in 0..backups {
            store.add(&format!("b{index}"), &["-B", "--segmentMB", "2"]);
        }
        store.wait_ready();
        store
    }

    fn empty() -> Replicated {
        Replicated {
            coordinator: Coordinator::start(&[]),
            servers: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&mut self, name: &str, more: &[&str]) {
        let file = self.file(name);
        let own = ["--hostId", name, "-f", path_text(&file)];
        let frames = FRAMES.to_string();
        let all = [&own[..], &["--segmentFrames", &frames], more].concat();
        self.servers
            .push(Server::start(&self.coordinator, name, &all));
    }

    fn wait_ready(&self) {
        for server in &self.servers {
            server.wait_ready();
        }
    }

    fn cluster(&self) -> Cluster {
        let options = client::Options {
            timeout: DEADLINE,
            ..client::Options::default()
        };
        Cluster::with_options(&self.coordinator.locator, options).unwrap()
    }

    fn cluster_id(&self) -> u64 {
        let status = self.coordinator.status();
        let text = status["clusterId"].as_str().unwrap().to_owned();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    }

    /// What each file holds once all processes are dead.
    fn after_killing_all(&mut self, boot_id: [u8; 16]) -> Vec<Frames> {
        let cluster_id = self.cluster_id();
        for server in &mut self.servers {
            // Some may be dead already.
            let _ = server.process.child.kill();
            server.process.wait();
        }
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let open = |file: std::io::Result<std::fs::DirEntry>| {
            Frames::read(&file.unwrap().path(), cluster_id, boot_id)
        };
        files.map(open).collect()
    }
}

/// A number that a server shows.
fn metric(server: &Server, name: &str) -> u64 {
    let (_, text) = http_get(server.http, "/metrics");
    let start = format!("rcbox_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn write_all(cluster: &mut Cluster, table: TableId, count: usize) -> Vec<String> {
    let values: Vec<String> = (0..count).map(|n| format!("<value {n:05}>")).collect();
    for value in &values {
        cluster
            .write(table, value.as_bytes(), value.as_bytes())
            .unwrap();
    }
    values
}

/// How many of the backups hold each value, at least.
fn fewest_copies(frames: &mut [Frames], values: &[String]) -> usize {
    let data: Vec<Vec<u8>> = frames.iter_mut().map(Frames::data).collect();
    let copies = |value: &String| data.iter().filter(|data| contains(data, value)).count();
    values.iter().map(copies).min().unwrap()
}

/// Writes as fast as it can until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Writer {
    fn start(mut cluster: Cluster, table: TableId) -> Writer {
        let (stop, written) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let key = format!("key {}", count.load(Ordering::Relaxed) % 100);
                cluster.write(table, key.as_bytes(), &[7; 1000]).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Writer {
            stop,
            written,
            thread,
        }
    }

    /// Waits until so many more are acknowledged.
    fn goes_on(&self, more: u64) {
        let before = self.written.load(Ordering::Relaxed);
        wait_for("writes that go on", || {
            (self.written.load(Ordering::Relaxed) >= before + more).then_some(())
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn an_acknowledged_write_is_on_the_files_of_its_backups() {
    let mut store = Replicated::start(4, &["-r", "3", "--minReplicas", "3"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 4).unwrap();
    let values = write_all(&mut cluster, table, 200);
    let mut frames = store.after_killing_all(boot_id());
    assert_eq!(frames.len(), 4);
    assert_eq!(fewest_copies(&mut frames, &values), 3);
    assert!(frames.iter().all(|frames| frames.damaged() == 0));
}

#[test]
fn buffered_is_not_believed_under_another_kernel_and_flushed_is() {
    let other_kernel = [9; 16];
    for (mode, is_believed) in [("buffered", false), ("flushed", true)] {
        let mut store =
            Replicated::start(3, &["-r", "2", "--minReplicas", "2", "--durability", mode]);
        let mut cluster = store.cluster();
        let table = cluster.create_table("fruit", 3).unwrap();
        let values = write_all(&mut cluster, table, 50);
        let mut frames = store.after_killing_all(other_kernel);
        let copies = fewest_copies(&mut frames, &values);
        let damaged: u32 = frames.iter().map(Frames::damaged).sum();
        if is_believed {
            assert_eq!((copies, damaged), (2, 0), "{mode}");
        } else {
            assert_eq!(copies, 0, "{mode}: open replicas may have lost their ends");
            assert!(damaged >= 6, "{mode}: {damaged}");
        }
    }
}

#[test]
fn a_server_that_is_told_to_end_leaves_everything_on_the_disk() {
    let mut store = Replicated::one_master(1, &["-r", "1"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    let values = write_all(&mut cluster, table, 20);
    store.servers[1].process.signal("TERM");
    assert_eq!(store.servers[1].process.wait().code(), Some(0));
    let mut frames = store.after_killing_all([9; 16]);
    assert_eq!(fewest_copies(&mut frames, &values), 1);
}

#[test]
fn writes_go_on_when_a_backup_dies_and_its_copies_are_made_again() {
    let mut store = Replicated::one_master(3, &["-r", "2"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    let writer = Writer::start(cluster, table);
    writer.goes_on(100);
    let mut killed = store.servers.remove(1);
    killed.process.signal("KILL");
    killed.process.wait();
    writer.goes_on(1000);
    let master = &store.servers[0];
    wait_for("all copies", || {
        let short = metric(master, "replication_segments_short");
        (short == 0 && metric(master, "replication_backups") == 2).then_some(())
    });
    writer.end();
    assert_eq!(http_get(master.http, "/readyz").0, 200);
}

#[test]
fn a_backup_whose_disk_fails_retires_and_writes_go_on() {
    let store = Replicated::one_master(3, &["-r", "2"]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    let writer = Writer::start(cluster, table);
    writer.goes_on(100);
    let (master, backup) = (&store.servers[0], &store.servers[1]);
    // From now on, the kernel refuses it every write.
    let pid = Pid::from_raw(backup.process.child.id().try_into().unwrap());
    let limit = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    // It is asked to write as soon as a head is placed there.
    wait_for("the backup to retire", || {
        (metric(backup, "backup_retired") == 1).then_some(())
    });
    backup
        .process
        .line(&["ERROR", "nothing new is accepted", "File too large"]);
    writer.goes_on(1000);
    wait_for("all copies", || {
        let short = metric(master, "replication_segments_short");
        (short == 0 && metric(master, "replication_backups") == 2).then_some(())
    });
    writer.end();
    assert_eq!(
        http_get(backup.http, "/healthz").0,
        200,
        "it gives out what it has"
    );
}

#[test]
fn a_master_whose_only_backup_is_silent_serves_nothing_until_it_is_back() {
    let store = Replicated::one_master(1, &["-r", "1"]);
    let (master, backup) = (&store.servers[0], &store.servers[1]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    cluster.write(table, b"apple", b"green").unwrap();
    backup.process.stop();
    wait_for("the master to say that it does not serve", || {
        let (status, text) = http_get(master.http, "/readyz");
        (status == 503 && text.contains("not serving")).then_some(())
    });
    backup.process.signal("CONT");
    master.wait_ready();
    assert_eq!(cluster.read(table, b"apple").unwrap().value, b"green"[..]);
}

/// How a server ends that cannot start, or is let in and cannot stay.
fn refusal(coordinator: &Coordinator, file: &Path, more: &[&str]) -> String {
    let output = Command::new(program("server"))
        .args([
            "-C",
            &coordinator.locator,
            "-L",
            "tcp:host=127.0.0.1,port=0",
        ])
        .args(["-r", "1", "-f", path_text(file)])
        .args(["--segmentFrames", &FRAMES.to_string()])
        .args(more)
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn two_processes_on_one_file_are_refused() {
    let mut store = Replicated::empty();
    store.add("b0", &["-B", "--segmentMB", "2"]);
    store.wait_ready();
    let text = refusal(&store.coordinator, &store.file("b0"), &["-t", "64"]);
    assert!(text.contains("another process uses it"), "{text}");
    assert_eq!(http_get(store.servers[0].http, "/readyz").0, 200);
}

#[test]
fn a_file_that_is_no_backups_is_refused_and_left_alone() {
    let store = Replicated::empty();
    let file = store.file("letter");
    let letter = "Dear reader, ".repeat(2000);
    std::fs::write(&file, &letter).unwrap();
    let text = refusal(&store.coordinator, &file, &["-t", "64"]);
    assert!(
        text.contains("no backup's") && text.contains("letter"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), letter);
    std::fs::write(&file, "short").unwrap();
    let text = refusal(&store.coordinator, &file, &["-t", "64"]);
    assert!(text.contains("letter"), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "short");
}

#[test]
fn a_file_of_another_store_or_of_other_segments_is_refused() {
    let mut store = Replicated::empty();
    store.add("b0", &["-B", "--segmentMB", "2"]);
    store.servers[0].process.line(&["backup is open"]);
    store.servers[0].process.signal("TERM");
    store.servers[0].process.wait();
    let file = store.file("b0");
    let text = refusal(
        &store.coordinator,
        &file,
        &["--segmentMB", "4", "-t", "128"],
    );
    assert!(
        text.contains("segments of 2097152 bytes") && text.contains("--segmentMB"),
        "{text}"
    );
    let other = Coordinator::start(&[]);
    let path = path_text(&file).to_owned();
    let frames = FRAMES.to_string();
    let more = ["-r", "1", "--segmentMB", "2", "--segmentFrames", &frames];
    let server = Server::start(&other, "b0", &[&more[..], &["-f", &path]].concat());
    let text = wait_for("a server that is not let in", || {
        let (status, text) = http_get(server.http, "/readyz");
        (status != 200 && text.contains("belongs to store")).then_some(text)
    });
    assert!(
        text.contains("--rebuild") && text.contains("left as it is"),
        "{text}"
    );
    drop(server);
    let bytes = u64::from(FRAMES) * u64::from(SEGMENT_BYTES);
    assert!(file.metadata().unwrap().len() > bytes, "as it was");
}

#[test]
fn a_process_that_another_has_replaced_ends_so_that_it_is_started_again() {
    let mut store = Replicated::one_master(1, &["-r", "1", "--instance", "one"]);
    let second = Server::start(
        &store.coordinator,
        "m0",
        &["-M", "-r", "1", "--hostId", "m0", "--instance", "two"],
    );
    // Silent, the first counts as gone.
    store.servers[0].process.stop();
    second.wait_ready();
    store.servers[0].process.signal("CONT");
    let first = &mut store.servers[0].process;
    first.line(&["ERROR", "safely be started again"]);
    assert_eq!(first.wait().code(), Some(1));
}
