//! The time stamp counter, and what its ticks mean.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Attempts to read both clocks at one moment; the one that took least time counts.
const ATTEMPTS: usize = 8;

/// The processor's time stamp counter. It is read without waiting for what comes before it in the program to end: two
/// stamps may be off by the few instructions that the processor has under way.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it reads a counter and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// No such counter is known here: nanoseconds of the monotone clock.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both parts are non-negative on these clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    ticks: u64,
    /// On CLOCK_BOOTTIME, the clock of everything else.
    ns: u64,
}

impl Moment {
    fn now() -> Moment {
        let attempts = (0..ATTEMPTS).map(|_| {
            let before = ticks();
            let ns = nanos(ClockId::Boottime);
            let took = ticks().wrapping_sub(before);
            (took, before.wrapping_add(took / 2), ns)
        });
        let best = attempts.min_by_key(|(took, ..)| *took);
        let (_, ticks, ns) = best.unwrap_or_default();
        Moment { ticks, ns }
    }
}

/// When the first recorder of this process began: the longer ago, the better the rate is known.
pub(crate) fn anchor() -> Moment {
    static ANCHOR: OnceLock<Moment> = OnceLock::new();
    *ANCHOR.get_or_init(Moment::now)
}

/// What ticks mean, as it was found by holding two moments against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// A moment, in ticks and in nanoseconds of CLOCK_BOOTTIME.
    pub ticks: u64,
    pub ns: u64,
    pub ticks_per_second: u64,
    /// The run of the kernel whose counter this is: ticks of one machine can be compared, those of two cannot.
    pub boot_id: [u8; 16],
}

impl Clock {
    pub(crate) fn now() -> Clock {
        let (first, mut last) = (anchor(), Moment::now());
        // Moments in the same nanosecond say nothing of the rate.
        while last.ns == first.ns {
            last = Moment::now();
        }
        let ticks = last.ticks.wrapping_sub(first.ticks);
        let rate = u128::from(ticks) * 1_000_000_000 / u128::from(last.ns - first.ns);
        Clock {
            ticks: last.ticks,
            ns: last.ns,
            ticks_per_second: u64::try_from(rate).unwrap_or(u64::MAX).max(1),
            boot_id: boot_id(),
        }
    }

    /// How long so many ticks are.
    pub fn nanos(&self, ticks: i64) -> f64 {
        ticks as f64 * 1e9 / self.ticks_per_second as f64
    }

    /// When it was on CLOCK_BOOTTIME.
    pub fn boottime_ns(&self, ticks: u64) -> u64 {
        let after = self.nanos(ticks.wrapping_sub(self.ticks) as i64);
        self.ns.saturating_add_signed(after as i64)
    }
}

/// The run of this machine's kernel; zeros where the kernel does not say.
pub fn boot_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    *ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let digits: String = text
            .unwrap_or_default()
            .chars()
            .filter(char::is_ascii_hexdigit)
            .collect();
        u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
    })
}
