use crate::dim::Dim;
use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Graph, Node, Op, Primitive, Value, ValueId};
use crate::op::ConvAxis;
use crate::shape::Shape;

/// Largest number of phases, taps or padding elements that the pass handles.
const MAX_SIZE: i64 = 4096;

/// Rewrites transposed convolutions as ordinary ones by the polyphase decomposition of interpolation filters. Each of
/// `count` neighbouring output positions reads the input through its own subset of the taps; all other taps fall between
/// input elements. So each phase becomes a channel of an ordinary convolution with its taps, and the channels are then
/// interleaved.
///
/// Phases with different numbers of taps are channels of different convolutions: a zero tap in place of a missing one
/// would turn an infinity into NaN.
pub fn polyphase(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            let Some(transposed) = TransposedConv::of(graph, node) else {
                return replay.copy(node);
            };
            let [x, filter] = transposed.operands.map(|operand| replay.value(operand));
            Ok(vec![transposed.to_ordinary(x, filter)])
        })
    })
}

/// A transposed convolution.
struct TransposedConv<'a> {
    /// Input and filter.
    operands: [ValueId; 2],
    groups: i64,
    /// Spatial sizes of the result.
    space: &'a [Dim],
    /// The phases along each spatial axis.
    axes: Vec<AxisPhases>,
}

