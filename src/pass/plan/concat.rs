//! Concatenations of images along channels, whose operands are written right to where they end.

use std::collections::BTreeMap;

use super::fuse::{Fusion, Group};
use super::layout::{CHANNELS, IMAGE};
use super::quad::{is_multiple, is_whole};
use crate::dim::Dim;
use crate::ir::{Definition, Graph, Op, Primitive, ValueId};

/// Values that lie within others, and how many elements lie in front of them there.
pub type Parts = BTreeMap<ValueId, (ValueId, Dim)>;

/// Bindings begin at multiples of so many bytes on any device.
const ALIGNMENT: u64 = 256;

/// Leaves out the kernels of concatenations whose operands can be parts of the result's memory.
pub fn place(graph: &Graph, fusion: &mut Fusion) {
    let groups = std::mem::take(&mut fusion.groups);
    for group in groups {
        match parts(graph, fusion, &group) {
            Some(parts) => fusion.parts.extend(parts),
            None => fusion.groups.push(group),
        }
    }
}

/// Where the operands of a concatenation lie in it: one behind the other, if all are quads of channels of one image. None if
/// a kernel has to put them there.
fn parts(graph: &Graph, fusion: &Fusion, group: &Group) -> Option<Parts> {
    let (root, shape) = (group.root, &graph.ty(group.root).shape);
    let Definition::Node(index, _) = graph.value(root).definition else {
        return None;
    };
    let node = &graph.nodes[index];
    let Op::Primitive(Primitive::Concat(concat)) = &node.op else {
        return None;
    };
    let place = |value: ValueId| {
        (
            &fusion.layouts[value.index()],
            fusion.storages[value.index()],
        )
    };
    let (layout, storage) = place(root);
    let is_one = concat.axis == CHANNELS && shape.first().is_some_and(|batch| batch.is(1));
    if group.rows.is_some() || *layout != IMAGE || !is_one {
        return None;
    }
    let aligned = usize::try_from(ALIGNMENT / storage.size()).ok()?;
    let (mut parts, mut start, mut begins_quad) = (Parts::new(), Dim::ZERO, true);
    for operand in node.operands() {
        let is_free = !fusion.parts.contains_key(&operand) && !parts.contains_key(&operand);
        let begins = begins_quad && is_multiple(&start, aligned);
        if !is_free || place(operand) != place(root) || !begins {
            return None;
        }
        let ty = graph.ty(operand);
        begins_quad = is_whole(&ty.shape[CHANNELS]);
        let next = &start + &ty.numel();
        parts.insert(operand, (root, std::mem::replace(&mut start, next)));
    }
    Some(parts)
}
