//! An allocator that refuses memory beyond a cap.

#![allow(unsafe_code, reason = "an allocator is unsafe by contract")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Largest number of bytes that are allocated at a time.
const CAP: usize = 256 << 20;

/// The system's allocator, up to [`CAP`]. A request beyond it fails: the library returns an error if it asked whether there is
/// memory, else the process aborts with "memory allocation of … bytes failed".
pub struct CappedAllocator {
    live: AtomicUsize,
}

impl CappedAllocator {
    /// An allocator of which nothing is used.
    pub const fn new() -> CappedAllocator {
        CappedAllocator {
            live: AtomicUsize::new(0),
        }
    }

    /// Allocates bytes with `allocate`, unless the cap would be exceeded.
    fn within_cap(&self, bytes: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
        let before = self.live.fetch_add(bytes, Relaxed);
        let memory = match before.checked_add(bytes) {
            Some(live) if live <= CAP => allocate(),
            _ => null_mut(),
        };
        if memory.is_null() {
            self.live.fetch_sub(bytes, Relaxed);
        }
        memory
    }
}

// SAFETY: all calls are forwarded unchanged, or fail.
unsafe impl GlobalAlloc for CappedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.within_cap(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.within_cap(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks may exist while the elements are copied; the old one is counted until then.
        let new = self.within_cap(size, || unsafe { System.realloc(memory, layout, size) });
        if !new.is_null() {
            self.live.fetch_sub(layout.size(), Relaxed);
        }
        new
    }
}
