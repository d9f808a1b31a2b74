//! Bindings of a kernel: limits of a device, the choice of textures, and declarations.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::kernel::capabilities::SizesSpace;
use crate::kernel::emit::{BindingDecl, Statement};
use crate::kernel::layout::{Layout, Texel};
use crate::kernel::plan::Access;
use crate::plan::element::KernelBinding;
use crate::plan::kernel::LoweredKernel;

impl LoweredKernel<'_> {
    /// True if the device can bind all buffers and textures.
    pub fn fits(&self) -> bool {
        let (textures, capabilities) = (self.texture_count(), self.scope.capabilities);
        let bound = self.scope.buffers.len() - self.components().len();
        bound - textures <= capabilities.max_storage_buffers as usize
            && textures <= capabilities.textures.bindings as usize
    }

    /// The buffers and textures that are bound: not those whose elements are read as components of others.
    fn bound(&self) -> impl Iterator<Item = &KernelBinding> {
        let buffers = self.scope.buffers.iter();
        buffers.filter(|binding| binding.buffer.is_bound())
    }

    /// Error for more buffers and textures than the device can bind.
    pub(super) fn too_many_bindings(&self, label: &str) -> Error {
        let capabilities = self.scope.capabilities;
        let bindings: Vec<&KernelBinding> = self.bound().collect();
        let (textures, limit) = (
            capabilities.textures.bindings,
            capabilities.max_storage_buffers,
        );
        let mut message = format!(
            "{label} needs {} buffers and textures, the device binds {limit} and {textures}",
            bindings.len()
        );
        let is_chunk = |binding: &&&KernelBinding| matches!(binding.layout, Layout::Chunk { .. });
        let Some(chunk) = bindings.iter().find(is_chunk) else {
            let name =
                |binding: &&KernelBinding| self.scope.graph.value(binding.value).name.clone();
            message += &format!(
                ": {}",
                bindings.iter().map(name).collect::<Vec<_>>().join(", ")
            );
            return Error::plan(message);
        };
        let weight = self
            .scope
            .graph
            .value(chunk.value)
            .name
            .trim_start_matches('$');
        let (count, most) = (
            bindings.iter().filter(is_chunk).count(),
            capabilities.max_binding_size,
        );
        message +=
            &format!("; {count} are chunks of the weight {weight}, each of at most {most} bytes");
        Error::plan(message).help(
            "run on a device with larger bindings or on the host, or split the weight in the model",
        )
    }

    /// Binds buffers of vectors in single or half precision as textures, up to the number of textures that the device
    /// can bind. Leaves out buffers that the kernel writes, and values whose memory is aliased by no texture.
    pub(super) fn bind_textures(&mut self) -> Result<()> {
        let written = stored_buffers(&self.statements);
        let max_textures = self.scope.capabilities.textures.bindings as usize;
        for index in 0..self.scope.buffers.len() {
            let can_bind_more = self.texture_count() < max_textures;
            if can_bind_more
                && !written.contains(&index)
                && let Some(texel) = self.texture_texel(index)?
            {
                self.scope.buffers[index].buffer.access = Access::AliasedTexture(texel);
            }
        }
        Ok(())
    }

    /// Reads single elements of a buffer from the binding of its vectors if there is one: WebGPU forbids to bind bytes twice
    /// if one of the bindings may write. Buffers that are only read have both bindings if the device can bind all.
    pub(super) fn merge_bindings(&mut self) {
        let most = self.scope.capabilities.max_storage_buffers as usize;
        let has_too_many = self.scope.buffers.len() - self.texture_count() > most;
        for (elements, vectors) in self.components() {
            let buffer = &mut self.scope.buffers[elements].buffer;
            if has_too_many || buffer.access == Access::ReadWrite {
                buffer.vectors = Some(vectors);
            }
        }
    }

    /// Bindings of single elements that the kernel can read as components of another binding: the indices of both.
    fn components(&self) -> Vec<(usize, usize)> {
        let written = stored_buffers(&self.statements);
        let read = (0..self.scope.buffers.len()).filter(|index| !written.contains(index));
        read.filter_map(|index| Some((index, self.vectors_of(index)?)))
            .collect()
    }

    /// Index of the binding of vectors whose components are the elements of a binding.
    fn vectors_of(&self, index: usize) -> Option<usize> {
        let elements = &self.scope.buffers[index];
        let key = |binding: &KernelBinding| (binding.value, binding.is_copy, binding.buffer.access);
        let contains = |vectors: &KernelBinding| {
            let components = vectors.buffer.element.components();
            key(vectors) == key(elements)
                && matches!(vectors.buffer.access, Access::Read | Access::ReadWrite)
                && vectors.layout == elements.layout
                && components.is_some_and(|(ty, _)| ty == elements.buffer.element)
        };
        self.scope.buffers.iter().position(contains)
    }

    /// Texel format in which a buffer of vectors can be read as a texture; `None` for others.
    fn texture_texel(&self, index: usize) -> Result<Option<Texel>> {
        let binding = &self.scope.buffers[index];
        let BindingDecl {
            element, access, ..
        } = binding.buffer;
        let is_buffer = !access.is_texture() && !binding.is_copy;
        let is_texture_read = is_buffer
            && self
                .scope
                .reads_as_texture(binding.value, &binding.layout)?;
        Ok(element.texel().filter(|_| is_texture_read))
    }

    /// Number of textures that the kernel binds.
    fn texture_count(&self) -> usize {
        let buffers = self.scope.buffers.iter();
        let textures = buffers.filter(|binding| binding.buffer.access.is_texture());
        textures.count()
    }
}

/// Indices of the buffers that statements write.
fn stored_buffers(statements: &[Statement]) -> BTreeSet<usize> {
    let mut written = BTreeSet::new();
    for statement in statements {
        if let Statement::Store { buffer, .. } = statement {
            written.insert(*buffer);
        }
        written.extend(statement.blocks().flat_map(stored_buffers));
    }
    written
}

/// WGSL declarations of the buffers and textures, and of the array of sizes if there are any. `sizes` is the number of
/// sizes, which are packed in vec4s, and `sizes_in` their address space.
pub fn declarations(buffers: &[BindingDecl], sizes: usize, sizes_in: SizesSpace) -> String {
    let mut text = String::new();
    let bound = || buffers.iter().filter(|buffer| buffer.is_bound());
    for (place, buffer) in bound().enumerate() {
        let (name, element) = (&buffer.name, buffer.element.wgsl());
        let declaration = match buffer.access {
            Access::Read => format!("var<storage, read> {name}: array<{element}>"),
            Access::CheckFlags | Access::StartedWorkgroups => {
                format!("var<storage, read_write> {name}: array<atomic<{element}>>")
            }
            Access::ReadWrite => format!("var<storage, read_write> {name}: array<{element}>"),
            Access::TextureArray(texel) => {
                let format = texel.wgsl();
                format!("var {name}: texture_storage_2d_array<{format}, read>")
            }
            Access::AliasedTexture(texel) => {
                let format = texel.wgsl();
                format!("var {name}: texture_storage_2d<{format}, read>")
            }
        };
        text += &format!("@group(0) @binding({place}) {declaration};\n");
    }
    if sizes > 0 {
        let space = match sizes_in {
            SizesSpace::Uniform => "uniform",
            SizesSpace::Storage => "storage, read",
        };
        text += &format!(
            "@group(0) @binding({}) var<{space}> sizes: array<vec4<u32>, {}>;\n",
            bound().count(),
            sizes.div_ceil(4)
        );
    }
    text
}
