#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use onionskin_fuzz::mutate_record;

fuzz_target!(|data: &[u8]| onionskin_fuzz::run("archive", data));
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_record(data, size, max_size, seed, fuzzer_mutate)
});
