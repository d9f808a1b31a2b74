//! Modules that pad the last axes.

use std::borrow::Borrow;

use super::PerAxis;
use super::checks::rank_error;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, TracedTensor};

/// Defines modules that pad `$axes` axes by a mode, each edge by its own width.
macro_rules! pads {
    ($($(#[$doc:meta])* $name:ident $axes:literal $edges:literal $mode:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            padding: [i64; $edges],
        }

        impl $name {
            /// Numbers of elements to add at both edges of each axis, the last axis first: left, right, top, bottom … One
            /// number is for all edges.
            pub fn new(padding: impl Into<PerAxis<$edges>>) -> $name {
                $name { padding: padding.into().0 }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                let x = x.borrow();
                let refused = rank_error(stringify!($name), x, &[$axes + 1, $axes + 2]);
                let value: Option<f64> = None;
                refused.unwrap_or_else(|| x.pad_with(&self.padding, kw!(mode = $mode, value = value)))
            }
        }
    )*};
}

pads! {
    /// `torch.nn.ReflectionPad1d`: mirrors the elements inside of the edge.
    ReflectionPad1d 1 2 "reflect";
    /// `torch.nn.ReflectionPad2d`: mirrors the elements inside of the edge.
    ReflectionPad2d 2 4 "reflect";
    /// `torch.nn.ReflectionPad3d`: mirrors the elements inside of the edge.
    ReflectionPad3d 3 6 "reflect";
    /// `torch.nn.ReplicationPad1d`: repeats the outermost element.
    ReplicationPad1d 1 2 "replicate";
    /// `torch.nn.ReplicationPad2d`: repeats the outermost element.
    ReplicationPad2d 2 4 "replicate";
    /// `torch.nn.ReplicationPad3d`: repeats the outermost element.
    ReplicationPad3d 3 6 "replicate";
    /// `torch.nn.CircularPad1d`: continues with the elements of the opposite edge.
    CircularPad1d 1 2 "circular";
    /// `torch.nn.CircularPad2d`: continues with the elements of the opposite edge.
    CircularPad2d 2 4 "circular";
    /// `torch.nn.CircularPad3d`: continues with the elements of the opposite edge.
    CircularPad3d 3 6 "circular";
}

/// Defines modules that pad with one value, for input of any rank.
macro_rules! constant_pads {
    ($($(#[$doc:meta])* $name:ident $edges:literal ($($value:ident)?);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            padding: [i64; $edges],
            value: f64,
        }

        impl $name {
            /// Numbers of elements to add at both edges of each axis, the last axis first: left, right, top, bottom … One
            /// number is for all edges.
            pub fn new(padding: impl Into<PerAxis<$edges>> $(, $value: f64)?) -> $name {
                let value = 0.0 $(+ $value)?;
                $name { padding: padding.into().0, value }
            }
        }

        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                x.borrow().pad_with(&self.padding, kw!(mode = "constant", value = self.value))
            }
        }
    )*};
}

constant_pads! {
    /// `torch.nn.ConstantPad1d`
    ConstantPad1d 2 (value);
    /// `torch.nn.ConstantPad2d`
    ConstantPad2d 4 (value);
    /// `torch.nn.ConstantPad3d`
    ConstantPad3d 6 (value);
    /// `torch.nn.ZeroPad1d`
    ZeroPad1d 2 ();
    /// `torch.nn.ZeroPad2d`
    ZeroPad2d 4 ();
    /// `torch.nn.ZeroPad3d`
    ZeroPad3d 6 ();
}
