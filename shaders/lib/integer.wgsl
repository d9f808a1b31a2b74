// Integer functions. Every function exists for i32 and for i64; divisors of 0 give the results of the host oracle.

fn sign_of_i32(x: i32) -> i32 {
    return select(select(i32(0), i32(1), x > i32(0)), -i32(1), x < i32(0));
}

fn maximum_i32(x: i32, y: i32) -> i32 {
    return select(x, y, x < y);
}

fn minimum_i32(x: i32, y: i32) -> i32 {
    return select(x, y, y < x);
}

// Rounded towards zero; 0 for a divisor of 0. A divisor of -1 negates, so that no quotient overflows.
fn trunc_divide_i32(x: i32, y: i32) -> i32 {
    let is_special = y == i32(0) || y == -i32(1);
    let quotient = x / select(y, i32(1), is_special);
    return select(select(quotient, -x, y == -i32(1)), i32(0), y == i32(0));
}

fn fmod_of_i32(x: i32, y: i32) -> i32 {
    return select(x - y * trunc_divide_i32(x, y), i32(0), y == i32(0));
}

fn floor_divide_i32(x: i32, y: i32) -> i32 {
    let quotient = trunc_divide_i32(x, y);
    let rest = x - y * quotient;
    let is_above = y != i32(0) && rest != i32(0) && ((x < i32(0)) != (y < i32(0)));
    return select(quotient, quotient - i32(1), is_above);
}

fn remainder_of_i32(x: i32, y: i32) -> i32 {
    return x - y * floor_divide_i32(x, y);
}

// Negative exponents give 0 except for the bases 1 and -1.
fn power_i32(x: i32, y: i32) -> i32 {
    if y < i32(0) {
        let odd = select(i32(1), -i32(1), (y & i32(1)) == i32(1));
        return select(select(i32(0), odd, x == -i32(1)), i32(1), x == i32(1));
    }
    var result = i32(1);
    var base = x;
    var left = y;
    while left > i32(0) {
        if (left & i32(1)) == i32(1) {
            result = result * base;
        }
        base = base * base;
        left = left >> 1u;
    }
    return result;
}

fn shift_left_i32(x: i32, y: i32) -> i32 {
    let is_valid = y >= i32(0) && y <= i32(31);
    return select(i32(0), x << (u32(y) & 31u), is_valid);
}

fn shift_right_i32(x: i32, y: i32) -> i32 {
    return x >> select(31u, u32(y), y >= i32(0) && y <= i32(31));
}

// High word of the product of two words as unsigned bits; computed from halves.
fn mul_high_i32(x: i32, y: i32) -> i32 {
    let a = u32(x);
    let b = u32(y);
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let upper = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return i32((a >> 16u) * (b >> 16u) + (middle >> 16u) + (upper >> 16u));
}

// Greatest common divisor of magnitudes, by Euclid's algorithm.
fn gcd_i32(x: i32, y: i32) -> i32 {
    var larger = x;
    var smaller = y;
    while smaller != 0 {
        let rest = larger % smaller;
        larger = smaller;
        smaller = rest;
    }
    return abs(larger);
}
