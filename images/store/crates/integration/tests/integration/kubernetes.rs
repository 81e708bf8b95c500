//! Coordinators whose state is in objects of an API server: one leads, the other follows it, and nobody else notices.

use std::io;
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, Process, Server, http_get, rcbox, wait_for};
use serde_json::Value;
use test_api_server::ApiServer;

const SLICE: &str = "endpointslices/box-leader";
const LEASE: &str = "leases/box-coordinator";
const ROOT: &str = "configmaps/box-state-root";

/// What a Service without a selector is: connections to it go to the endpoint that its slice names at that moment.
struct Service {
    locator: String,
}

impl Service {
    fn start(server: &Arc<ApiServer>) -> Service {
        let ports = ["client", "member", "admin"].map(|name| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = Arc::clone(server);
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    // Nobody there: refused, as by a node without endpoints.
                    if let Some(target) = endpoint(&server, name)
                        && let Ok(target) = TcpStream::connect(target)
                    {
                        join(stream, target);
                    }
                }
            });
            port
        });
        let [client, member, admin] = ports;
        Service {
            locator: format!(
                "tcp:host=127.0.0.1,port={client},memberPort={member},adminPort={admin}"
            ),
        }
    }
}

fn endpoint(server: &ApiServer, port_name: &str) -> Option<SocketAddrV4> {
    let slice = server.object(SLICE)?;
    let address = slice["endpoints"][0]["addresses"][0].as_str()?.to_owned();
    let ports = slice["ports"].as_array()?.clone();
    let port = ports.iter().find(|port| port["name"] == port_name)?;
    format!("{address}:{}", port["port"]).parse().ok()
}

/// Both directions, until either ends.
fn join(a: TcpStream, b: TcpStream) {
    a.set_nodelay(true).unwrap();
    b.set_nodelay(true).unwrap();
    for (mut from, mut to) in [(a.try_clone().unwrap(), b.try_clone().unwrap()), (b, a)] {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}

/// A coordinator that may lead.
struct Candidate {
    process: Process,
    http: SocketAddrV4,
}

impl Candidate {
    fn ready(&self) -> (u16, String) {
        http_get(self.http, "/readyz")
    }

    fn leads(&self) -> bool {
        self.ready() == (200, "ok\n".to_owned())
    }

    /// Waits until its probe says this. A standby that could lead is ready, and says who leads.
    fn says(&self, part: &str) -> String {
        wait_for(part, || {
            let text = self.ready().1;
            text.contains(part).then_some(text)
        })
    }
}

struct World {
    server: Arc<ApiServer>,
    service: Service,
    /// Removed at the end.
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let server = Arc::new(ApiServer::start());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), server.kubeconfig()).unwrap();
        World {
            service: Service::start(&server),
            server,
            folder,
        }
    }

    fn candidate(&self, name: &str) -> Candidate {
        let kubeconfig = self.folder.path().join("config").display().to_string();
        let arguments = [
            "-C",
            "tcp:host=127.0.0.1,port=0",
            "--advertise",
            "tcp:host=127.0.0.1,port=0",
            "--state",
            "kubernetes",
            "--stateName",
            "box",
            "--services",
            "box",
            "--candidate",
            name,
        ];
        let process = Process::start_with(
            &common::program("coordinator"),
            &arguments.map(str::to_owned),
            &[("KUBECONFIG", &kubeconfig)],
        );
        let line = process.line(&["stands for election"]);
        let http = line["http"].as_str().unwrap().parse().unwrap();
        Candidate { process, http }
    }

    /// One that leads.
    fn leader(&self, name: &str) -> Candidate {
        let candidate = self.candidate(name);
        wait_for("a leader", || candidate.leads().then_some(()));
        candidate
    }

    fn holder(&self) -> Value {
        self.server.object(LEASE).unwrap()["spec"]["holderIdentity"].clone()
    }

    fn slice_term(&self) -> Option<Value> {
        let slice = self.server.object(SLICE)?;
        Some(slice["metadata"]["annotations"]["rcbox.dev/term"].clone())
    }

    /// Through the Service, so that it is the leader's.
    fn status(&self) -> Option<Value> {
        let output = rcbox(&self.service.locator, &["--json", "status"], b"");
        let success = output.status.success();
        success.then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn wait_for_members(&self, count: usize) -> Value {
        wait_for("members that are up", || {
            let status = self.status()?;
            let members = status["members"].as_array().unwrap();
            let up = members.iter().filter(|member| member["state"] == "UP");
            (up.count() == count).then_some(status)
        })
    }

    fn cluster(&self) -> client::Cluster {
        let options = client::Options {
            timeout: common::DEADLINE,
            ..client::Options::default()
        };
        client::Cluster::with_options(&self.service.locator, options).unwrap()
    }

    fn servers(&self, count: usize) -> Vec<Server> {
        let start = |number| Server::start_at(&self.service.locator, &format!("m{number}"), &[]);
        let servers: Vec<Server> = (0..count).map(start).collect();
        servers.iter().for_each(Server::wait_ready);
        servers
    }
}

