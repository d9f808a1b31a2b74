//! A test of kernels: their workgroup memory is not zero when they start.

use super::plan::Kernel;

/// Returns the source of a kernel that first fills its workgroup memory with not-a-number, or with the largest `i32`. A
/// kernel that reads before it writes then computes something else. `None` if the kernel has no such memory or expects
/// zeros there.
pub fn filled(kernel: &Kernel) -> Option<String> {
    if kernel.zeroes_workgroup_memory {
        return None;
    }
    let invocations = kernel.workgroup_invocations()?;
    let arrays = kernel.wgsl.lines();
    let fills: String = arrays
        .filter_map(|line| fill_of_array(line, invocations))
        .collect();
    if fills.is_empty() {
        return None;
    }
    let (declarations, main) = kernel.wgsl.split_once("fn main(")?;
    let (parameters, body) = main.split_once(") {\n")?;
    Some(format!(
        "{declarations}fn main({parameters}) {{\n    \
         var nan_bits = 0x7fc00000u;\n    let nan = bitcast<f32>(nan_bits);\n\
         {fills}    workgroupBarrier();\n{body}"
    ))
}

/// The statement that fills the array that a line declares: `var<workgroup> NAME: array<TYPE, LENGTH>;`.
fn fill_of_array(line: &str, invocations: u64) -> Option<String> {
    let (name, rest) = line
        .strip_prefix("var<workgroup> ")?
        .split_once(": array<")?;
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

    fn kernel(zeroes_workgroup_memory: bool) -> Kernel {
        let wgsl = "var<workgroup> sums: array<vec4<f32>, 32>;\n\n\
                    @compute @workgroup_size(64)\n\
                    fn main(\n    @builtin(local_invocation_index) local: u32,\n) {\n    return;\n}\n";
        Kernel {
            label: "sum".into(),
            wgsl: wgsl.into(),
            bindings: Vec::new(),
            sizes: 0,
            sizes_space: SizesSpace::Uniform,
            zeroes_workgroup_memory,
        }
    }

    #[test]
    fn workgroup_memory_is_filled_before_the_body() {
        let text = filled(&kernel(false)).unwrap_or_default();
        let fill =
            "for (var fill = local; fill < 32u; fill += 64u) { sums[fill] = vec4<f32>(nan); }";
        let (before, after) = text.split_once(fill).unwrap_or_default();
        assert!(
            before.ends_with("let nan = bitcast<f32>(nan_bits);\n    "),
            "{text}"
        );
        assert!(
            after.starts_with("\n    workgroupBarrier();\n    return;"),
            "{text}"
        );
    }

    #[test]
    fn kernels_that_expect_zeros_stay() {
        assert_eq!(filled(&kernel(true)), None);
    }
}
