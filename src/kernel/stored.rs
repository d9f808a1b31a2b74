//! Why values lie in memory instead of being computed where they are read: what fusion refused, for people.

use std::fmt;

/// A value that lies in memory, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The name of its slot.
    pub value: String,
    /// Why no reader computes it.
    pub reason: Reason,
}

/// Why a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The graph returns it.
    Output,
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
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Output => f.write_str("it is an output"),
            Reason::Handed => f.write_str("control flow or an operator of the user's has it"),
            Reason::Shared { readers, cost } => {
                write!(
                    f,
                    "{readers} nodes read it, {cost} operations are too many to repeat"
                )
            }
            Reason::Repeated { cost } => {
                write!(
                    f,
                    "its reader repeats elements, {cost} operations are too many to repeat"
                )
            }
            Reason::ReadOften => f.write_str("its reader reads each element many times"),
            Reason::Long { cost } => write!(f, "an expression of {cost} operations is long enough"),
            Reason::Buffers => {
                f.write_str("its reader would bind more buffers than the device can")
            }
            Reason::NoEpilogue => f.write_str("its kernel takes no epilogue"),
            Reason::Readers(count) => write!(f, "{count} nodes read it"),
            Reason::Reorders => f.write_str("its reader is not element by element"),
            Reason::Claimed => f.write_str("its reader belongs to another kernel"),
        }
    }
}