impl<'a> TransposedConv<'a> {
    /// Matches a node that is a transposed convolution.
    fn of(graph: &'a Graph, node: &Node) -> Option<TransposedConv<'a>> {
        let Op::Primitive(Primitive::Conv(conv)) = &node.op else {
            return None;
        };
        let (&[x, filter], &[result]) = (node.operands().as_slice(), node.results.as_slice())
        else {
            return None;
        };
        let taps = graph.ty(filter).shape.get(2..)?.iter();
        let axes = conv.axes.iter().zip(taps);
        let axes = axes.map(|(axis, taps)| AxisPhases::of(axis, taps.as_const()?));
        let axes = axes.collect::<Option<Vec<AxisPhases>>>()?;
        if axes.iter().all(|axis| axis.count == 1) {
            return None;
        }
        let count = axes
            .iter()
            .try_fold(1i64, |all, axis| all.checked_mul(axis.count));
        count.filter(|count| *count <= MAX_SIZE)?;
        Some(TransposedConv {
            operands: [x, filter],
            groups: conv.groups,
            space: graph.ty(result).shape.get(2..)?,
            axes,
        })
    }

    /// The result `[N, O, Y..]` by ordinary convolutions of input `[N, C, H..]` and filter `[O, C / G, K..]`. `N` is
    /// the batch, `C` and `O` are input and output channels, `G` is the number of groups; `H`, `K` and `Y` are spatial
    /// sizes.
    fn to_ordinary<'g>(&self, x: Value<'g>, filter: Value<'g>) -> Value<'g> {
        let phases = self.all_phases(x, filter, &[]);
        let interleaved = self.interleave(phases, x.size(0), filter.size(0));
        let spatial = (2..).zip(self.axes.iter().zip(self.space));
        spatial.fold(interleaved, |y, (axis, (phases, size))| {
            y.narrow(axis, phases.start, size.clone())
        })
    }

    /// The phases `[N, G, P.., O / G, Q..]`, with `P..` phases of `Q..` positions each. Those along the first axes are
    /// those that are `chosen`.
    fn all_phases<'g>(
        &self,
        x: Value<'g>,
        filter: Value<'g>,
        chosen: &[&EqualPhases],
    ) -> Value<'g> {
        let Some(axis) = self.axes.get(chosen.len()) else {
            return self.equal_phases(x, filter, chosen);
        };
        let parts = axis.phases.iter().map(|phases| {
            let chosen = [chosen, &[phases]].concat();
            self.all_phases(x, filter, &chosen)
        });
        let parts: Vec<Value> = parts.collect();
        match parts[..] {
            [only] => only,
            _ => x.builder().concat(&parts, 2 + chosen.len() as i64),
        }
    }

    /// Phases with equal numbers of taps, by one convolution.
    fn equal_phases<'g>(
        &self,
        x: Value<'g>,
        filter: Value<'g>,
        phases: &[&EqualPhases],
    ) -> Value<'g> {
        let groups = Dim::from(self.groups);
        let mut shape: Shape = vec![x.size(0), groups.clone()];
        shape.extend(phases.iter().map(|phases| Dim::from(phases.len)));
        shape.push(filter.size(0).floor_div(&groups));
        let spatial = (2..).zip(self.axes.iter().zip(phases));
        shape.extend(spatial.map(|(axis, (of_axis, phases))| {
            x.size(axis) + (of_axis.low + of_axis.high(phases) + 1 - phases.taps)
        }));
        if phases.iter().any(|phases| phases.taps == 0) {
            return x.builder().full(x.dtype(), shape, 0);
        }
        let axes = self.axes.iter().zip(phases).map(|(axis, phases)| ConvAxis {
            low: axis.low,
            high: axis.high(phases),
            ..ConvAxis::padded(1, 0)
        });
        x.conv(
            self.phase_filter(filter, phases),
            axes.collect(),
            self.groups,
        )
        .reshape(shape)
    }

    /// The filter regrouped to `[G · P.. · O / G, C / G, M..]`: `P..` phases of each output channel become output
    /// channels with `M..` taps.
    fn phase_filter<'g>(&self, filter: Value<'g>, phases: &[&EqualPhases]) -> Value<'g> {
        let (outputs, channels) = (filter.size(0), filter.size(1));
        let groups = Dim::from(self.groups);
        let mut split_shape = vec![groups.clone(), outputs.floor_div(&groups), channels.clone()];
        let taps_and_phases = phases.iter().flat_map(|phases| [phases.taps, phases.len]);
        split_shape.extend(taps_and_phases.map(Dim::from));
        let spatial = (2..).zip(self.axes.iter().zip(phases));
        let taps_of_phases = spatial.fold(filter, |filter, (axis, (of_axis, phases))| {
            of_axis.taps_of(filter, axis, phases)
        });
        let taps: Vec<usize> = (0..self.axes.len()).map(|axis| 3 + 2 * axis).collect();
        let phase_axes: Vec<usize> = taps.iter().map(|axis| axis + 1).collect();
        // Phases are in reverse order of their first taps: the last phase begins with the first tap.
        let phase_dims: Vec<i64> = phase_axes.iter().map(|axis| *axis as i64).collect();
        let permutation = [&[0], phase_axes.as_slice(), &[1, 2], &taps].concat();
        let counts = phases.iter().map(|phases| phases.len);
        let mut joined_shape = vec![counts.fold(outputs, |all, count| all * count), channels];
        joined_shape.extend(phases.iter().map(|phases| Dim::from(phases.taps)));
        taps_of_phases
            .reshape(split_shape)
            .flip(&phase_dims)
            .permute(permutation)
            .reshape(joined_shape)
    }

    /// Interleaves the phases `[N, G, P.., O / G, Q..]` to neighbouring positions of `[N, O, Q · P..]`.
    fn interleave<'g>(&self, phases: Value<'g>, batch: Dim, outputs: Dim) -> Value<'g> {
        let n = self.axes.len();
        let sizes_and_phases = (0..n).flat_map(|axis| [3 + n + axis, 2 + axis]);
        let permutation: Vec<usize> = [0, 1, 2 + n].into_iter().chain(sizes_and_phases).collect();
        let spatial = self.axes.iter().enumerate();
        let sizes =
            spatial.map(|(axis, of_axis)| phases.size(3 + (n + axis) as i64) * of_axis.count);
        let joined_shape: Shape = [batch, outputs].into_iter().chain(sizes).collect();
        phases.permute(permutation).reshape(joined_shape)
    }
}

