//! The main thread of a server program: HTTP and signals on a small runtime, while other threads run reactors.

use std::error::Error;
use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use net::{Handler, Reactor, Remote};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Why a thread, or a service, of a program has failed: each has errors of its own.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Why a program that serves cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("thread {thread}: {failure}")]
    Thread { thread: String, failure: Failure },
    #[error("thread {0} has ended")]
    ThreadEnded(String),
    #[error("a thread panicked; please report the lines above")]
    ThreadPanicked,
    #[error(transparent)]
    Service(Failure),
    #[error("a service has ended by itself")]
    ServiceEnded,
}

/// The kernel does not tell what has come.
#[derive(Debug, thiserror::Error)]
#[error("polling failed: {0}")]
pub struct PollingFailed(pub io::Error);

/// A thread that runs a reactor.
pub struct Loop {
    name: String,
    remote: Remote,
    thread: JoinHandle<Result<(), Failure>>,
    /// Completes when the thread ends, in whatever way.
    ended: oneshot::Receiver<()>,
}

impl Loop {
    /// Starts a thread. When its loop ends by itself, that is what [`run_until_signal`] fails with. `finish` puts in order what the handler
    /// leaves when the loop has ended because it was told to.
    pub fn spawn<H: Handler + Send + 'static, E: Into<Failure> + 'static>(
        name: String,
        mut reactor: Reactor,
        mut handler: H,
        finish: fn(H) -> Result<(), E>,
    ) -> Result<Loop, RuntimeError> {
        Loop::spawn_with(name, reactor.remote(), move || {
            reactor.run(&mut handler).map_err(PollingFailed)?;
            finish(handler).map_err(Into::into)
        })
    }

    /// As [`Loop::spawn`], for a thread that does more than to run one reactor; `body` ends when `remote` is told to stop.
    pub fn spawn_with(
        name: String,
        remote: Remote,
        body: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<Loop, RuntimeError> {
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                // Dropped at the end, which is what is waited for: also when the thread panics.
                let _end = end;
                body()
            })
            .map_err(RuntimeError::Spawn)?;
        Ok(Loop {
            name,
            remote,
            thread,
            ended,
        })
    }

    /// Waits for the end of the thread.
    fn join(self) -> Result<(), RuntimeError> {
        let Loop { name, thread, .. } = self;
        match thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(RuntimeError::Thread {
                thread: name,
                failure,
            }),
            Err(_) => Err(RuntimeError::ThreadPanicked),
        }
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
pub async fn run_until_signal<F, E>(
    mut loops: Vec<Loop>,
    services: impl FnOnce(Stop) -> F,
) -> Result<(), RuntimeError>
where
    F: Future<Output = Result<(), E>>,
    E: Into<Failure>,
{
    let mut terminate = signal(SignalKind::terminate()).map_err(RuntimeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RuntimeError::Signals)?;
    let (stop, stopped) = watch::channel(false);
    let services = services(Stop(stopped));
    tokio::pin!(services);

    let mut ended = None;
    let mut result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        index = first_to_end(&mut loops) => {
            ended = Some(index);
            Ok(())
        }
        result = &mut services => Err(match result {
            Ok(()) => RuntimeError::ServiceEnded,
            Err(error) => RuntimeError::Service(error.into()),
        }),
    };
    for one in &loops {
        one.remote.stop();
    }
    let _ = stop.send(true);
    for (index, one) in loops.into_iter().enumerate() {
        let name = one.name.clone();
        let finished = one.join();
        // Why the first one has ended is the reason; what the others say of their end comes of that.
        result = match ended == Some(index) {
            true => finished.and(Err(RuntimeError::ThreadEnded(name))),
            false => result.and(finished),
        };
    }
    result
}

/// The index of the loop whose thread ends first.
async fn first_to_end(loops: &mut [Loop]) -> usize {
    let (sender, mut receiver) = mpsc::channel(1);
    for (index, one) in loops.iter_mut().enumerate() {
        let (_, never) = oneshot::channel();
        let ended = std::mem::replace(&mut one.ended, never);
        let sender = sender.clone();
        tokio::spawn(async move {
            // Nothing is ever sent: an error is the end of the thread.
            let _ = ended.await;
            let _ = sender.send(index).await;
        });
    }
    drop(sender);
    match receiver.recv().await {
        Some(index) => index,
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
