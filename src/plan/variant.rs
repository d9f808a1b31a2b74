//! Table of kernel variants: the algorithm of a matrix product or convolution, by adapter, sizes and dtype.

pub mod lowering;
pub mod rewrite;
mod tiles;

use std::collections::BTreeMap;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::{KernelVariant, VariantChoice, VariantOverrides};
use crate::kernel::materialization::Precision;
use crate::kernel::winograd::OutputTile;
use crate::op::Conv;
use crate::plan::conv::filter_gradient::FilterGradient;
use crate::plan::conv::{direct, implicit_gemm};
use crate::plan::cost::{example_size, is_plain_view};
use crate::plan::element::vec4::is_multiple_of_4;
use crate::plan::element::{KernelScope, operand};
use crate::plan::product::tile::{self, TileShape, fits_texture};
use crate::plan::product::{Product, matrix, vector, workgroup};
use crate::plan::vec4_layout::may_be_image;
use crate::shape::Shape;

/// A matrix product in the example's sizes. A convolution is a product of filters and patches.
struct MatmulProblem<'a> {
    capabilities: &'a Capabilities,
    /// Key in a table of measured variants.
    key: String,
    /// The convolution, if the node is one.
    conv: Option<&'a Conv>,
    /// Variant for a convolution in the vec4 channel layout, if it can be computed so.
    vec4_variant: Option<KernelVariant>,
    /// Number of Winograd tiles of all images by tile size, for convolutions that can be computed by tiles.
    tiles: BTreeMap<OutputTile, usize>,
    /// Gradient of a filter, if the product is one.
    filter_gradient: Option<FilterGradient>,
    dtype: DType,
    /// True if the right factor is stored in half precision.
    is_right_half: bool,
    /// True if both factors are `f32` values stored in half precision.
    are_halves: bool,
    /// Batch size: products of equal sizes.
    batch: usize,
    rows: usize,
    columns: usize,
    k_size: usize,
    /// Number of rows, if known and small.
    few_rows: Option<i64>,
    /// Axes of the sum. For a convolution: channels of a group, and taps.
    summed: Shape,
}

/// Fewest output channels of a group for a tile.
const MIN_TILE_ROWS: usize = 4;
/// Largest K, in a loop whose iterations take four elements each: see [`super::fuse::blocked`] on loops that end
/// silently.
const MAX_K: usize = 1 << 17;

/// Number of workgroup tiles that keeps a GPU busy.
const BUSY_TILES: usize = 96;

/// Candidate variants of a node, the best first. The last one runs on any device. Empty for a node without variants.
pub fn choices<'a>(
    scope: &KernelScope<'a>,
    node: &'a Node,
    overrides: &VariantOverrides,
) -> Result<Vec<VariantChoice>> {
    let Some(problem) = MatmulProblem::of(scope.graph, scope.capabilities, node)? else {
        return Ok(Vec::new());
    };
    let reads_images = |gradient: &FilterGradient| gradient.reads_images(scope.materialized);
    let problem = MatmulProblem {
        filter_gradient: problem.filter_gradient.filter(reads_images),
        is_right_half: scope.storage(operand(node, 1)?)?.is_half(),
        are_halves: are_halves(scope, node)?,
        ..problem
    };
    let requested = problem.requested_variant(overrides);
    let requested = requested.map(|variant| {
        (
            variant,
            String::from("requested by the tuning or the options"),
        )
    });
    let table = problem.table().into_iter();
    let portable = (
        KernelVariant::Portable,
        String::from("no faster variant applies"),
    );
    let choices = requested.into_iter().chain(table).chain([portable]);
    Ok(choices
        .map(|(variant, reason)| VariantChoice {
            key: problem.key.clone(),
            variant,
            reason,
        })
        .collect())
}

/// The best variant of a node.
pub fn best_choice<'a>(
    scope: &KernelScope<'a>,
    node: &'a Node,
    overrides: &VariantOverrides,
) -> Result<Option<VariantChoice>> {
    Ok(choices(scope, node, overrides)?.into_iter().next())
}

/// Variants that each matrix product and convolution of a graph may use on a device with this storage precision, by
/// key. Bodies of regions are included.
pub fn admitted(
    graph: &Graph,
    capabilities: &Capabilities,
    precision: Precision,
) -> Result<AdmittedVariants> {
    let mut variants_by_key = AdmittedVariants::new();
    for node in &graph.nodes {
        for body in node.bodies() {
            variants_by_key.extend(admitted(body, capabilities, precision)?);
        }
        let Some(mut problem) = MatmulProblem::of(graph, capabilities, node)? else {
            continue;
        };
        problem.are_halves = precision == Precision::Half;
        let admits = |variant: &KernelVariant| match variant {
            KernelVariant::SplitK { parts } => problem.splits_evenly(i64::from(*parts)),
            variant => problem.offers(*variant),
        };
        let variants = KernelVariant::ALL.iter().copied().filter(admits).collect();
        variants_by_key.insert(problem.key.clone(), variants);
    }
    Ok(variants_by_key)
}