/// The phases along one spatial axis.
struct AxisPhases {
    /// Number of phases.
    count: i64,
    /// The phases in order.
    phases: Vec<EqualPhases>,
    /// Zeros in front of the input.
    low: i64,
    /// Zeros behind the input without those that a phase's taps need; negative to crop it.
    high: i64,
    /// Positions to skip in front of the first one of the result.
    start: i64,
}

/// Neighbouring phases with equal numbers of taps.
struct EqualPhases {
    /// Number of phases.
    len: i64,
    /// Taps of each phase.
    taps: i64,
    /// Index of the last phase's first tap in the filter.
    first_tap: i64,
}

impl AxisPhases {
    /// The phases of an axis whose filter has `taps` taps; `None` if the convolution has strides, dilation or sizes
    /// above [`MAX_SIZE`].
    ///
    /// With `v = position + count - 1 - low`, the phase of a position is `v mod count`. The position reads input element
    /// `v div count` through tap `count - 1 - phase`, and the following elements through every `count`th tap from there.
    /// If `taps` is no multiple of `count`, the last phases, which begin with the first taps, have one tap more.
    fn of(axis: &ConvAxis, taps: i64) -> Option<AxisPhases> {
        let ConvAxis {
            stride,
            low,
            high,
            dilation,
            base_dilation: count,
        } = *axis;
        let is_small = |number: i64| (-MAX_SIZE..=MAX_SIZE).contains(&number);
        let are_small = [low, high, taps, count].into_iter().all(is_small);
        let is_plain = stride == 1 && dilation == 1 && count > 0 && taps > 0;
        if !is_plain || !are_small {
            return None;
        }
        let (least, longer) = (taps / count, taps % count);
        let equal = |len, taps, first_tap| EqualPhases {
            len,
            taps,
            first_tap,
        };
        let phases = [
            equal(count - longer, least, longer),
            equal(longer, least + 1, 0),
        ];
        let low_zeros = low.max(0) / count;
        Some(AxisPhases {
            count,
            phases: phases.into_iter().filter(|phases| phases.len > 0).collect(),
            low: low_zeros,
            high: (high - taps).div_euclid(count),
            start: count - 1 - low + low_zeros * count,
        })
    }

    /// Zeros behind the input of phases, so that all phases have equally many positions.
    fn high(&self, phases: &EqualPhases) -> i64 {
        self.high + phases.taps
    }

