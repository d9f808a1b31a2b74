//! Why values lie in memory instead of being computed where they are read, and in what: what fusion refused, for people.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// What a plan stores values of `f32` in. Kernels compute with them in `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// `f32`.
    #[default]
    Single,
    /// `f16`: weights and what lies between kernels, except for what [`Kept`] says. The nearest number, ties to even; a
    /// finite number beyond 65504 becomes that.
    Half,
}

impl Precision {
    /// The dtype that stands for it.
    pub fn dtype(self) -> DType {
        match self {
            Precision::Single => DType::F32,
            Precision::Half => DType::F16,
        }
    }

    /// Of the dtype that stands for it; an error if none does.
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

/// A value that lies in memory, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The name of its slot.
    pub value: String,
    /// Why no reader computes it.
    pub reason: Reason,
    /// Why it is stored in `f32` though `f16` was asked for.
    pub kept: Option<Kept>,
}

/// A weight in panels that is not for the products of these alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tied {
    /// Its name.
    pub weight: String,
    /// Kinds of panels that it lies in.
    pub panels: usize,
    /// Elements that other kernels read in the example's sizes.
    pub read: usize,
    /// Elements that it has.
    pub numel: usize,
    /// Why it lies in rows as well; none if they read it out of panels.
    pub rows: Option<Rows>,
}

/// Why a weight lies in rows beside panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Too many elements are read one by one.
    Many,
    /// A kernel would bind more textures than the device can.
    Textures,
    /// Its panels hold something other than all of its elements.
    Other,
}

impl fmt::Display for Tied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tied {
            weight,
            panels,
            read,
            numel,
            rows,
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

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rows::Many => "they are many",
            Rows::Textures => "a kernel would bind more textures than the device allows",
            Rows::Other => "the panels do not hold all of them unchanged",
        })
    }
}

/// Why a value is stored in `f32` though `f16` was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The application, control flow or an operator of the user's takes or gives it.
    Handed,
    /// A reduction makes it: a mean, a variance, the sum that a softmax divides by.
    Statistic,
    /// A scan, a scatter or a sort makes it.
    Accumulated,
    /// It is the parts of a sum, which are added up next.
    Partial,
    /// Integers are made of it.
    Counted,
    /// It is a weight of one dimension at most.
    Vector,
    /// A kernel writes single elements, where the device stores half precision only in pairs.
    Single,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kept::Handed => "the application, control flow or a custom operator has it",
            Kept::Statistic => "a reduction computes it",
            Kept::Accumulated => "a scan, a scatter or a sort computes it",
            Kept::Partial => "it holds partial sums",
            Kept::Counted => "integers are computed from it",
            Kept::Vector => "it is a weight of at most one dimension",
            Kept::Single => "its kernel writes single elements, and the device stores f16 in pairs",
        })
    }
}

/// Why a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The graph returns it.
    Output,
    /// It is an assertion of the model's, which nothing else may compute.
    Assertion,
    /// A condition, a loop or an operator of the user's takes or gives it.
    Handed,
    /// Several nodes read it, and it costs too much to be computed for each.
    Shared {
        /// So many nodes.
        readers: usize,
        /// Of one element, in simple operations.
        cost: u32,
    },
    /// A broadcast, a gather or a window would repeat what it costs.
    Repeated {
        /// Of one element, in simple operations.
        cost: u32,
    },
    /// A product, a convolution or a sort reads each of its elements many times.
    ReadOften,
    /// It is a concatenation of many values or lies within one, which no kernel has to copy then.
    Joined,
    /// An expression that goes on would be too long.
    Long {
        /// Of one element, in simple operations.
        cost: u32,
    },
    /// A kernel that computes it where it is read would bind more buffers than the device can.
    Buffers,
    /// The kernel that makes it takes no epilogue.
    NoEpilogue,
    /// The kernel that makes it cannot go on, since several nodes read it.
    Readers(usize),
    /// The kernel that makes it cannot go on, since its reader is not element by element.
    Reorders,
    /// The kernel that makes it cannot go on, since its reader belongs to another kernel already.
    Claimed,
    /// The kernel that makes it cannot go on, since other values than its reader's result would be read too.
    Several,
    /// It is an image, which lies as others do; its readers read it through a reshape.
    Reshaped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Output => f.write_str("it is an output of the graph"),
            Reason::Assertion => f.write_str("it is an assertion of the model"),
            Reason::Handed => f.write_str("control flow or a custom operator has it"),
            Reason::Shared { readers, cost } => {
                write!(
                    f,
                    "{readers} nodes read it, and {cost} operations an element cost too much to repeat"
                )
            }
            Reason::Repeated { cost } => {
                write!(
                    f,
                    "its reader repeats elements, and {cost} operations an element cost too much to repeat"
                )
            }
            Reason::ReadOften => f.write_str("its reader reads each element many times"),
            Reason::Joined => f.write_str("a concatenation of many values is written part by part"),
            Reason::Long { cost } => {
                write!(
                    f,
                    "{cost} operations an element are too many for one expression"
                )
            }
            Reason::Buffers => {
                f.write_str("its reader would bind more buffers than the device allows")
            }
            Reason::NoEpilogue => {
                f.write_str("its kernel does not fuse the operations that follow")
            }
            Reason::Readers(1) => f.write_str("its reader does not fit into this kernel"),
            Reason::Readers(count) => write!(f, "{count} nodes read it"),
            Reason::Reorders => f.write_str("its reader is not elementwise"),
            Reason::Claimed => f.write_str("its reader is fused into another kernel"),
            Reason::Several => f.write_str("fusing its reader would leave several results"),
            Reason::Reshaped => f.write_str("it is an image, and its reader is a reshape"),
        }
    }
}