/// Choice of a fused kernel around a matrix product, on devices whose subgroups are vector lanes. Its reason ends with
/// `how`.
pub fn subgroup_tile_choice(
    scope: &KernelScope,
    node: &Node,
    how: &str,
) -> Result<Option<VariantChoice>> {
    let problem = MatmulProblem::of(scope.graph, scope.capabilities, node)?;
    Ok(problem.map(|problem| VariantChoice {
        reason: format!("{}; {how}", problem.subgroup_tile_reason()),
        key: problem.key,
        variant: KernelVariant::SubgroupTile,
    }))
}

/// True for a matrix product or convolution whose variant was requested.
pub fn is_requested(graph: &Graph, node: usize, overrides: &VariantOverrides) -> bool {
    let node = &graph.nodes[node];
    match node.operands()[..] {
        [a, b] => overrides.contains_key(&variant_key(graph, node, [a, b])),
        _ => false,
    }
}

/// Dtype that cooperative matrices multiply to compute a node: `f16` if its factors are stored in half precision, so
/// that no factor is rounded.
pub fn matrix_dtype(scope: &KernelScope, node: &Node) -> Result<DType> {
    let dtype = scope.graph.ty(operand(node, 0)?).dtype;
    Ok(if are_halves(scope, node)? {
        DType::F16
    } else {
        dtype
    })
}

/// True if both factors of a node are `f32` and stored in half precision.
fn are_halves(scope: &KernelScope, node: &Node) -> Result<bool> {
    let mut all = true;
    for factor in [operand(node, 0)?, operand(node, 1)?] {
        let is_single = scope.graph.ty(factor).dtype == DType::F32;
        all &= is_single && is_half(scope, factor)?;
    }
    Ok(all)
}

/// True for a value stored in half precision, and for a view of one.
fn is_half(scope: &KernelScope, value: ValueId) -> Result<bool> {
    let node = match scope.graph.value(value).definition {
        Definition::Node(node, _) if !scope.materialized[value.index()] => &scope.graph.nodes[node],
        _ => return Ok(scope.storage(value)?.is_half()),
    };
    match &node.op {
        Op::Primitive(view) if is_plain_view(view) => is_half(scope, operand(node, 0)?),
        _ => Ok(false),
    }
}

/// Admitted variants by key.
pub type AdmittedVariants = BTreeMap<String, Vec<KernelVariant>>;

