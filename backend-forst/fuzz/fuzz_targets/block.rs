#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_backend_forst_fuzz::block(bytes));
