//! Real processes, and raw connections to them. Ports come from the kernel; every wait is for a condition, with a deadline
//! far above what is typical.

pub mod frames;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives something.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a program of the store is.
pub fn program(name: &str) -> String {
    test_store::program(name).display().to_string()
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<Value>>,
    changed: Condvar,
}

/// A running program with what it has logged. Killed when dropped.
pub struct Process {
    pub child: Child,
    log: Arc<Log>,
}

impl Process {
    pub fn start(program: &str, arguments: &[String]) -> Process {
        Process::start_with(program, arguments, &[])
    }

    /// With nothing but these in its environment.
    pub fn start_with(
        program: &str,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Process {
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--logFormat", "json", "--logLevel", "debug"])
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let log = Arc::new(Log::default());
        let reader = BufReader::new(child.stderr.take().unwrap());
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                writer.lines.lock().unwrap().push(value);
                writer.changed.notify_all();
            }
        });
        Process { child, log }
    }

    /// The first line with all of these texts in it; waits for it.
    pub fn line(&self, parts: &[&str]) -> Value {
        let deadline = Instant::now() + DEADLINE;
        let mut lines = self.log.lines.lock().unwrap();
        loop {
            let found = lines.iter().find(|line| {
                let text = line.to_string();
                parts.iter().all(|part| text.contains(part))
            });
            if let Some(line) = found {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {parts:?} in {:#?}", *lines);
            lines = self.log.changed.wait_timeout(lines, left).unwrap().0;
        }
    }

    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill")
            .args([&format!("-{signal}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// Stops the process, as SIGSTOP does; it may still run for a moment after the signal.
    pub fn stop(&self) {
        self.signal("STOP");
        wait_for("a process that is stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
            let stat = stat.unwrap();
            let state = stat.rsplit_once(')').unwrap().1.trim_start();
            state.starts_with('T').then_some(())
        });
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.child.try_wait().unwrap())
    }

    /// Memory that is in use.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    /// CPU time used so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A coordinator.
pub struct Coordinator {
    pub process: Process,
    pub client: SocketAddrV4,
    pub member: SocketAddrV4,
    pub admin: SocketAddrV4,
    /// The folder of the operator's certificate, for an admin API that asks for one.
    pub operator: Option<String>,
    pub http: SocketAddrV4,
    /// With the ports that cannot be derived.
    pub locator: String,
}

impl Coordinator {
    pub fn start(more: &[&str]) -> Coordinator {
        Coordinator::start_at("tcp:host=127.0.0.1,port=0", more)
    }

    fn start_at(locator: &str, more: &[&str]) -> Coordinator {
        let mut arguments = vec!["-C".to_owned(), locator.to_owned()];
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        let process = Process::start(&program("coordinator"), &arguments);
        let line = process.line(&["serving", "member"]);
        let address = |name: &str| line[name].as_str().unwrap().parse().unwrap();
        Coordinator {
            client: address("client"),
            member: address("member"),
            admin: address("admin"),
            operator: None,
            http: address("http"),
            locator: line["locator"].as_str().unwrap().to_owned(),
            process,
        }
    }

    /// Another coordinator process at the same addresses.
    pub fn start_again(&self) -> Coordinator {
        self.start_again_with(&[])
    }

    /// The same with more options.
    pub fn start_again_with(&self, more: &[&str]) -> Coordinator {
        let client = format!("tcp:host=127.0.0.1,port={}", self.client.port());
        let (member, admin) = (self.member.to_string(), self.admin.to_string());
        let http = self.http.to_string();
        let addresses = [
            "--memberListen",
            &member,
            "--adminListen",
            &admin,
            "--httpListen",
            &http,
        ];
        Coordinator::start_at(&client, &[&addresses, more].concat())
    }

    pub fn status(&self) -> Value {
        self.json("status")
    }

    pub fn tables(&self) -> Value {
        self.json("tables")
    }

    fn json(&self, command: &str) -> Value {
        let mut arguments = vec!["--json", command];
        arguments.extend(self.operator.iter().flat_map(|folder| ["--tls", folder]));
        let output = rcbox(&self.locator, &arguments, b"");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until this many members are up.
    pub fn wait_for_members(&self, count: usize) -> Value {
        wait_for(&format!("{count} members that are up"), || {
            let status = self.status();
            let members = status["members"].as_array().unwrap();
            let up = members
                .iter()
                .filter(|member| member["state"] == "UP")
                .count();
            (up == count).then_some(status)
        })
    }
}

/// A server.
pub struct Server {
    pub process: Process,
    /// Where each shard listens.
    pub shards: Vec<SocketAddrV4>,
    pub http: SocketAddrV4,
}

impl Server {
    pub fn start(coordinator: &Coordinator, member: &str, more: &[&str]) -> Server {
        Server::start_at(&coordinator.locator, member, more)
    }

    /// Of the store whose coordinator has this locator.
    pub fn start_at(locator: &str, member: &str, more: &[&str]) -> Server {
        let mut arguments: Vec<String> = vec!["-C".to_owned(), locator.to_owned()];
        let own = ["-L", "tcp:host=127.0.0.1,port=0", "--member", member];
        arguments.extend(own.iter().chain(more).map(|text| (*text).to_owned()));
        let has_memory = more.contains(&"-t");
        if !has_memory {
            arguments.extend(["-t".to_owned(), "64".to_owned()]);
        }
        let process = Process::start(&program("server"), &arguments);
        let address = |line: &Value, name: &str| line[name].as_str().unwrap().parse().unwrap();
        let http = address(&process.line(&["serving health"]), "http");
        let cores = more
            .iter()
            .position(|text| *text == "--cores")
            .map_or(1, |at| more[at + 1].parse().unwrap());
        let shards = (0..cores).map(|shard: usize| {
            address(
                &process.line(&["serving", &format!("\"shard\":{shard},")]),
                "listening",
            )
        });
        Server {
            shards: shards.collect(),
            http,
            process,
        }
    }

    pub fn wait_ready(&self) {
        wait_for("a server that is ready", || {
            (http_get(self.http, "/readyz").0 == 200).then_some(())
        });
    }
}

/// Status and body.
pub fn http_get(address: SocketAddrV4, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        answer
            .split_once("\r\n\r\n")
            .map_or(String::new(), |(_, body)| body.to_owned()),
    )
}

/// A coordinator with servers `m0`, `m1` ... that are enlisted.
pub struct Store {
    pub coordinator: Coordinator,
    pub servers: Vec<Server>,
}

impl Store {
    pub fn start(servers: usize, more: &[&str]) -> Store {
        // Tablets stay where they were made.
        let coordinator = Coordinator::start(&["--clusterTag", "0", "--rebalance", "off"]);
        let mut started: Vec<Server> = Vec::new();
        for index in 0..servers {
            let server = Server::start(&coordinator, &format!("m{index}"), more);
            server.wait_ready(); // One after the other, so that server ids follow the names.
            started.push(server);
        }
        Store {
            coordinator,
            servers: started,
        }
    }

    pub fn master(&self) -> Rpc {
        Rpc::connect(self.servers[0].shards[0])
    }

    pub fn client(&self) -> Rpc {
        Rpc::connect(self.coordinator.client)
    }

    pub fn cluster(&self) -> client::Cluster {
        let options = client::Options {
            timeout: DEADLINE,
            ..client::Options::default()
        };
        client::Cluster::with_options(&self.coordinator.locator, options).unwrap()
    }
}

/// Runs the command line tool.
pub fn rcbox(locator: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program("rcbox"))
        .args(["-C", locator])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A connection on which a test decides every byte.
pub struct Rpc {
    pub stream: TcpStream,
    nonce: u64,
}

impl Rpc {
    pub fn connect(address: SocketAddrV4) -> Rpc {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Rpc { stream, nonce: 0 }
    }

    pub fn send(&mut self, nonce: u64, payload: &[u8]) {
        let header = transport::rpc::header(nonce, u32::try_from(payload.len()).unwrap());
        self.stream
            .write_all(&[&header[..], payload].concat())
            .unwrap();
    }

    pub fn receive(&mut self) -> (u64, Vec<u8>) {
        let mut header = [0; transport::rpc::TRANSPORT_HEADER_BYTES];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_le_bytes(header[8..].try_into().unwrap()) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        (u64::from_le_bytes(header[..8].try_into().unwrap()), payload)
    }

    /// One request and its answer.
    pub fn call(&mut self, payload: &[u8]) -> Vec<u8> {
        self.nonce += 1;
        self.send(self.nonce, payload);
        let (nonce, answer) = self.receive();
        assert_eq!(nonce, self.nonce);
        answer
    }

    /// The status of the answer.
    pub fn status(&mut self, payload: &[u8]) -> u32 {
        u32::from_le_bytes(self.call(payload)[..4].try_into().unwrap())
    }

    /// Repeats a request while the answer is RETRY.
    pub fn call_until_done(&mut self, payload: &[u8]) -> Vec<u8> {
        wait_for("an answer other than RETRY", || {
            let answer = self.call(payload);
            (answer[..4] != 17u32.to_le_bytes()).then_some(answer)
        })
    }
}

pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
