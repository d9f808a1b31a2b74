// Textures that alias buffers: consecutive vectors, in rows of texels.

fn texel_at(index: u32) -> vec2<u32> {
    return vec2(index % 1024u, index / 1024u);
}