#[test]
fn a_standby_goes_on_where_a_killed_leader_was() {
    let world = World::new();
    let mut first = world.leader("first");
    let second = world.candidate("second");
    let text = second.says("first leads");
    assert!(text.contains("this coordinator is a standby"), "{text}");
    let metrics = http_get(second.http, "/metrics").1;
    assert!(metrics.contains("rcbox_leading 0"), "{metrics}");
    let metrics = http_get(first.http, "/metrics").1;
    assert!(metrics.contains("rcbox_leading 1"), "{metrics}");

    let _servers = world.servers(2);
    let mut cluster = world.cluster();
    let table = cluster.create_table("fruit", 2).unwrap();
    cluster.write(table, b"apple", b"red").unwrap();
    let before = world.wait_for_members(2);
    assert_eq!(before["stateKind"], "KUBERNETES");
    assert_eq!(before["leader"]["name"], "first");
    assert_eq!(before["leader"]["term"], 1);

    // Somebody who reads and writes all the time, and somebody who needs the coordinator.
    let stop = Arc::new(AtomicBool::new(false));
    let worker = {
        let (mut cluster, stop) = (world.cluster(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                let value = cluster.increment(table, b"count", 1).unwrap().value;
                done += 1;
                assert_eq!(value, done, "each took effect once");
            }
            done
        })
    };
    first.process.signal("KILL");
    first.process.wait();
    wait_for("the next leader", || second.leads().then_some(()));
    let after = world.wait_for_members(2);
    assert_eq!(after["leader"]["name"], "second");
    assert_eq!(after["leader"]["term"], 2);
    for same in ["clusterId", "clusterTag", "tableCount", "losses"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    for member in 0..2 {
        assert_eq!(after["members"][member]["incarnations"], 1);
    }
    cluster.create_table("berries", 1).unwrap();
    assert_eq!(cluster.read(table, b"apple").unwrap().value, b"red"[..]);
    stop.store(true, Ordering::Relaxed);
    assert!(worker.join().unwrap() > 0);
    assert_eq!(world.holder(), "second");
}

#[test]
fn a_leader_that_is_told_to_end_gives_the_lease_up() {
    let world = World::new();
    let mut first = world.leader("first");
    let second = world.candidate("second");
    second.says("first leads");
    let claims = world.server.object(LEASE).unwrap()["spec"].clone();
    first.process.signal("TERM");
    assert_eq!(first.process.wait().code(), Some(0));
    first.process.line(&["gave the lease box-coordinator up"]);
    wait_for("the next leader", || second.leads().then_some(()));
    let spec = world.server.object(LEASE).unwrap()["spec"].clone();
    assert_eq!(spec["leaseTransitions"], 1, "after {claims}");
    assert_eq!(spec["leaseDurationSeconds"], 6);
}

#[test]
fn a_leader_of_the_past_ends_with_its_own_exit_code() {
    let world = World::new();
    let mut first = world.leader("first");
    let second = world.candidate("second");
    second.says("first leads");
    first.process.stop();
    wait_for("the next leader", || second.leads().then_some(()));
    wait_for("a Service that leads there", || {
        (world.slice_term()? == "2").then_some(())
    });
    let slice = world.server.object(SLICE);
    first.process.signal("CONT");
    assert_eq!(first.process.wait().code(), Some(3));
    assert_eq!(
        world.server.object(SLICE),
        slice,
        "it has not led clients back to itself"
    );
    // In its place, a standby.
    let again = world.candidate("first");
    again.says("second leads");
    assert!(second.leads());
}

#[test]
fn a_slice_of_a_term_that_was_forgotten_is_written_over() {
    let world = World::new();
    let mut first = world.leader("first");
    wait_for("a slice", || world.slice_term());
    first.process.signal("KILL");
    first.process.wait();
    world.server.change(SLICE, |slice| {
        slice["metadata"]["annotations"]["rcbox.dev/term"] = "9".into();
    });
    let again = world.leader("first");
    let text = "a leader of term 9, and this is one of term 2";
    again.process.line(&[text]);
    wait_for("a Service that leads there", || {
        (world.slice_term()? == "2").then_some(())
    });
    assert!(again.leads());
}

