//! Reasons why values are materialised instead of fused, and in which precision; for reports.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// Precision in which a plan stores values of `f32`. Kernels compute in `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// `f32`.
    #[default]
    Single,
    /// `f16`: weights and values between kernels, except for those with a [`F32StorageReason`]. Rounds to nearest, ties to even;
    /// a finite number beyond ±65504 becomes ±65504.
    Half,
}

impl Precision {
    /// The dtype that represents it.
    pub fn dtype(self) -> DType {
        match self {
            Precision::Single => DType::F32,
            Precision::Half => DType::F16,
        }
    }

    /// The precision that a dtype represents. Fails for other dtypes.
    pub fn of(dtype: DType) -> Result<Precision> {
        match dtype {
            DType::F32 => Ok(Precision::Single),
            DType::F16 => Ok(Precision::Half),
            other => Err(
                Error::usage(format!("values of f32 cannot be stored as {other}"))
                    .help("store them as f16, or as f32"),
            ),
        }
    }
}

/// A materialised value, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterializedValue {
    /// Name of its slot.
    pub value: String,
    /// Reason why it is not fused into its readers.
    pub reason: MaterializeReason,
    /// Reason why it is stored in `f32` though `f16` was requested.
    pub f32_reason: Option<F32StorageReason>,
}

/// A weight in panels that other kernels, or products with different panels, read as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWeight {
    /// Name of the weight.
    pub weight: String,
    /// Number of distinct panel layouts.
    pub panels: usize,
    /// Elements that other kernels read, for the example's sizes.
    pub read: usize,
    /// Elements of the weight.
    pub numel: usize,
    /// Reason for a second copy in row-major order; none if other kernels read the panels.
    pub row_copy: Option<RowCopyReason>,
}

/// Reason why a weight has a row-major copy besides its panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowCopyReason {
    /// Too many elements are read one by one.
    TooManyReads,
    /// A kernel would bind more textures than the device can.
    TooManyTextures,
    /// The panels do not hold all of its elements unchanged.
    NotPlainMatrix,
}

impl fmt::Display for SharedWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedWeight {
            weight,
            panels,
            read,
            numel,
            row_copy: rows,
        } = self;
        f.write_str(weight)?;
        let mut mark = ":";
        if 1 < *panels {
            write!(
                f,
                "{mark} matrix products read it in {panels} panel layouts"
            )?;
            mark = ";";
        }
        if 0 < *read {
            write!(
                f,
                "{mark} {read} of {numel} elements are read one by one, from "
            )?;
            match rows {
                Some(rows) => write!(f, "a second copy in rows, because {rows}")?,
                None => f.write_str("its panels")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for RowCopyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RowCopyReason::TooManyReads => "they are many",
            RowCopyReason::TooManyTextures => {
                "a kernel would bind more textures than the device allows"
            }
            RowCopyReason::NotPlainMatrix => "the panels do not hold all of them unchanged",
        })
    }
}

/// Reason why a value is stored in `f32` though `f16` was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum F32StorageReason {
    /// The application, control flow or a custom operator reads or writes it.
    External,
    /// A reduction computes it: a mean, a variance, the sum that a softmax divides by.
    Statistic,
    /// A scan, a scatter or a sort computes it.
    Accumulated,
    /// It holds partial sums, which the next kernel adds up.
    PartialSums,
    /// Integers are computed from it.
    IntegerOperand,
    /// It is a weight of at most one dimension.
    Vector,
    /// Its kernel writes single elements, and the device stores half precision only in pairs.
    UnpairedStore,
}

impl fmt::Display for F32StorageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            F32StorageReason::External => {
                "the application, control flow or a custom operator reads or writes it"
            }
            F32StorageReason::Statistic => "a reduction computes it",
            F32StorageReason::Accumulated => "a scan, a scatter or a sort computes it",
            F32StorageReason::PartialSums => "it holds partial sums",
            F32StorageReason::IntegerOperand => "integers are computed from it",
            F32StorageReason::Vector => "it is a weight of at most one dimension",
            F32StorageReason::UnpairedStore => {
                "its kernel writes single elements, and the device stores f16 in pairs"
            }
        })
    }
}

/// Reason why a value is materialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaterializeReason {
    /// The graph returns it.
    Output,
    /// It is an assertion of the model, which must not be fused.
    Assertion,
    /// A condition, a loop or a custom operator reads or writes it.
    External,
    /// Several nodes read it, and it costs too much to be computed for each.
    Shared {
        /// Number of readers.
        readers: usize,
        /// Cost of one element, in simple operations.
        cost: u32,
    },
    /// A broadcast, a gather or a window reads elements several times, which would repeat the cost.
    Repeated {
        /// Cost of one element, in simple operations.
        cost: u32,
    },
    /// A product, a convolution or a sort reads each of its elements many times.
    ReadManyTimes,
    /// It is a concatenation of many values or a part of one. Each part is written in place, so no kernel copies it.
    Concatenated,
    /// The fused expression would be too long.
    TooLong {
        /// Cost of one element, in simple operations.
        cost: u32,
    },
    /// Its reader would bind more buffers than the device allows if it computed the value.
    TooManyBuffers,
    /// The kernel that computes it has no epilogue.
    NoEpilogue,
    /// Its kernel cannot fuse a reader as its epilogue, since this number of nodes read it.
    TooManyReaders(usize),
    /// Its kernel cannot fuse the reader, which is not elementwise.
    NotElementwise,
    /// Its kernel cannot fuse the reader, which belongs to another kernel.
    AlreadyFused,
    /// Its kernel cannot fuse the reader, since values other than the reader's result are needed too.
    MultipleResults,
    /// It is an image in the layout of images; its readers read it through a reshape.
    Reshaped,
}

impl fmt::Display for MaterializeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaterializeReason::Output => f.write_str("it is an output of the graph"),
            MaterializeReason::Assertion => f.write_str("it is an assertion of the model"),
            MaterializeReason::External => {
                f.write_str("control flow or a custom operator reads or writes it")
            }
            MaterializeReason::Shared { readers, cost } => {
                write!(
                    f,
                    "{readers} nodes read it, and {cost} operations an element cost too much to repeat"
                )
            }
            MaterializeReason::Repeated { cost } => {
                write!(
                    f,
                    "its reader repeats elements, and {cost} operations an element cost too much to repeat"
                )
            }
            MaterializeReason::ReadManyTimes => {
                f.write_str("its reader reads each element many times")
            }
            MaterializeReason::Concatenated => {
                f.write_str("a concatenation of many values is written part by part")
            }
            MaterializeReason::TooLong { cost } => {
                write!(
                    f,
                    "{cost} operations an element are too many for one expression"
                )
            }
            MaterializeReason::TooManyBuffers => {
                f.write_str("its reader would bind more buffers than the device allows")
            }
            MaterializeReason::NoEpilogue => {
                f.write_str("its kernel does not fuse the operations that follow")
            }
            MaterializeReason::TooManyReaders(1) => {
                f.write_str("its reader does not fit into this kernel")
            }
            MaterializeReason::TooManyReaders(count) => write!(f, "{count} nodes read it"),
            MaterializeReason::NotElementwise => f.write_str("its reader is not elementwise"),
            MaterializeReason::AlreadyFused => {
                f.write_str("its reader is fused into another kernel")
            }
            MaterializeReason::MultipleResults => {
                f.write_str("fusing its reader would leave several results")
            }
            MaterializeReason::Reshaped => {
                f.write_str("it is an image, and its reader is a reshape")
            }
        }
    }
}
