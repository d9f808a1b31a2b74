// Returns how many workgroups of the dispatch started before this one. Each workgroup, one subgroup, calls it once. The last
// one sets the counter back to zero.
fn start_order(workgroups: vec3<u32>, local: u32) -> u32 {
    var order = 0u;
    if local == 0u {
        order = atomicAdd(&started[0], 1u);
        if order + 1u == workgroups.x * workgroups.y {
            atomicStore(&started[0], 0u);
        }
    }
    return subgroupBroadcast(order, 0u);
}