impl MatmulProblem<'_> {
    /// The table: the best variants for a device, sizes and dtype, with reasons.
    fn table(&self) -> Vec<(KernelVariant, String)> {
        let mut variants = Vec::new();
        variants.extend(self.filter_gradient_variant());
        if self.conv.is_none() && self.admits(KernelVariant::SubgroupTile) {
            variants.push((KernelVariant::SubgroupTile, self.subgroup_tile_reason()));
        }
        if self.admits(KernelVariant::ImagePatches) {
            let reason = "filter or channel count does not fit the vec4 channel layout";
            variants.push((
                KernelVariant::ImagePatches,
                format!("{}; {reason}", self.subgroup_tile_reason()),
            ));
        }
        variants.extend(self.winograd_variant());
        if let Some(variant) = self.vec4_variant {
            variants.push((
                variant,
                self.subgroup_tile_reason() + ", and the filter fits a texture",
            ));
        }
        if self.capabilities.software {
            return variants;
        }
        if self.admits(KernelVariant::DepthwiseDirect) {
            let reason = "the adapter is a GPU, and each output channel reads one input channel";
            variants.push((KernelVariant::DepthwiseDirect, String::from(reason)));
        }
        if let (true, Some(rows)) = (self.admits(KernelVariant::Gemv), self.few_rows) {
            let method = if self.capabilities.subgroups {
                "subgroups"
            } else {
                "workgroup memory"
            };
            let reason = format!(
                "the adapter is a GPU, and {rows} rows are too few for tiles; sums by {method}"
            );
            variants.push((KernelVariant::Gemv, reason));
        }
        variants.extend(self.matrices());
        variants.extend(self.tile());
        variants
    }

    /// Reason for a variant that uses subgroups.
    fn subgroup_tile_reason(&self) -> String {
        let lanes = self.capabilities.subgroup_size;
        format!("the adapter is a software rasteriser with subgroups of {lanes}")
    }

    /// The largest cooperative matrices, if the product is large enough.
    fn matrices(&self) -> Option<(KernelVariant, String)> {
        let is_large = self.rows >= 32 && self.columns >= 32 && self.k_size >= 16;
        let largest = [16, 8].map(|size| KernelVariant::CooperativeMatrix { size });
        let largest = largest.into_iter().find(|variant| self.admits(*variant));
        let reason = match self.are_halves {
            true => "the adapter has cooperative matrices of f16, the storage type of the factors",
            false => "the adapter has cooperative matrices of this type",
        };
        largest
            .filter(|_| is_large)
            .map(|variant| (variant, String::from(reason)))
    }

    /// True for a convolution whose output channels read one input channel each, along rows of known lengths.
    fn is_depthwise(&self) -> bool {
        let [channels, .., row] = self.summed.as_slice() else {
            return false;
        };
        let is_short = row
            .as_const()
            .is_some_and(|row| row <= direct::MAX_ROW_TAPS);
        self.conv.is_some() && channels.is(1) && is_short
    }

    /// The requested variant, if it is offered.
    fn requested_variant(&self, overrides: &VariantOverrides) -> Option<KernelVariant> {
        let variant = overrides.get(&self.key).copied();
        variant.filter(|variant| self.offers(*variant))
    }

    /// True if a caller can request a variant. A rasteriser has layouts that only its own kernels write.
    fn offers(&self, variant: KernelVariant) -> bool {
        let is_for_rasterisers = matches!(
            variant,
            KernelVariant::Portable
                | KernelVariant::SubgroupTile
                | KernelVariant::ImagePatches
                | KernelVariant::Grouped
                | KernelVariant::Winograd { .. }
        );
        let is_winograd = matches!(variant, KernelVariant::Winograd { .. });
        let writes_vec4 = |chosen| chosen == variant || is_winograd;
        let fits_layout = self.vec4_variant.is_none_or(writes_vec4);
        (is_for_rasterisers || !self.capabilities.software) && fits_layout && self.admits(variant)
    }

    /// True if a variant can compute the node, and the device can run it.
    fn admits(&self, variant: KernelVariant) -> bool {
        let product = [self.rows, self.columns, self.k_size];
        match variant {
            KernelVariant::Portable => true,
            // Nodes of this variant are rewritten before kernels are chosen.
            KernelVariant::SplitK { .. } => false,
            KernelVariant::SubgroupTile | KernelVariant::Grouped if self.conv.is_some() => {
                self.vec4_variant == Some(variant)
            }
            KernelVariant::SubgroupTile => {
                tile::is_preferred(self.capabilities, self.dtype, product)
            }
            KernelVariant::ImagePatches => {
                let has_no_vec4_variant = self.conv.is_some() && self.vec4_variant.is_none();
                let fits_loop = self.rows >= MIN_TILE_ROWS && self.k_size <= MAX_K;
                has_no_vec4_variant
                    && fits_loop
                    && tile::is_preferred(self.capabilities, self.dtype, product)
            }
            KernelVariant::Grouped => false,
            KernelVariant::Winograd { tile: output_tile } => {
                self.tiles.contains_key(&output_tile) || self.has_gradient_tiles(output_tile)
            }
            KernelVariant::DepthwiseDirect => self.is_depthwise() && is_single(self.dtype),
            KernelVariant::Gemv => {
                self.conv.is_none() && is_single(self.dtype) && self.few_rows.is_some()
            }
            KernelVariant::CooperativeMatrix { size } => {
                let dtype = if self.are_halves {
                    DType::F16
                } else {
                    self.dtype
                };
                matrix::matrix_unit(self.capabilities, size, dtype).is_some()
            }
            KernelVariant::WorkgroupTile { side } => {
                let workgroup_tile = workgroup::WorkgroupTileShape::of(side);
                is_single(self.dtype)
                    && workgroup_tile.is_some_and(|tile| tile.fits(self.capabilities))
            }
        }
    }

    /// The largest tile of which there are enough to keep a GPU busy; the smallest one if there are never enough.
    fn tile(&self) -> Option<(KernelVariant, String)> {
        if self.rows < 4 || self.columns < 4 || self.k_size < 4 {
            return None;
        }
        let count =
            |side: usize| self.batch * self.rows.div_ceil(side) * self.columns.div_ceil(side);
        let sides = [128, 64, 32].into_iter().filter(|side| {
            let side = u32::try_from(*side).unwrap_or_default();
            self.admits(KernelVariant::WorkgroupTile { side })
        });
        let sides: Vec<usize> = sides.collect();
        let largest = sides.iter().find(|side| count(**side) >= BUSY_TILES);
        let side = *largest.or(sides.last())?;
        let [rows, columns] = [self.rows, self.columns];
        let reason = format!(
            "the adapter is a GPU, and {rows}x{columns} elements are {} tiles",
            count(side)
        );
        let side = u32::try_from(side).unwrap_or_default();
        Some((KernelVariant::WorkgroupTile { side }, reason))
    }
}

