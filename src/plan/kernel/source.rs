//! Generation of a kernel's WGSL source from expressions, statements and a template.

use crate::dim::Dim;
use crate::kernel::capabilities::SizesSpace;
use crate::kernel::dialect::enable_directives;
use crate::kernel::emit::{BindingDecl, Emitter, Statement};
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::plan::Kernel;
use crate::kernel::shader;
use crate::plan::kernel::declarations;

/// Description from which a kernel's source is generated.
pub struct KernelSource {
    /// Label of the kernel.
    pub label: String,
    /// WGSL template around the statements.
    pub template: &'static str,
    /// Values of the template's further placeholders.
    pub template_values: Vec<(&'static str, String)>,
    /// The expressions.
    pub pool: ExprPool,
    /// Buffers and textures.
    pub buffers: Vec<BindingDecl>,
    /// Body of `main`.
    pub statements: Vec<Statement>,
    /// Address space of the sizes.
    pub sizes_in: SizesSpace,
    /// Whether indices are divided by sizes in floating point.
    pub divides_by_floats: bool,
    /// The sizes that the kernel expects.
    pub sizes: Vec<Dim>,
}

impl KernelSource {
    /// Generates the kernel. Returns it with the sizes that it expects, in order.
    pub fn kernel(&self) -> (Kernel, Vec<Dim>) {
        let emitter = Emitter::new(&self.pool, &self.buffers, &self.template_variables());
        let emitter = emitter.dividing_by_floats(self.divides_by_floats);
        let (lines, sizes) = emitter.emit(&self.statements);
        let declared = declarations(&self.buffers, sizes.len(), self.sizes_in);
        let mut holes = vec![("bindings", declared), ("body", lines.join("\n") + "\n")];
        holes.extend(self.template_values.iter().cloned());
        let text = shader::assemble(self.template, &holes);
        let bound = self.buffers.iter().filter(|buffer| buffer.is_bound());
        let kernel = Kernel {
            label: self.label.clone(),
            wgsl: enable_directives(&text) + &text,
            bindings: bound.map(|buffer| buffer.access).collect(),
            sizes: sizes.len(),
            sizes_space: self.sizes_in,
            zeroes_workgroup_memory: false,
        };
        (kernel, sizes)
    }

    /// The variables that templates declare.
    fn template_variables(&self) -> Vec<Expr> {
        let names = ["index", "local", "lane"].into_iter();
        let variables = names.filter_map(|name| self.pool.known_variable(name, WgslType::U32));
        variables.collect()
    }
}
