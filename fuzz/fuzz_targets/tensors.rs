#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onionskin_fuzz::run("tensors", data));
