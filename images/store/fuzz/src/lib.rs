//! What an input may cost in memory: counted in all targets, so that a decoder is found that makes much of little.

use test_memory::peak_of;

/// What all of it may take: so many times the input, and this beside it.
#[derive(Clone, Copy)]
pub struct Bound {
    pub times: usize,
    pub fixed_bytes: usize,
}

impl Bound {
    /// Of decoders of what strangers send. A list that grows is there twice, and the checks of a target make copies of what they read.
    pub const DECODER: Bound = Bound {
        times: 16,
        fixed_bytes: 1 << 20,
    };

    /// Of readers of what a coordinator itself has written: a pair of two bytes is some hundred in maps, several of which are there at a time.
    pub const STATE: Bound = Bound {
        times: 512,
        fixed_bytes: 16 << 20,
    };

    /// Of a state machine with this much memory of its own.
    pub const fn machine(fixed_bytes: usize) -> Bound {
        Bound {
            times: 16,
            fixed_bytes,
        }
    }

    /// Runs what is done with an input of this length.
    ///
    /// # Panics
    /// It took more.
    pub fn check<R>(self, input_bytes: usize, act: impl FnOnce() -> R) -> R {
        let (result, taken) = peak_of(act);
        let most = self.times * input_bytes + self.fixed_bytes;
        assert!(
            taken <= most,
            "{taken} bytes of memory were taken for an input of {input_bytes}: {most} is the most"
        );
        result
    }
}

/// As libFuzzer's own `fuzz_target`, within a bound.
#[macro_export]
macro_rules! bounded_target {
    ($bound:expr, |$data:ident: &[u8]| $body:block) => {
        libfuzzer_sys::fuzz_target!(|$data: &[u8]| {
            $bound.check($data.len(), || $body);
        });
    };
    ($bound:expr, |$data:ident: &str| $body:block) => {
        libfuzzer_sys::fuzz_target!(|$data: &str| {
            $bound.check($data.len(), || $body);
        });
    };
}
