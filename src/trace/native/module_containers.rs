//! Containers and settings as fields of modules.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::module::{Forward, Module, Visitor};

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(module) = self {
            module.visit(visitor);
        }
    }
}

/// Implements [`Module`] for pointers to modules. A module that several pointers share has a path for each of them; its
/// parameters are stored once.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<M: Module + ?Sized> Module for $pointer {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                (**self).visit(visitor);
            }
        }
    )*};
}

pointers!(&M, Box<M>, Rc<M>, Arc<M>);

/// Implements [`Forward`] for shared modules: a call is that of the module.
macro_rules! shared_calls {
    ($($pointer:ident)*) => {$(
        impl<Input, M: Forward<Input> + ?Sized> Forward<Input> for $pointer<M> {
            type Output = M::Output;

            fn forward(&self, input: Input) -> M::Output {
                (**self).forward(input)
            }

            #[track_caller]
            fn call(&self, input: Input) -> M::Output {
                (**self).call(input)
            }
        }
    )*};
}

shared_calls!(Rc Arc);

/// Modules by name, in alphabetical order.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, module) in self {
            visitor.field(name, module);
        }
    }
}

/// Implements [`Module`] for tuples, whose fields are named by their index.
macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Module),*> Module for ($($name,)*) {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                $(visitor.field(stringify!($index), &self.$index);)*
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

impl<M: Module> Module for [M] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, module) in self.iter().enumerate() {
            visitor.field(&index.to_string(), module);
        }
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

/// Implements [`Module`] for types of settings.
macro_rules! settings {
    ($($type:ty),*) => {$(
        /// A setting without parameters.
        impl Module for $type {
            fn visit(&self, _visitor: &mut Visitor<'_>) {}
        }
    )*};
}

settings!(
    bool,
    i32,
    i64,
    usize,
    f32,
    f64,
    String,
    &'static str,
    crate::dtype::DType
);