#[test]
fn while_the_api_server_is_away_reads_and_writes_go_on_and_changes_wait() {
    let world = World::new();
    let leader = world.leader("first");
    let standby = world.candidate("second");
    standby.says("first leads");
    let _servers = world.servers(1);
    let mut cluster = world.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    // A client that has its lease: a new one would have to wait for that.
    cluster.write(table, b"apple", b"green").unwrap();
    world.wait_for_members(1);

    world.server.set_away(true);
    standby.says("the lease box-coordinator cannot be used");
    let waiting = {
        let mut cluster = world.cluster();
        std::thread::spawn(move || cluster.create_table("later", 1).unwrap())
    };
    // Shown without waiting, and with the reason.
    let wait = wait_for("a status that says what waits", || {
        let status = world.status().unwrap();
        let wait = status["leader"]["stateWait"].clone();
        cluster.write(table, b"apple", b"red").unwrap();
        assert_eq!(cluster.read(table, b"apple").unwrap().value, b"red"[..]);
        wait.is_object().then_some(wait)
    });
    let why = wait["why"].as_str().unwrap();
    assert!(why.contains("503") && why.contains("root"), "{why}");
    assert!(!waiting.is_finished(), "it is not noted yet");
    assert!(leader.leads());
    world.server.set_away(false);
    waiting.join().unwrap();
    wait_for("a status without trouble", || {
        world.status()?["leader"]["stateWait"]
            .is_null()
            .then_some(())
    });
    assert!(leader.leads());
    assert_eq!(world.holder(), "first");
    assert_eq!(world.wait_for_members(1)["tableCount"], 2);
}

#[test]
fn objects_that_were_put_back_are_not_led_with() {
    let world = World::new();
    let mut leader = world.leader("first");
    let _servers = world.servers(1);
    let mut cluster = world.cluster();
    cluster.create_table("early", 1).unwrap();
    let backup = world.server.copy();
    cluster.create_table("late", 1).unwrap();
    let newest = world.server.copy();
    world.server.put_back(backup);
    // It notices with its next commit.
    let options = client::Options {
        timeout: std::time::Duration::from_secs(2),
        ..client::Options::default()
    };
    let hasty = client::Cluster::with_options(&world.service.locator, options);
    hasty.unwrap().create_table("never", 1).unwrap_err();
    let text = leader.says("StateRolledBack");
    assert!(text.contains("Put the newer ones back"), "{text}");
    let output = rcbox(&world.service.locator, &["status"], b"");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("StateRolledBack"), "{output:?}");
    // Nobody else leads with them either, until they are put right.
    world.server.put_back(newest);
    assert_eq!(leader.process.wait().code(), Some(1));
    let next = world.leader("first");
    let status = world.wait_for_members(1);
    assert_eq!(status["tableCount"], 2);
    assert!(next.leads());
}

#[test]
fn chunks_without_a_root_are_refused_with_what_to_do() {
    let world = World::new();
    world.leader("first");
    let root = world.server.copy();
    let chunk = format!("configmaps/box-state-chunk-1-{:016x}-1", 7);
    let path = "/api/v1/namespaces/default/".to_owned() + &chunk;
    let mut only_a_chunk = root.clone();
    only_a_chunk.retain(|path, _| path.ends_with(ROOT));
    let mut object = only_a_chunk.values().next().unwrap().clone();
    object["metadata"]["name"] = chunk["configmaps/".len()..].into();
    object["metadata"]["labels"]["rcbox.dev/state"] = "chunk".into();
    world.server.put_back([(path, object)].into());
    world.server.remove(ROOT);
    let mut candidate = world.candidate("first");
    let text = candidate.says("StateIncomplete");
    assert!(text.contains("put the root back from a backup"), "{text}");
    world.server.put_back(root);
    assert_eq!(candidate.process.wait().code(), Some(1));
    world.leader("first");
}

#[test]
fn what_is_missing_on_the_command_line_is_said() {
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(common::program("coordinator"));
        let locator = ["-C", "tcp:host=127.0.0.1,port=0", "--state", "kubernetes"];
        let output = command
            .args(locator)
            .args(more)
            .env_clear()
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = run(&[]);
    assert!(text.contains("--stateName NAME"), "{text}");
    let text = run(&["--stateName", "box"]);
    assert!(
        text.contains("KUBECONFIG") && text.contains("service account"),
        "{text}"
    );
    let text = run(&["--stateName", "Box"]);
    assert!(text.contains("lower-case letters"), "{text}");
    let text = run(&["--stateName", "box", "--services", "box"]);
    assert!(text.contains("--advertise"), "{text}");
}
