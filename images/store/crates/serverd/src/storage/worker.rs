//! A thread that does one kind of work, one piece after the other.

use std::sync::mpsc::{Sender, channel};

use super::error::NoThread;

/// Its thread ends when it is dropped, after what it was given.
pub struct Worker<J>(Sender<J>);

impl<J: Send + 'static> Worker<J> {
    /// # Errors
    /// There is no thread for it.
    pub fn start(
        name: String,
        mut work: impl FnMut(J) + Send + 'static,
    ) -> Result<Worker<J>, NoThread> {
        let (sender, jobs) = channel();
        let run = move || jobs.into_iter().for_each(&mut work);
        std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Worker(sender))
    }

    /// False if the thread has panicked.
    pub fn give(&self, job: J) -> bool {
        self.0.send(job).is_ok()
    }
}
