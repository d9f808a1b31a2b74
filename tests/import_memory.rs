//! Memory that an import leaves behind. The global allocator of this program counts bytes; a second test would disturb the
//! count.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod counting_allocator;
mod hostile;

use std::sync::atomic::Ordering::Relaxed;

use counting_allocator::LIVE;
use hostile::program;
use onionskin::item::Item;
use onionskin::{Model, Tensor};

/// Imports a program with these statements a few times. Returns how many bytes the last import left in use.
fn left_by_import(statements: &str) -> usize {
    let model = Model::from_bytes(program(&format!("{statements}    return x\n"), "")).unwrap();
    let x = [Item::Tensor(
        Tensor::from_vec([2], vec![1f32, 2.0]).unwrap(),
    )];
    // The first imports fill caches.
    (0..3).fold(0, |_, _| {
        let before = LIVE.load(Relaxed);
        drop(model.import_for(&x).unwrap());
        LIVE.load(Relaxed).saturating_sub(before)
    })
}

#[test]
fn values_that_contain_themselves_leave_nothing() {
    let long = "    n = torch.mul([1], 100000)\n";
    let itself = "    l = annotate(List[Any], [n, x])\n    _0 = torch.append(l, l)\n";
    let each_other = "    a = annotate(List[Any], [n])\n    b = annotate(List[Any], [a])\n    _0 = torch.append(a, (b, 1))\n";
    let dict =
        "    d = annotate(Dict[str, Any], {\"n\": n})\n    _0 = torch._set_item(d, \"d\", d)\n";
    for statements in ["", itself, each_other, dict] {
        let left = left_by_import(&format!("{long}{statements}"));
        assert!(left < 10_000, "{left} bytes are left by {statements:?}");
    }
}
