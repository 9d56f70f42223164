//! An allocator that counts what each thread holds, so that a decoder which takes memory out of proportion is noticed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends may free when its counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is handed on as it is to the system's allocator, which keeps the contract; counting allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The result of `f`, which may hold no more than `most` bytes at any moment.
pub fn bounded<T>(most: usize, f: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    let took = usize::try_from(PEAK.get() - before).unwrap_or(0);
    assert!(took <= most, "{took} bytes of memory, {most} would be in proportion");
    result
}

#[test]
fn what_is_held_at_any_moment_counts() {
    let took = |most| std::panic::catch_unwind(|| bounded(most, || drop(vec![1u8; 1000]))).is_ok();
    assert!(took(1000));
    assert!(!took(999));
    let grown = || bounded(3000, || (0..100u8).map(|b| vec![b; 10]).collect::<Vec<_>>().len());
    assert!(std::panic::catch_unwind(grown).is_err(), "100 vectors are more than their contents");
}
