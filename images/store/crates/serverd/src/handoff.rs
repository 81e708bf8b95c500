//! Two threads for a shard, of which one runs it: the other takes over while the first is late from a write.
//!
//! A write to the page cache takes microseconds, and to have another thread do it would cost two wake-ups, which is more than the write. So a
//! shard's thread carries out the writes that the shard has submitted itself: between the halves of a round, and between rounds. Meanwhile all
//! that the shard is, its reactor included, is left in a place where the other thread finds it. When a device has stopped, the write does not return, and
//! the other thread goes on with the shard. The late thread finds the place empty, carries out what has been submitted since, and
//! is the one that watches from then on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::time::Time;
use daemon::runtime::{Failure, PollingFailed};
use net::{Reactor, Round};

use super::driver::Driver;
use super::storage::Lane;

/// A thread that is in writes for longer is late. With [`LOOK`] less than the 50 ms after which masters call a backup slow.
const LATE: Duration = Duration::from_millis(20);
/// How often that is looked at while there are writes.
const LOOK: Duration = Duration::from_millis(10);
/// After so many looks without a write, the thread that looks goes to sleep.
const LOOKS: u32 = 20;

/// A shard between two steps: all that the thread needs that runs it.
pub struct Running {
    reactor: Reactor,
    driver: Driver,
    /// The first half of a round is over.
    round: Option<Round>,
}

/// State that the two threads have in common.
pub struct Seat {
    state: Mutex<State>,
    changed: Condvar,
    /// When the writes began for which the shard was left here; 0: it was not.
    since: AtomicU64,
    /// How often that was.
    times: AtomicU64,
    /// The thread that watches is to be woken when writes begin.
    sleeps: AtomicBool,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    /// With [`Seat::times`] when it was left.
    left: Option<(u64, Box<Running>)>,
    /// The shard has ended; with what, until the first thread has it.
    ended: Option<Result<(), Failure>>,
}

/// How a thread's time with the shard ends.
enum Parted {
    Ended(Result<(), Failure>),
    /// The other thread has the shard.
    Late,
}

impl Running {
    pub fn new(reactor: Reactor, driver: Driver) -> Running {
        Running {
            reactor,
            driver,
            round: None,
        }
    }

    /// One half of a round.
    fn step(&mut self) -> Result<(), PollingFailed> {
        match self.round.take() {
            Some(round) => self.reactor.finish(round, &mut self.driver),
            None => {
                let round = self.reactor.receive(&mut self.driver);
                self.round = Some(round.map_err(PollingFailed)?);
            }
        }
        Ok(())
    }

    /// Writes have ended: they are answered, and more may be due.
    fn written(&mut self) {
        self.driver.written(net::now(), self.reactor.io());
        self.reactor.tick_soon();
    }
}

impl Seat {
    /// Has another thread stand by for the shard that the calling thread is going to [`Seat::run`].
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn with_spare(
        name: &str,
        prepare: impl FnOnce() -> Box<dyn std::any::Any> + Send + 'static,
    ) -> std::io::Result<Arc<Seat>> {
        let seat = Arc::new(Seat {
            state: Mutex::default(),
            changed: Condvar::new(),
            since: AtomicU64::new(0),
            times: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let other = Arc::clone(&seat);
        let thread = std::thread::Builder::new().name(format!("{name}-2"));
        thread.spawn(move || {
            let _prepared = prepare();
            other.serve(None);
        })?;
        Ok(seat)
    }

    /// Runs the shard, or watches the thread that does, until the shard ends.
    ///
    /// # Errors
    /// As the shard has ended.
    pub fn run(&self, shard: Running) -> Result<(), Failure> {
        self.serve(Some(Box::new(shard)));
        self.state().ended.take().unwrap_or(Ok(()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut shard: Option<Box<Running>>) {
        loop {
            let Some(mut mine) = shard.take().or_else(|| self.watch()) else {
                return;
            };
            mine.driver.thread_changed();
            if let Parted::Ended(result) = self.go_on(mine) {
                let mut state = self.state();
                state.ended = Some(result);
                self.has_ended.store(true, Ordering::Release);
                self.changed.notify_all();
                return;
            }
        }
    }

    /// Until the shard ends, or the other thread takes it.
    fn go_on(&self, mut shard: Box<Running>) -> Parted {
        loop {
            if shard.round.is_none() && shard.reactor.is_stopped() {
                let Running {
                    mut reactor,
                    mut driver,
                    ..
                } = *shard;
                reactor.flush_last(&mut driver);
                return Parted::Ended(driver.finish().map_err(Failure::from));
            }
            if let Err(failed) = shard.step() {
                return Parted::Ended(Err(failed.into()));
            }
            if let Some(lane) = shard.driver.lane_to_carry_out() {
                match self.carry_out(shard, &lane) {
                    Some(back) => shard = back,
                    None => return Parted::Late,
                }
                shard.written();
            }
        }
    }

    /// Carries out writes. The shard, unless the other thread has it by then.
    fn carry_out(&self, shard: Box<Running>, lane: &Lane) -> Option<Box<Running>> {
        let times = self.times.fetch_add(1, Ordering::SeqCst) + 1;
        self.state().left = Some((times, shard));
        self.since.store(net::now().0, Ordering::Release);
        if self.sleeps.load(Ordering::SeqCst) {
            let _state = self.state();
            self.sleeps.store(false, Ordering::SeqCst);
            self.changed.notify_all();
        }
        lane.carry_out();
        // The other thread may have taken the shard, and be in writes by now itself.
        let back = self.state().left.take_if(|(number, _)| *number == times);
        match back {
            Some((_, shard)) => {
                self.since.store(0, Ordering::Release);
                Some(shard)
            }
            None => {
                lane.wake();
                None
            }
        }
    }

    /// Watches the thread that has the shard. The shard, when that thread is late; `None`: it has ended.
    fn watch(&self) -> Option<Box<Running>> {
        let (mut idle, mut times) = (0, self.times.load(Ordering::SeqCst));
        while !self.has_ended.load(Ordering::Acquire) {
            let since = self.since.load(Ordering::Acquire);
            if since != 0 && net::now().since(Time(since)) >= LATE {
                let mut state = self.state();
                // Others may have begun since.
                if self.since.load(Ordering::Acquire) == since
                    && let Some((_, shard)) = state.left.take()
                {
                    self.since.store(0, Ordering::Release);
                    return Some(shard);
                }
            }
            let before = std::mem::replace(&mut times, self.times.load(Ordering::SeqCst));
            idle = if before == times { idle + 1 } else { 0 };
            if idle < LOOKS || since != 0 {
                std::thread::sleep(LOOK);
            } else {
                self.sleep(times);
                idle = 0;
            }
        }
        None
    }

    /// Until there are more writes than so many, or the shard ends.
    fn sleep(&self, times: u64) {
        let state = self.state();
        self.sleeps.store(true, Ordering::SeqCst);
        // Those that begin now may not see that.
        if self.times.load(Ordering::SeqCst) == times {
            let is_idle = |_: &mut State| {
                self.sleeps.load(Ordering::SeqCst) && !self.has_ended.load(Ordering::Acquire)
            };
            let woken = self.changed.wait_while(state, is_idle);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }
}
