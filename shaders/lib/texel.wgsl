// Buffers that are read as textures: vectors one after the other, in rows of texels.

fn texel_at(index: u32) -> vec2<u32> {
    return vec2(index % 1024u, index / 1024u);
}
