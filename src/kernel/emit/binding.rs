//! Declarations of a kernel's buffers and textures, and the source that reads them.

use crate::kernel::expr::WgslType;
use crate::kernel::layout::Texel;
use crate::kernel::plan::Access;

/// A storage buffer or texture of a kernel.
#[derive(Clone, Debug)]
pub struct BindingDecl {
    /// Name in WGSL.
    pub name: String,
    /// Element type.
    pub element: WgslType,
    /// Access mode.
    pub access: Access,
    /// Index of the binding of vectors whose components are the elements. The buffer is then bound as vectors only.
    pub vectors: Option<usize>,
    /// Index of the first binding of the same memory, if its elements have another type.
    pub alias_of: Option<usize>,
}

impl BindingDecl {
    /// True for a buffer or texture of its own: its elements are not read as components of another.
    pub fn is_bound(&self) -> bool {
        self.vectors.is_none()
    }

    /// Source that loads the element at an index, converted to the type for computation.
    pub(super) fn load(&self, index: &str) -> String {
        let BindingDecl { name, access, .. } = self;
        match (access, self.element) {
            (Access::AliasedTexture(_), _) => self.texel(&format!("texel_at({index})")),
            (_, WgslType::U32x2) => format!("four_of_pairs({name}[{index}])"),
            (_, WgslType::F16x4) => format!("vec4<f32>({name}[{index}])"),
            _ => format!("{name}[{index}]"),
        }
    }

    /// Source that loads a component of a vector, given the index of the component among those of all vectors.
    pub(super) fn component(&self, index: &str) -> String {
        let (name, count) = (
            &self.name,
            self.element.components().map_or(1, |(_, count)| count),
        );
        match index.contains(' ') {
            true => format!("{name}[({index}) / {count}u][({index}) % {count}u]"),
            false => format!("{name}[{index} / {count}u][{index} % {count}u]"),
        }
    }

    /// Source that loads the texel at a position, converted to the type for computation.
    pub(super) fn texel(&self, at: &str) -> String {
        let BindingDecl { name, access, .. } = self;
        match access {
            Access::TextureArray(Texel::F16) | Access::AliasedTexture(Texel::F16) => {
                format!("four_of_pairs(textureLoad({name}, {at}).xy)")
            }
            _ => format!("textureLoad({name}, {at})"),
        }
    }
}
