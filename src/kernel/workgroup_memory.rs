//! A test of kernels: their workgroup memory is not zero when they start.

use super::plan::Kernel;
use crate::error::{Error, Result};

/// Beginning of a line that declares workgroup memory.
const DECLARATION: &str = "var<workgroup> ";

/// Returns the source of a kernel that first fills its workgroup memory with not-a-number, or with the largest `i32`. A
/// kernel that reads before it writes then computes something else. `None` if the kernel has no such memory or expects
/// zeros there.
///
/// # Errors
/// Fails if the source is not like those of templates: arrays, each declared in a line, and a variable `local` for the
/// index of the invocation.
pub fn filled(kernel: &Kernel) -> Result<Option<String>> {
    let mut declarations = kernel
        .wgsl
        .lines()
        .filter(|line| line.starts_with(DECLARATION));
    if kernel.zeroes_workgroup_memory || declarations.clone().next().is_none() {
        return Ok(None);
    }
    let filled = kernel.workgroup_invocations().and_then(|invocations| {
        let fills: String = declarations.try_fold(String::new(), |fills, line| {
            Some(fills + &fill(line, invocations)?)
        })?;
        let (before, main) = kernel.wgsl.split_once("fn main(")?;
        let (parameters, body) = main.split_once(") {\n")?;
        Some(format!(
            "{before}fn main({parameters}) {{\n    \
             var nan_bits = 0x7fc00000u;\n    let nan = bitcast<f32>(nan_bits);\n\
             {fills}    workgroupBarrier();\n{body}"
        ))
    });
    let failed = || {
        Error::internal(format!(
            "{}: its workgroup memory cannot be filled",
            kernel.label
        ))
    };
    filled.map(Some).ok_or_else(failed)
}

/// The statement that fills the array that a line declares: `var<workgroup> NAME: array<TYPE, LENGTH>;`.
fn fill(line: &str, invocations: u64) -> Option<String> {
    let (name, rest) = line.strip_prefix(DECLARATION)?.split_once(": array<")?;
    let (ty, length) = rest.strip_suffix(">;")?.rsplit_once(", ")?;
    let value = match ty {
        _ if ty.contains("f16") => "f16(nan)",
        _ if ty.contains("f64") => "f64(nan)",
        _ if ty.contains("f32") => "nan",
        _ => "2147483647",
    };
    Some(format!(
        "    for (var fill = local; fill < {length}u; fill += {invocations}u) {{ {name}[fill] = {ty}({value}); }}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::capabilities::SizesSpace;

    fn kernel(ty: &str, zeroes_workgroup_memory: bool) -> Kernel {
        let wgsl = format!(
            "var<workgroup> sums: {ty};\n\n@compute @workgroup_size(64)\n\
             fn main(\n    @builtin(local_invocation_index) local: u32,\n) {{\n    return;\n}}\n"
        );
        Kernel {
            label: "sum".into(),
            wgsl,
            bindings: Vec::new(),
            sizes: 0,
            sizes_space: SizesSpace::Uniform,
            zeroes_workgroup_memory,
        }
    }

    #[test]
    fn workgroup_memory_is_filled_before_the_body() -> Result<()> {
        let text = filled(&kernel("array<vec4<f32>, 32>", false))?.unwrap_or_default();
        let fill =
            "for (var fill = local; fill < 32u; fill += 64u) { sums[fill] = vec4<f32>(nan); }";
        let (before, after) = text.split_once(fill).unwrap_or_default();
        let bits = "let nan = bitcast<f32>(nan_bits);\n    ";
        assert!(before.ends_with(bits), "{text}");
        let body = "\n    workgroupBarrier();\n    return;";
        assert!(after.starts_with(body), "{text}");
        Ok(())
    }

    #[test]
    fn kernels_that_expect_zeros_stay() {
        let zeroed = kernel("array<f32, 32>", true);
        assert_eq!(filled(&zeroed).ok(), Some(None));
    }

    #[test]
    fn memory_that_cannot_be_filled_is_an_error() {
        assert!(filled(&kernel("f32", false)).is_err());
    }
}
