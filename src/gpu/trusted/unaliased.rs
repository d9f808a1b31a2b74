//! Replaces [`aliased`](super::aliased) on platforms without lavapipe: no buffer aliases a texture.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use wgpu::{AdapterInfo, Buffer, BufferDescriptor, Texture};

use crate::error::{Error, Result};
use crate::kernel::layout::Texel;

pub(in crate::gpu) const ALIGNMENT: u64 = 64;

pub(in crate::gpu) type Allocated = Arc<AtomicU64>;

/// Uninhabited: no such buffer exists on this platform.
#[derive(Clone, Debug)]
pub(in crate::gpu) struct AliasedBuffer {
    pub(in crate::gpu) buffer: Buffer,
    /// Makes the type uninhabited.
    never: Infallible,
}

pub(in crate::gpu) fn is_expected(_: &AdapterInfo) -> bool {
    false
}

pub(in crate::gpu) fn is_supported(_: &wgpu::Device) -> bool {
    false
}

impl AliasedBuffer {
    pub(in crate::gpu) fn new(
        _: &wgpu::Device,
        _: &BufferDescriptor,
        _: u64,
        _: &Allocated,
    ) -> Result<AliasedBuffer> {
        Err(Error::internal(
            "buffers cannot alias textures on this platform",
        ))
    }

    pub(in crate::gpu) fn suballocate(
        &self,
        _: &wgpu::Device,
        _: &BufferDescriptor,
    ) -> Result<Option<AliasedBuffer>> {
        match self.never {}
    }

    pub(in crate::gpu) fn read<T>(&self, _: Range<u64>, _: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match self.never {}
    }

    pub(in crate::gpu) fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        match self.never {}
    }

    pub(in crate::gpu) fn texture(
        &self,
        _: &wgpu::Device,
        _: u64,
        _: u64,
        _: Texel,
    ) -> Result<Texture> {
        match self.never {}
    }
}

/// Uninhabited: no such texture exists on this platform.
pub(in crate::gpu) struct MappedTexture {
    pub(in crate::gpu) texture: Texture,
    pub(in crate::gpu) row_bytes: u64,
    never: Infallible,
}

impl MappedTexture {
    pub(in crate::gpu) fn new(
        _: &wgpu::Device,
        _: &str,
        _: [u32; 3],
        _: Texel,
        _: &Allocated,
    ) -> Result<MappedTexture> {
        Err(Error::internal(
            "buffers cannot alias textures on this platform",
        ))
    }

    pub(in crate::gpu) fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        match self.never {}
    }
}
