// Records a failed check: keeps the largest failed number in a word of `faults`, with its sign bit inverted so that words
// are ordered like numbers.
fn note_fault(number: i32, site: u32) {
    atomicMax(&faults[site], max(bitcast<u32>(number) ^ 0x80000000u, 1u));
}

// Returns a number, and records it if it is not in low..end.
fn check_within(number: i32, low: i32, end: i32, site: u32) -> i32 {
    if number < low || number >= end {
        note_fault(number, site);
    }
    return number;
}

// Records the nearest 32-bit number.
fn check_within_i64(number: i64, low: i64, end: i64, site: u32) -> i64 {
    if number < low || number >= end {
        note_fault(i32(clamp(number, -2147483648li, 2147483647li)), site);
    }
    return number;
}

// Returns a number, and records it if it is zero.
fn check_nonzero(number: i32, site: u32) -> i32 {
    if number == 0 {
        note_fault(number, site);
    }
    return number;
}

fn check_nonzero_i64(number: i64, site: u32) -> i64 {
    if number == 0li {
        note_fault(0, site);
    }
    return number;
}

// Returns a condition, and records it if it is false.
fn check_holds(truth: bool, site: u32) -> bool {
    if !truth {
        note_fault(0, site);
    }
    return truth;
}
