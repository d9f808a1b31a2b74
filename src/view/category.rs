//! Categories of operators, which pictures show as colours.

use crate::ir::{Node, Op};

/// Names of the categories. Their order is that of the colours in `page/picture.css`.
pub(super) const CATEGORIES: [&str; 10] = [
    "other",
    "convolution",
    "matrix product",
    "normalization",
    "activation",
    "pooling and resampling",
    "shape",
    "reduction",
    "indexing",
    "control flow",
];

/// Beginnings of operators' names without namespace and overload, and the number of their category. The first that fits
/// counts.
const PREFIXES: &[(&str, usize)] = &[
    ("conv", 1),
    ("_conv", 1),
    ("thnn_conv", 1),
    ("unfold", 8),
    ("fold", 1),
    ("col2im", 1),
    ("im2col", 1),
    ("scaled_dot_product", 2),
    ("_scaled_dot_product", 2),
    ("multi_head", 2),
    ("linear", 2),
    ("matmul", 2),
    ("mm", 2),
    ("bmm", 2),
    ("mv", 2),
    ("dot", 2),
    ("addmm", 2),
    ("addmv", 2),
    ("addbmm", 2),
    ("baddbmm", 2),
    ("einsum", 2),
    ("bilinear", 2),
    ("outer", 2),
    ("lstm", 2),
    ("gru", 2),
    ("rnn", 2),
    ("recurrent", 2),
    ("batch_norm", 3),
    ("layer_norm", 3),
    ("group_norm", 3),
    ("instance_norm", 3),
    ("rms_norm", 3),
    ("native_", 3),
    ("local_response_norm", 3),
    ("softmax", 4),
    ("_softmax", 4),
    ("log_softmax", 4),
    ("_log_softmax", 4),
    ("relu", 4),
    ("leaky_relu", 4),
    ("prelu", 4),
    ("rrelu", 4),
    ("gelu", 4),
    ("silu", 4),
    ("mish", 4),
    ("elu", 4),
    ("selu", 4),
    ("celu", 4),
    ("glu", 4),
    ("sigmoid", 4),
    ("log_sigmoid", 4),
    ("hardsigmoid", 4),
    ("hardswish", 4),
    ("hardtanh", 4),
    ("tanh", 4),
    ("softplus", 4),
    ("threshold", 4),
    ("max_pool", 5),
    ("avg_pool", 5),
    ("adaptive_", 5),
    ("fractional_max_pool", 5),
    ("lp_pool", 5),
    ("upsample", 5),
    ("_upsample", 5),
    ("grid_sampler", 5),
    ("affine_grid", 5),
    ("interpolate", 5),
    ("pixel_", 6),
    ("view", 6),
    ("_unsafe_view", 6),
    ("reshape", 6),
    ("flatten", 6),
    ("unflatten", 6),
    ("permute", 6),
    ("transpose", 6),
    ("t", 6),
    ("numpy_T", 6),
    ("squeeze", 6),
    ("unsqueeze", 6),
    ("expand", 6),
    ("broadcast", 6),
    ("repeat", 6),
    ("tile", 6),
    ("cat", 6),
    ("concat", 6),
    ("stack", 6),
    ("split", 6),
    ("chunk", 6),
    ("unbind", 6),
    ("contiguous", 6),
    ("clone", 6),
    ("to", 6),
    ("pad", 6),
    ("constant_pad", 6),
    ("reflection_pad", 6),
    ("replication_pad", 6),
    ("roll", 6),
    ("flip", 6),
    ("movedim", 6),
    ("narrow", 6),
    ("slice", 6),
    ("select", 6),
    ("alias", 6),
    ("cast", 6),
    ("sum", 7),
    ("mean", 7),
    ("max", 7),
    ("min", 7),
    ("amax", 7),
    ("amin", 7),
    ("prod", 7),
    ("var", 7),
    ("std", 7),
    ("norm", 7),
    ("logsumexp", 7),
    ("argmax", 7),
    ("argmin", 7),
    ("reduce", 7),
    ("arg_reduce", 7),
    ("all", 7),
    ("any", 7),
    ("cumsum", 7),
    ("cumprod", 7),
    ("cummax", 7),
    ("cummin", 7),
    ("logcumsumexp", 7),
    ("scan", 7),
    ("index", 8),
    ("gather", 8),
    ("scatter", 8),
    ("embedding", 8),
    ("take", 8),
    ("masked_", 8),
    ("where", 8),
    ("sort", 8),
    ("topk", 8),
    ("nonzero", 8),
    ("one_hot", 8),
    ("bucketize", 8),
    ("searchsorted", 8),
];

/// Names of one or few letters that begin other names too.
const SHORT: usize = 3;

/// Number of the category of a node.
pub(super) fn category(node: &Node) -> usize {
    if matches!(node.op, Op::Region(_)) {
        return CATEGORIES.len() - 1;
    }
    let name = node.op.short_name();
    let fits = |prefix: &str| match prefix.len() <= SHORT && !prefix.ends_with('_') {
        true => name == prefix || name.strip_prefix(prefix).is_some_and(is_suffix),
        false => name.starts_with(prefix),
    };
    let found = PREFIXES.iter().find(|(prefix, _)| fits(prefix));
    found.map_or(0, |(_, category)| *category)
}

/// True for the end of a name that has the same meaning as the name without it: `_`, `2d`, `_copy`.
fn is_suffix(rest: &str) -> bool {
    rest.starts_with(|c: char| c == '_' || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SourcePlace;

    #[test]
    fn categories_follow_names() {
        for (name, expected) in [
            ("aten.conv2d", "convolution"),
            ("aten.convolution", "convolution"),
            ("aten.t", "shape"),
            ("aten.tanh", "activation"),
            ("aten.to.dtype", "shape"),
            ("aten.topk", "indexing"),
            ("aten.mm", "matrix product"),
            ("aten.addmm", "matrix product"),
            ("aten.max_pool2d", "pooling and resampling"),
            ("aten.max.dim", "reduction"),
            ("aten.add.Tensor", "other"),
            ("aten.scaled_dot_product_attention", "matrix product"),
            ("aten.native_layer_norm", "normalization"),
            ("aten.softmax.int", "activation"),
        ] {
            let node = Node {
                op: Op::Call(name.into()),
                arguments: Vec::new(),
                results: Vec::new(),
                place: SourcePlace::default(),
            };
            assert_eq!(CATEGORIES[category(&node)], expected, "{name}");
        }
    }
}
