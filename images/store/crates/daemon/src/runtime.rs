//! The main thread of a server program: HTTP and signals on a small runtime, while other threads run reactors.

use std::future::Future;
use std::thread::JoinHandle;

use net::{Handler, Reactor, Remote};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A thread that runs a reactor.
pub struct Loop {
    remote: Remote,
    thread: JoinHandle<Result<(), String>>,
    ended: tokio::sync::oneshot::Receiver<String>,
}

impl Loop {
    /// Starts a thread. When its loop ends by itself, that is what [`run_until_signal`] fails with. `finish` puts in order what the handler
    /// leaves when the loop has ended because it was told to.
    pub fn spawn<H: Handler + Send + 'static>(
        name: String,
        mut reactor: Reactor,
        mut handler: H,
        finish: fn(H) -> Result<(), String>,
    ) -> Result<Loop, String> {
        Loop::spawn_with(name, reactor.remote(), move || {
            reactor
                .run(&mut handler)
                .map_err(|error| format!("polling failed: {error}"))?;
            finish(handler)
        })
    }

    /// As [`Loop::spawn`], for a thread that does more than to run one reactor; `body` ends when `remote` is told to stop.
    pub fn spawn_with(
        name: String,
        remote: Remote,
        body: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Loop, String> {
        let (sender, ended) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let result = body().map_err(|text| format!("thread {name}: {text}"));
                let text = match &result {
                    Ok(()) => format!("thread {name} has ended"),
                    Err(text) => text.clone(),
                };
                // Nobody listens once the program itself is ending.
                let _ = sender.send(text);
                result
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Loop {
            remote,
            thread,
            ended,
        })
    }
}

/// Completes when the program is to end.
#[derive(Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub async fn wait(mut self) {
        // An error means that the sender is gone, which is an end, too.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Runs `services` (given what tells them to end) and `loops` until SIGTERM or SIGINT, then ends both.
///
/// # Errors
/// A service or a loop failed.
pub async fn run_until_signal<F>(
    loops: Vec<Loop>,
    services: impl FnOnce(Stop) -> F,
) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    let watch_signal =
        |kind| signal(kind).map_err(|error| format!("cannot watch for signals: {error}"));
    let (mut terminate, mut interrupt) = (
        watch_signal(SignalKind::terminate())?,
        watch_signal(SignalKind::interrupt())?,
    );
    let (stop, stopped) = watch::channel(false);
    let services = services(Stop(stopped));
    tokio::pin!(services);

    let mut threads = Vec::new();
    let mut ends = Vec::new();
    for one in loops {
        threads.push((one.remote, one.thread));
        ends.push(one.ended);
    }
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        text = first(ends) => Err(text),
        result = &mut services => result.and_then(|()| Err("a service has ended by itself".to_owned())),
    };
    for (remote, _) in &threads {
        remote.stop();
    }
    let _ = stop.send(true);
    let mut result = result;
    for (_, thread) in threads {
        let finished = thread
            .join()
            .unwrap_or_else(|_| Err("a thread panicked; please report the lines above".to_owned()));
        result = result.and(finished);
    }
    result
}

/// The first text that comes; a sender that is dropped has panicked.
async fn first(ends: Vec<tokio::sync::oneshot::Receiver<String>>) -> String {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    for end in ends {
        let sender = sender.clone();
        tokio::spawn(async move {
            let text = end.await.unwrap_or_else(|_| "a thread panicked".to_owned());
            let _ = sender.send(text).await;
        });
    }
    drop(sender);
    match receiver.recv().await {
        Some(text) => text,
        None => std::future::pending().await,
    }
}

/// Allows this process as many open files as it may allow itself: shells give 1024, fewer than the connections of a shard.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

/// Ends this process at once, as a crash would: nothing is flushed, nobody is told. Exit code 1, so that whoever supervises
/// the process takes it for a failure and starts it again.
pub fn end_process() -> ! {
    std::process::exit(1)
}