/// Variant for a convolution in the vec4 channel layout. `None` unless its filter is a weight that fits a texture, and
/// the channels of each group are multiples of four.
pub fn vec4_conv_variant(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    conv: &Conv,
) -> Option<KernelVariant> {
    let [x, filter] = node.operands()[..] else {
        return None;
    };
    let [outputs, channels, ..] = graph.ty(filter).shape.as_slice() else {
        return None;
    };
    if !may_be_image(graph.ty(x)) {
        return None;
    }
    let packed = implicit_gemm::filter_panels(graph, capabilities, node, conv, TileShape::DEFAULT)?;
    if !fits_texture(capabilities.textures, &packed.panels) {
        return None;
    }
    if implicit_gemm::has_grouped_kernel(graph, node, conv) {
        return Some(KernelVariant::Grouped);
    }
    let outputs = outputs.floor_div(&Dim::from(conv.groups));
    let are_multiples_of_4 =
        conv.groups == 1 || [&outputs, channels].into_iter().all(is_multiple_of_4);
    are_multiples_of_4.then_some(KernelVariant::SubgroupTile)
}

/// True for dtypes whose products accumulate in single precision.
fn is_single(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32)
}

impl<'a> MatmulProblem<'a> {
    /// Describes a matrix product or convolution; `None` for other nodes.
    fn of(
        graph: &Graph,
        capabilities: &'a Capabilities,
        node: &'a Node,
    ) -> Result<Option<MatmulProblem<'a>>> {
        let conv = match &node.op {
            Op::Primitive(Primitive::Dot(_)) => None,
            Op::Primitive(Primitive::Conv(conv)) => Some(conv),
            _ => return Ok(None),
        };
        let (a, b) = (operand(node, 0)?, operand(node, 1)?);
        let product = Product::of(graph, node)?;
        let sizes = [
            &Dim::product(&product.batch),
            &product.rows,
            &product.columns,
            &product.k_size,
        ];
        let [batch, rows, columns, k_size] = sizes.map(|size| example_size(graph, size));
        let vec4_variant = conv.and_then(|conv| vec4_conv_variant(graph, capabilities, node, conv));
        let vec4_conv = conv.filter(|_| vec4_variant.is_some());
        let tiles =
            |output_tile| tiles::tile_count(graph, capabilities, node, vec4_conv?, output_tile);
        let output_tiles = OutputTile::ALL.into_iter();
        let tiles = output_tiles.filter_map(|output_tile| Some((output_tile, tiles(output_tile)?)));
        Ok(Some(MatmulProblem {
            capabilities,
            key: variant_key(graph, node, [a, b]),
            conv,
            vec4_variant,
            tiles: tiles.collect(),
            filter_gradient: FilterGradient::of(graph, node),
            dtype: graph.ty(a).dtype,
            is_right_half: false,
            are_halves: false,
            batch,
            rows,
            columns,
            k_size,
            few_rows: product
                .rows
                .as_const()
                .filter(|rows| (1..=vector::MAX_ROWS).contains(rows)),
            summed: match conv {
                Some(_) => graph.ty(b).shape.get(1..).unwrap_or_default().to_vec(),
                None => vec![product.k_size.clone()],
            },
        }))
    }
}

/// Key of a node, such as `dot f32 128x384 384x1536`, `conv f32 1x64x56 64x64x3 in 1 groups, stride 1 dilation 1 spread
/// 1 padded by 1 and 1`
fn variant_key(graph: &Graph, node: &Node, operands: [ValueId; 2]) -> String {
    let mut key = format!("{} {}", node.op.name(), graph.ty(operands[0]).dtype);
    for operand in operands {
        let shape = &graph.ty(operand).shape;
        let sizes = shape
            .iter()
            .map(|size| example_size(graph, size).to_string());
        key += &format!(" {}", sizes.collect::<Vec<_>>().join("x"));
    }
    if let Op::Primitive(Primitive::Conv(conv)) = &node.op {
        key += &format!(" in {} groups", conv.groups);
        for axis in &conv.axes {
            key += &format!(
                ", stride {} dilation {} spread {} padded by {} and {}",
                axis.stride, axis.dilation, axis.base_dilation, axis.low, axis.high
            );
        }
    }
    key
}
