//! A global allocator that counts, for programs with one test: a second one would disturb the count.
#![allow(
    dead_code,
    unsafe_code,
    reason = "each test uses its part; an allocator is unsafe by contract"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes in use.
pub static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most bytes in use since a test set it.
pub static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Number of allocations.
pub static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counters.
struct CountingAllocator;

// Both calls are forwarded unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        COUNT.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
