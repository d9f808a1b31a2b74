// Divisions of indices.

// The quotient of 32-bit integers, exact for divisors below 2^30. A rasteriser would divide the lanes of a vector one by one.
// The first estimate is wrong by at most 2^-21 of the quotient and 1, the sum of both by at most 1.
fn index_quotient(x: u32, y: u32) -> u32 {
    let inverse = 1.0 / f32(y);
    let estimate = u32(f32(x) * inverse);
    let missing = floor(f32(bitcast<i32>(x - estimate * y)) * inverse);
    let quotient = estimate + bitcast<u32>(i32(missing));
    let rest = bitcast<i32>(x - quotient * y);
    let above = quotient + select(0u, 1u, rest >= bitcast<i32>(y));
    return select(above, quotient - 1u, rest < 0);
}

fn index_remainder(x: u32, y: u32) -> u32 {
    return x - index_quotient(x, y) * y;
}
