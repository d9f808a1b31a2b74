//! Doctests for the Rust blocks of README and `docs/`.

macro_rules! documents {
    ($($name:ident: $path:literal,)*) => {
        $(
            #[doc = include_str!($path)]
            struct $name;
        )*
    };
}

documents! {
    Readme: "../README.md",
    GettingStarted: "../docs/getting-started.md",
    RustGuide: "../docs/rust-guide.md",
}
