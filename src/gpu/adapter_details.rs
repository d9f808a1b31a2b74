//! Everything that an adapter reports of itself, for reports of faults.

use wgpu::{Adapter, Limits};

use super::adapter::{self, AdapterReport};

/// A limit of an adapter below WebGPU's default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitShortfall {
    /// Name of the limit, such as `max_buffer_size`.
    pub name: String,
    /// Limit of the adapter.
    pub found: u64,
    /// WebGPU's default, which programs may take for granted.
    pub default: u64,
}

/// Identification, limits and features of an adapter, those that Onionskin does not use included.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdapterDetails {
    /// Summary, as in [`adapters`](super::adapters).
    pub report: AdapterReport,
    /// PCI ids of vendor and device; 0 if the backend does not report them.
    pub pci_ids: [u32; 2],
    /// Smallest and largest number of invocations of a subgroup.
    pub subgroup_sizes: [u32; 2],
    /// Limits by name, as wgpu prints them.
    pub limits: Vec<(String, String)>,
    /// Features under wgpu's names that the adapter has and Onionskin does not use.
    pub unused_features: Vec<String>,
    /// Limits below WebGPU's defaults.
    pub shortfalls: Vec<LimitShortfall>,
}

/// Details of every adapter of this machine, in the order of [`adapters`](super::adapters).
pub fn adapter_details() -> Vec<AdapterDetails> {
    let adapters = adapter::enumerate_adapters();
    adapters.iter().enumerate().map(details).collect()
}

fn details((index, adapter): (usize, &Adapter)) -> AdapterDetails {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let unused = adapter.features() - adapter::optional_features();
    AdapterDetails {
        report: adapter::report(index, adapter),
        pci_ids: [info.vendor, info.device],
        subgroup_sizes: [info.subgroup_min_size, info.subgroup_max_size],
        limits: named_limits(&limits),
        unused_features: unused.iter_names().map(|(name, _)| name.into()).collect(),
        shortfalls: shortfalls(&limits),
    }
}

/// Limits by name. wgpu lists them only in its `Debug` form.
fn named_limits(limits: &Limits) -> Vec<(String, String)> {
    let text = format!("{limits:#?}");
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    lines
        .map(|(name, value)| (name.into(), value.trim_end_matches(',').into()))
        .collect()
}

fn shortfalls(limits: &Limits) -> Vec<LimitShortfall> {
    let mut found = Vec::new();
    Limits::defaults().check_limits_with_fail_fn(limits, false, |name, default, allowed| {
        found.push(LimitShortfall {
            name: name.to_string(),
            found: allowed,
            default,
        });
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let limits = named_limits(&Limits::defaults());
        let size = limits.iter().find(|(name, _)| name == "max_buffer_size");
        assert_eq!(size.unwrap().1, (256 << 20).to_string());
        assert!(limits.len() > 20);
    }

    /// Large limits and small alignments are better than WebGPU's defaults.
    #[test]
    fn lower_limits_are_found() {
        assert_eq!(shortfalls(&Limits::defaults()), []);
        let limits = Limits {
            max_compute_invocations_per_workgroup: 128,
            min_storage_buffer_offset_alignment: 512,
            max_buffer_size: u64::MAX,
            ..Limits::defaults()
        };
        let found = shortfalls(&limits);
        let found: Vec<(&str, u64, u64)> = found
            .iter()
            .map(|limit| (limit.name.as_str(), limit.found, limit.default))
            .collect();
        let invocations = ("max_compute_invocations_per_workgroup", 128, 256);
        let alignment = ("min_storage_buffer_offset_alignment", 512, 256);
        assert!(found.len() == 2 && found.contains(&invocations) && found.contains(&alignment));
    }
}
