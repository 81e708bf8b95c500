//! Not a test of the store but of the fuzzer: fails on one input in 2^64, which is found only with feedback from coverage and
//! from comparisons. run.sh runs it first and stops if it is not found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::hint::black_box;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    // One step after the other, as a decoder does.
    if black_box(u32::from_le_bytes(*first)) != 0x7263_626f {
        return;
    }
    let Some(second) = rest.first_chunk::<4>() else {
        return;
    };
    if black_box(u32::from_le_bytes(*second)) == 0x6b72_616d {
        panic!("planted");
    }
});
