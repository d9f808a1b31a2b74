//! Tables of scalar functions.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;

/// The error for a function that is not defined for an element type.
pub(super) fn undefined(function: &str, dtype: DType) -> Error {
    Error::operator(format!("{function} is not defined for {dtype}"))
}

/// The result type of a scalar function: the operand's shape, and a dtype if the function is defined for the operand's.
pub(super) fn pointwise_type(
    function: &str,
    x: &TensorType,
    result: Option<DType>,
) -> Result<Vec<TensorType>> {
    Ok(vec![TensorType {
        dtype: result.ok_or_else(|| undefined(function, x.dtype))?,
        shape: x.shape.clone(),
    }])
}

/// Declares functions, one row each: variant, name, and the columns of the table's type `Row`.
macro_rules! scalar_functions {
    ($(#[$attribute:meta])* $functions:ident; $($variant:ident $name:literal $($column:expr),+;)*) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $functions {
            $(#[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $variant,)*
        }

        impl $functions {
            /// Every function, in table order.
            pub const ALL: &'static [$functions] = &[$($functions::$variant),*];

            /// Name in the text form and in PyTorch.
            pub fn name(self) -> &'static str {
                match self { $($functions::$variant => $name,)* }
            }

            fn row(self) -> Row {
                match self { $($functions::$variant => Row($($column),+),)* }
            }
        }
    };
}

pub(super) use scalar_functions;
