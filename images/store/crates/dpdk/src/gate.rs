//! Keeps lanes out of a port while it is opened anew.
//!
//! A lane pays one load for each burst, of a number that does not change. Only when it does, the lane answers, and stays out until it has changed again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often whoever closes looks whether all have answered: they do within a poll.
const LOOK: Duration = Duration::from_micros(200);

/// In front of what is done to a port by half a lane: the one that receives, or the one that sends.
pub(crate) struct Gate {
    /// Odd while it is closed.
    epoch: AtomicU32,
    halves: Box<[Half]>,
}

#[derive(Default)]
struct Half {
    present: AtomicBool,
    /// The last odd epoch in which it was found to stay out.
    out: AtomicU32,
}

/// What half a lane knows of the gate.
pub(crate) struct Pass {
    half: usize,
    /// In which it has been inside; even.
    epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Open,
    /// The port was opened anew since the last time: its address may be another. Said once.
    Anew,
    Closed,
}

#[derive(Clone, Copy)]
pub(crate) enum Side {
    Receives = 0,
    Sends = 1,
}

impl Gate {
    pub fn new(lanes: u16) -> Gate {
        Gate {
            epoch: AtomicU32::new(0),
            halves: (0..2 * usize::from(lanes))
                .map(|_| Half::default())
                .collect(),
        }
    }

    /// For half a lane that comes into being. Not while another thread closes: the caller sees to that.
    pub fn admit(&self, lane: u16, side: Side) -> Pass {
        let half = 2 * usize::from(lane) + side as usize;
        self.halves[half].present.store(true, Ordering::Release);
        Pass {
            half,
            epoch: self.epoch.load(Ordering::Acquire) & !1,
        }
    }

    /// Half a lane is no more.
    pub fn leave(&self, pass: &Pass) {
        self.halves[pass.half]
            .present
            .store(false, Ordering::Release);
    }

    /// Unless the answer is `Closed`, whoever asks may go in, and is out again when it asks the next time.
    #[inline]
    pub fn enter(&self, pass: &mut Pass) -> Entry {
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch == pass.epoch {
            return Entry::Open;
        }
        self.answer(pass, epoch)
    }

    #[cold]
    fn answer(&self, pass: &mut Pass, epoch: u32) -> Entry {
        if epoch % 2 == 1 {
            self.halves[pass.half].out.store(epoch, Ordering::Release);
            return Entry::Closed;
        }
        pass.epoch = epoch;
        Entry::Anew
    }

    /// Closes it, and waits until nobody is inside. False, and it is open again, if somebody has not answered within `patience`.
    /// It may be closed already. By one thread at a time: the caller sees to that.
    pub fn close(&self, patience: Duration) -> bool {
        if self.epoch.load(Ordering::Acquire) % 2 == 1 {
            return true;
        }
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        let start = Instant::now();
        let is_out = |half: &Half| {
            !half.present.load(Ordering::Acquire) || half.out.load(Ordering::Acquire) == epoch
        };
        while !self.halves.iter().all(is_out) {
            if start.elapsed() > patience {
                self.open();
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// It was closed.
    pub fn open(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_closes_at_once_when_nobody_is_there_and_waits_for_those_who_are() {
        let gate = Gate::new(2);
        assert!(gate.close(Duration::ZERO));
        gate.open();
        let pass = gate.admit(1, Side::Sends);
        assert!(!gate.close(Duration::ZERO), "nobody has answered");
        gate.leave(&pass);
        assert!(gate.close(Duration::ZERO));
        assert!(gate.close(Duration::ZERO), "it is");
    }

    #[test]
    fn half_a_lane_is_told_once_that_the_port_is_another() {
        let gate = Gate::new(1);
        let mut pass = gate.admit(0, Side::Receives);
        assert_eq!(gate.enter(&mut pass), Entry::Open);
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| gate.close(LONG));
            while gate.enter(&mut pass) != Entry::Closed {
                std::thread::yield_now();
            }
            assert!(closing.join().is_ok_and(|closed| closed));
        });
        assert_eq!(gate.enter(&mut pass), Entry::Closed);
        // One that comes meanwhile stays out, too.
        let mut other = gate.admit(0, Side::Sends);
        assert_eq!(gate.enter(&mut other), Entry::Closed);
        gate.open();
        assert_eq!(gate.enter(&mut pass), Entry::Anew);
        assert_eq!(gate.enter(&mut pass), Entry::Open);
        assert_eq!(gate.enter(&mut other), Entry::Anew);
    }

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let gate = Gate::new(2);
        let inside = AtomicUsize::new(0);
        let ends = AtomicBool::new(false);
        let passes = [Side::Receives, Side::Sends].map(|side| gate.admit(1, side));
        std::thread::scope(|scope| {
            for mut pass in passes {
                let (gate, inside, ends) = (&gate, &inside, &ends);
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        if gate.enter(&mut pass) != Entry::Closed {
                            inside.fetch_add(1, Ordering::Relaxed);
                            std::hint::spin_loop();
                            inside.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..200 {
                assert!(gate.close(LONG));
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                gate.open();
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}
