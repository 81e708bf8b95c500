//! Ctrl-C at a prompt: it gives up the command that runs, never the prompt.

use std::time::Duration;

use program::tokio_runtime;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::Failure;
use super::args::Command;
use super::out::{Out, Stop};
use super::session::Session;

/// Long enough for a signal that has come to be noticed.
const NOTICE: Duration = Duration::from_millis(1);

/// Receives SIGINT from its creation on.
pub struct Interrupts {
    runtime: Runtime,
    signal: Signal,
}

/// A command that has ended.
pub struct Ended {
    pub session: Session,
    pub result: Result<(), Failure>,
}

impl Interrupts {
    pub fn new() -> Result<Interrupts, Failure> {
        let runtime = tokio_runtime()?;
        let signal = {
            let _context = runtime.enter();
            signal(SignalKind::interrupt())
                .map_err(|error| Failure::Because(format!("cannot watch for Ctrl-C: {error}")))?
        };
        Ok(Interrupts { runtime, signal })
    }

    /// Forgets a second Ctrl-C that was meant for a command that is over.
    pub fn forget(&mut self) {
        let signal = &mut self.signal;
        // Mostly there is none.
        let _ = self
            .runtime
            .block_on(async { tokio::time::timeout(NOTICE, signal.recv()).await });
    }

    /// Runs a command on a thread of its own, so that Ctrl-C can leave it alone: it then ends by itself, at the latest with its
    /// timeout, and writes nothing more. `None` if it was left.
    pub fn run(
        &mut self,
        mut session: Session,
        command: Command,
        json: bool,
    ) -> Result<Option<Ended>, Failure> {
        let stop = Stop::default();
        let mut out = Out::new(json, stop.clone());
        out.is_one_of_many = true;
        let (sender, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("command".to_owned())
            .spawn(move || {
                let result = session.run(command, &mut out);
                let result = result.and(out.flush());
                drop(out);
                // Nobody waits for a command that was given up.
                let _ = sender.send(Ended { session, result });
            })
            .map_err(|error| Failure::Because(format!("cannot start a thread: {error}")))?;
        let signal = &mut self.signal;
        self.runtime.block_on(async {
            tokio::select! {
                ended = ended => ended.map(Some).map_err(|_| {
                    Failure::Because("the command panicked; please report the lines above".to_owned())
                }),
                _ = signal.recv() => {
                    stop.set();
                    Ok(None)
                }
            }
        })
    }
}
