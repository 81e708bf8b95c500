//! A store of processes, which end with it; their files go as well.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use admin::admin_client::AdminClient;
use admin::{
    GetClusterStatusRequest, GetClusterStatusResponse, MigrateTabletRequest, Migration,
    migrate_tablet_request,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::Failure;

/// For anything that takes milliseconds, or seconds where a disk is busy.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// What servers are started with, all alike.
#[derive(Clone, Copy)]
pub struct Plan {
    pub servers: usize,
    pub replicas: u8,
    pub is_flushed: bool,
    pub memory_mb: u64,
    /// Segments that each backup has room for.
    pub frames: u64,
}

pub struct Store {
    folder: PathBuf,
    processes: Vec<Process>,
    /// For clients and servers.
    pub locator: String,
    /// Host and port of it, for clients.
    pub address: String,
    runtime: Runtime,
    admin: AdminClient<Channel>,
}

struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Where it serves clients.
    locator: String,
}

/// The folder of the programs: this one is in `examples` there.
pub fn programs() -> Result<PathBuf, Failure> {
    let this = std::env::current_exe()?;
    let folder = this.parent().and_then(Path::parent);
    Ok(folder.ok_or("this program is in no folder")?.to_owned())
}

impl Process {
    fn start(
        folder: &Path,
        name: &str,
        program: &str,
        words: &[String],
    ) -> Result<Process, Failure> {
        // Beside the store's folder, where it is still found when that is gone.
        let log = folder.with_file_name(format!("{name}.log"));
        let mut command = Command::new(programs()?.join(program));
        command
            .args(words)
            .args(["--logFormat", "json"])
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        end_with_this_process(&mut command);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
            locator: String::new(),
        })
    }

    /// The line in which it says where it serves.
    fn serving(&mut self) -> Result<Value, Failure> {
        let log = self.log.clone();
        wait(&format!("{} to serve", self.name), || {
            if self.child.try_wait()?.is_some() {
                return Err(format!("{} has ended: see {}", self.name, log.display()).into());
            }
            let text = std::fs::read_to_string(&log)?;
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            Ok(lines
                .map(fields)
                .find(|line: &Value| line["message"] == "serving"))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Also if this one is killed.
#[allow(unsafe_code)]
fn end_with_this_process(command: &mut Command) {
    let end = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(end);
    }
}

/// What a line of a log says.
fn fields(line: Value) -> Value {
    line.get("fields").cloned().unwrap_or(line)
}

/// Looks again and again until there is something.
pub fn wait<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("waited {} s for {what}", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(LOOK);
    }
}

fn text(line: &Value, field: &str) -> Result<String, Failure> {
    let text = line[field].as_str();
    Ok(text.ok_or(format!("no {field} in {line}"))?.to_owned())
}

impl Store {
    /// Starts a store in a folder that is not there yet, and waits until all servers serve and have their copies.
    pub fn start(folder: &Path, plan: &Plan) -> Result<Store, Failure> {
        std::fs::create_dir_all(folder)?;
        let state = format!("file:{}", folder.join("state").display());
        let words = ["-C", "tcp:host=127.0.0.1,port=0", "--state", &state].map(str::to_owned);
        let mut coordinator = Process::start(folder, "coordinator", "coordinator", &words)?;
        let line = coordinator.serving()?;
        // A thread of its own answers the coordinator's keep-alives while objects are written, which may take minutes.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let endpoint = Endpoint::from_shared(format!("http://{}", text(&line, "admin")?))?;
        let channel = {
            let _context = runtime.enter();
            endpoint.timeout(PATIENCE).connect_lazy()
        };
        let mut store = Store {
            folder: folder.to_owned(),
            processes: vec![coordinator],
            locator: text(&line, "locator")?,
            address: text(&line, "client")?,
            runtime,
            admin: AdminClient::new(channel),
        };
        for number in 0..plan.servers {
            let server = store.server(number, plan)?;
            store.processes.push(server);
        }
        for server in &mut store.processes[1..] {
            server.locator = text(&server.serving()?, "locator")?;
        }
        let (count, wanted) = (plan.servers, u64::from(plan.replicas));
        wait("all servers to serve", || {
            let status = store.status()?;
            let shards = || status.members.iter().flat_map(|member| &member.shards);
            let is_ready = shards().all(|shard| shard.serving && shard.backups_usable >= wanted);
            Ok((shards().count() == count && is_ready && shortness(&status) == 0).then_some(()))
        })?;
        Ok(store)
    }

    fn server(&self, number: usize, plan: &Plan) -> Result<Process, Failure> {
        // A machine of its own, as far as the store knows: copies lie on others.
        let name = format!("server-{number}");
        let durability = if plan.is_flushed {
            "flushed"
        } else {
            "buffered"
        };
        let words = [
            ("-C", self.locator.clone()),
            ("-L", "tcp:host=127.0.0.1,port=0".to_owned()),
            ("--member", name.clone()),
            ("--hostId", name.clone()),
            ("-t", plan.memory_mb.to_string()),
            ("-r", plan.replicas.to_string()),
            ("-f", self.folder.join(&name).display().to_string()),
            ("--segmentMB", "8".to_owned()),
            ("--segmentFrames", plan.frames.to_string()),
            ("--durability", durability.to_owned()),
        ];
        let words: Vec<String> = words
            .into_iter()
            .flat_map(|(option, value)| [option.to_owned(), value])
            .collect();
        Process::start(&self.folder, &name, "server", &words)
    }

    pub fn status(&self) -> Result<GetClusterStatusResponse, Failure> {
        let mut admin = self.admin.clone();
        let answer = self
            .runtime
            .block_on(admin.get_cluster_status(GetClusterStatusRequest {}))?;
        Ok(answer.into_inner())
    }

    /// Moves the tablet of a table that has one only, and waits until it is there.
    pub fn migrate(&self, table: u64, member: &str) -> Result<Migration, Failure> {
        let request = MigrateTabletRequest {
            table: Some(migrate_tablet_request::Table::TableId(table)),
            target: Some(migrate_tablet_request::Target::Member(member.to_owned())),
            ..MigrateTabletRequest::default()
        };
        let mut admin = self.admin.clone();
        let begun = self.runtime.block_on(admin.migrate_tablet(request))?;
        let begun = begun.into_inner().migration.unwrap_or_default();
        let is_it = |one: &Migration| one.migration_id == begun.migration_id && one.ended_ns > 0;
        let ended = wait("the migration", || {
            Ok(self.status()?.migrations.into_iter().find(is_it))
        })?;
        match ended.failure.as_str() {
            "" => Ok(ended),
            why => Err(format!("the migration was given up: {why}").into()),
        }
    }

    /// kill -9 of the server that serves clients there; gives its name.
    pub fn kill(&mut self, locator: &str) -> Result<String, Failure> {
        let at = self
            .processes
            .iter()
            .position(|process| process.locator == locator);
        let server = at.ok_or_else(|| format!("no server at {locator}"))?;
        let mut server = self.processes.remove(server);
        if server.child.try_wait()?.is_some() {
            return Err(format!("{} has ended before it was killed", server.name).into());
        }
        server.child.kill()?;
        Ok(server.name.clone())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.processes.clear();
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("warning: {} is left: {error}", self.folder.display());
        }
    }
}

/// Segments that lack copies.
pub fn shortness(status: &GetClusterStatusResponse) -> u64 {
    let shards = status.members.iter().flat_map(|member| &member.shards);
    shards
        .filter(|shard| shard.connected)
        .map(|shard| shard.segments_short)
        .sum()
}
