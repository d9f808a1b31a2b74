//! Data parallelism on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads that work at once: as many as there are processors.
pub(super) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies a function to all items on a number of threads, including the calling one. Returns the results in the order of
/// the items; `None` if the function panics.
pub(super) fn map<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    function: impl Fn(&T) -> R + Sync,
) -> Option<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut results = Vec::new();
        while let Some((index, item)) = claim(&next, items) {
            results.push((index, function(item)));
        }
        results
    };
    let mut results = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut results = worker();
        for helper in helpers {
            results.extend(helper.join().unwrap_or_default());
        }
        results
    });
    results.sort_by_key(|(index, _)| *index);
    let complete = results.len() == items.len();
    complete.then(|| results.into_iter().map(|(_, result)| result).collect())
}

/// The next item that no thread has taken, with its index; `None` if all items are taken.
fn claim<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let doubled = map(default_threads(), &items, |item| item * 2);
        assert_eq!(doubled, Some(items.iter().map(|item| item * 2).collect()));
        assert_eq!(map(2, &[], |item: &usize| *item), Some(Vec::new()));
    }
}
