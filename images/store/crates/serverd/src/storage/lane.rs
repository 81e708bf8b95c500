//! Writes to one file, carried out one after the other, by one thread at a time: usually that of the shard that has submitted them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use backup::{Completion, StorageError};
use net::Remote;

use super::worker::Worker;

/// With more to be written at once, the shard's thread leaves it to another: copying so much into the page cache takes as long as many requests.
const LONG_BYTES: usize = 1 << 20;

/// Hears what has ended. Clones tell the same one.
#[derive(Clone)]
pub struct Teller {
    completions: Sender<Completion>,
    remote: Remote,
}

impl Teller {
    pub fn new(completions: Sender<Completion>, remote: Remote) -> Teller {
        Teller {
            completions,
            remote,
        }
    }

    /// From another thread than the shard's.
    pub fn tell(&self, completion: Completion) {
        self.leave(completion);
        self.wake();
    }

    /// To be found at the next look.
    fn leave(&self, completion: Completion) {
        // Nobody listens once the process is ending.
        let _ = self.completions.send(completion);
    }

    pub fn wake(&self) {
        self.remote.wake();
    }
}

/// See the module.
pub struct Lane {
    file: Arc<File>,
    path: Arc<Path>,
    queue: Mutex<Queue>,
    idle: Condvar,
    teller: Teller,
}

#[derive(Default)]
struct Queue {
    batch: Batch,
    /// Room that is used again and again.
    spare: Batch,
    /// Some thread carries writes out; it takes what is submitted meanwhile, too.
    is_busy: bool,
    /// Threads that wait until nobody is busy.
    waiting: u32,
    /// A write has failed, and those behind it are passed over until the shard has heard of that.
    is_broken: bool,
}

#[derive(Default)]
struct Batch {
    steps: Vec<Step>,
    bytes: Vec<u8>,
}

enum Step {
    Write {
        ticket: u64,
        offset: u64,
        length: usize,
    },
    /// The failure of a write was heard of.
    Resume,
}

/// The thread that carries out the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Nothing,
    /// Another thread, which has begun before.
    Another,
    /// The caller.
    Caller {
        is_long: bool,
    },
}

impl Lane {
    pub fn new(file: Arc<File>, path: Arc<Path>, teller: Teller) -> Lane {
        Lane {
            file,
            path,
            queue: Mutex::default(),
            idle: Condvar::new(),
            teller,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, ticket: u64, offset: u64, bytes: &[u8]) {
        let batch = &mut self.queue().batch;
        batch.bytes.extend_from_slice(bytes);
        batch.steps.push(Step::Write {
            ticket,
            offset,
            length: bytes.len(),
        });
    }

    pub fn resume(&self) {
        self.queue().batch.steps.push(Step::Resume);
    }

    fn begin(&self) -> Begun {
        let mut queue = self.queue();
        if queue.is_busy {
            return Begun::Another;
        }
        if queue.batch.steps.is_empty() {
            return Begun::Nothing;
        }
        queue.is_busy = true;
        Begun::Caller {
            is_long: queue.batch.bytes.len() > LONG_BYTES,
        }
    }

    /// Whether the caller is to call [`Lane::carry_out`] now: there is something, nobody does it, and it is not long; `writer` has long ones.
    pub fn is_to_carry_out(&self, writer: &Worker<()>) -> bool {
        match self.begin() {
            Begun::Nothing | Begun::Another => false,
            // Its thread has panicked: this one does it as well.
            Begun::Caller { is_long } => !is_long || !writer.give(()),
        }
    }

    /// Carries out all that was submitted, and what is while this goes on. For whoever has begun.
    pub fn carry_out(&self) {
        let mut queue = self.queue();
        let (mut batch, mut is_broken) = (std::mem::take(&mut queue.spare), queue.is_broken);
        drop(queue);
        let mut is_first = true;
        loop {
            let mut queue = self.queue();
            if queue.batch.steps.is_empty() {
                (queue.spare, queue.is_broken) = (batch, is_broken);
                queue.is_busy = false;
                // To notify costs a system call, even where nobody waits.
                if queue.waiting > 0 {
                    self.idle.notify_all();
                }
                return;
            }
            std::mem::swap(&mut queue.batch, &mut batch);
            drop(queue);
            if !is_first {
                // Another thread has the shard, and has submitted this.
                self.wake();
            }
            is_first = false;
            self.write(&batch, &mut is_broken);
            batch.steps.clear();
            batch.bytes.clear();
            // Much is under way only while a device is late.
            batch.bytes.shrink_to(LONG_BYTES);
        }
    }

    fn write(&self, batch: &Batch, is_broken: &mut bool) {
        let (mut at, mut written) = (0, None);
        for step in &batch.steps {
            match *step {
                Step::Resume => *is_broken = false,
                Step::Write {
                    ticket,
                    offset,
                    length,
                } => {
                    let bytes = &batch.bytes[at..at + length];
                    at += length;
                    if *is_broken {
                        continue;
                    }
                    match self.file.write_all_at(bytes, offset) {
                        Ok(()) => written = Some(ticket),
                        Err(error) => {
                            self.leave_written(written.take());
                            *is_broken = true;
                            let text = format!(
                                "{}: cannot write {length} bytes at {offset}: {error}",
                                self.path.display()
                            );
                            let completion = Completion::WriteFailed(ticket, StorageError(text));
                            self.teller.leave(completion);
                        }
                    }
                }
            }
        }
        self.leave_written(written);
    }

    fn leave_written(&self, ticket: Option<u64>) {
        if let Some(ticket) = ticket {
            self.teller.leave(Completion::Written(ticket));
        }
    }

    /// Tells the shard that completions wait, when it does not look by itself.
    pub fn wake(&self) {
        self.teller.wake();
    }

    /// Waits until nothing is under way, for whoever may wait.
    pub fn wait(&self) {
        loop {
            match self.begin() {
                Begun::Nothing => return,
                Begun::Caller { .. } => self.carry_out(),
                Begun::Another => {
                    let mut queue = self.queue();
                    queue.waiting += 1;
                    let idle = self.idle.wait_while(queue, |queue| queue.is_busy);
                    idle.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
                }
            }
        }
    }
}