    /// The taps of phases along an axis of a filter: those of all phases for the first element, then those for the next.
    fn taps_of<'g>(&self, filter: Value<'g>, axis: i64, phases: &EqualPhases) -> Value<'g> {
        if phases.len == self.count {
            return filter;
        }
        let elements = (0..phases.taps).map(|element| {
            let first = phases.first_tap + element * self.count;
            filter.narrow(axis, first, Dim::from(phases.len))
        });
        let elements: Vec<Value> = elements.collect();
        match elements[..] {
            [only] => only,
            _ => filter.builder().concat(&elements, axis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp;
    use crate::ir::Builder;
    use crate::tensor::Tensor;

    fn numbers(shape: &[usize], seed: usize) -> Tensor {
        let numel: usize = shape.iter().product();
        let number = |index: usize| ((index * 7919 + seed) % 257) as f32 / 97.0 - 1.0;
        Tensor::from_vec(shape, (0..numel).map(number).collect()).unwrap()
    }

    /// Puts an infinity into a tensor. A zero tap would turn it into NaN.
    fn with_infinity(tensor: Tensor) -> Tensor {
        let mut data = tensor.to_f64();
        data[2] = f64::INFINITY;
        Tensor::from_f64(tensor.dtype(), tensor.shape(), data).unwrap()
    }

    /// A convolution of images of symbolic size, before and after [`polyphase`].
    fn both(axes: Vec<ConvAxis>, filter: &[usize], groups: i64) -> [Graph; 2] {
        let hints = [("N", 2), ("H", 4), ("W", 5)].map(|(name, size)| (name.into(), size));
        let builder = Builder::with_symbols("forward", hints.into(), Vec::new());
        let channels = filter[1] * groups as usize;
        let sizes = ["H", "W"].iter().take(axes.len()).copied();
        let sizes: Vec<&str> = sizes.collect();
        let x = format!("f32[N, {channels}, {}]", sizes.join(", "));
        let x = builder.input("x", x.parse().unwrap());
        let filter = builder.input("filter", format!("f32{filter:?}").parse().unwrap());
        let y = x.conv(filter, axes, groups).id();
        let graph = builder.finish(&[y], Vec::new(), None).unwrap();
        let by_phases = polyphase(&graph).unwrap();
        by_phases.verify().unwrap();
        [graph, by_phases]
    }

    fn spread(base_dilation: i64, low: i64, high: i64) -> ConvAxis {
        ConvAxis {
            low,
            high,
            base_dilation,
            ..ConvAxis::padded(1, 0)
        }
    }

    fn is_transposed(graph: &Graph) -> bool {
        let nodes = &mut graph.nodes.iter();
        nodes.any(|node| match &node.op {
            Op::Primitive(Primitive::Conv(conv)) => {
                conv.axes.iter().any(|axis| axis.base_dilation > 1)
            }
            _ => false,
        })
    }

    #[test]
    fn phases_give_what_a_spread_input_gives() {
        let equal = [(2, 4), (2, 2), (2, 6), (3, 3), (3, 9), (4, 4), (5, 10)];
        let unequal = [
            (2, 1),
            (2, 3),
            (2, 7),
            (3, 2),
            (3, 4),
            (3, 5),
            (5, 1),
            (4, 11),
        ];
        for (count, taps) in equal.into_iter().chain(unequal) {
            for (low, high) in [(0, 0), (taps - 1, taps - 1), (1, 2), (7, -1), (-1, 6)] {
                let filter = [3, 2, taps as usize];
                let [graph, by_phases] = both(vec![spread(count, low, high)], &filter, 1);
                assert!(is_transposed(&graph) && !is_transposed(&by_phases));
                for size in [4, 5] {
                    let x = with_infinity(numbers(&[2, 2, size], 1));
                    let given = [x, numbers(&filter, 5)];
                    let expected = interp::run(&graph, &Default::default(), &given).unwrap();
                    let found = interp::run(&by_phases, &Default::default(), &given).unwrap();
                    let bits = |tensors: &[Tensor]| {
                        tensors[0]
                            .to_f64()
                            .iter()
                            .map(|x| x.to_bits())
                            .collect::<Vec<_>>()
                    };
                    assert_eq!(
                        bits(&found),
                        bits(&expected),
                        "{count} {taps} {low} {high} {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn groups_and_axes_keep_their_places() {
        for (axes, taps) in [
            ([spread(2, 2, 3), spread(1, 1, 0)], [4, 2]),
            ([spread(2, 1, 2), spread(3, 3, 2)], [3, 4]),
            ([spread(1, 1, 1), spread(3, 0, 1)], [3, 2]),
        ] {
            let filter = [6, 2, taps[0], taps[1]];
            let [graph, by_phases] = both(axes.to_vec(), &filter, 3);
            let given = [numbers(&[2, 6, 3, 5], 3), numbers(&filter, 11)];
            let expected = interp::run(&graph, &Default::default(), &given).unwrap();
            assert_eq!(
                interp::run(&by_phases, &Default::default(), &given).unwrap(),
                expected,
                "{taps:?}"
            );
        }
    }

    #[test]
    fn others_stay_as_they_are() {
        let dilated = ConvAxis {
            dilation: 2,
            ..spread(2, 1, 1)
        };
        let (plain, many) = (spread(1, 1, 1), spread(MAX_SIZE + 1, 0, 0));
        for (axis, taps) in [(plain, 4), (dilated, 4), (many, MAX_SIZE + 1)] {
            let [graph, by_phases] = both(vec![axis], &[3, 2, taps as usize], 1);
            assert!(graph == by_phases);
        }
    }
}
