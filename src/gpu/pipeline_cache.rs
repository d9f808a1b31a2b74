//! On-disk cache of compiled pipelines. A file that is damaged or belongs to another driver counts as missing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use wgpu::AdapterInfo;

use super::adapter;
use super::error_scope::lock;
use super::trusted;
use crate::error::{Error, Result};
use crate::files;

/// First bytes of a file. Changes with wgpu's major version and with this format.
const MAGIC: &[u8; 16] = b"onionskin/30/1\r\n";

/// The driver's pipeline cache and the file that stores it.
pub(super) struct DiskCache {
    raw: wgpu::PipelineCache,
    path: PathBuf,
    /// Hash of adapter and driver; see [`cache_key`].
    key: u64,
    /// Checksum of the data that the file holds; 0 if there is none.
    saved: Mutex<u64>,
}

impl DiskCache {
    /// Opens the cache of an adapter in a folder; `None` if the device has no pipeline caches.
    pub(super) fn open(
        device: &wgpu::Device,
        info: &AdapterInfo,
        folder: &Path,
    ) -> Option<DiskCache> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let key = cache_key(info);
        let path = folder.join(format!("pipelines-{key:016x}.bin"));
        let file = files::read(&path).unwrap_or_default();
        let data = decode(&file, key);
        Some(DiskCache {
            raw: trusted::pipeline_cache(device, data),
            saved: Mutex::new(data.map_or(0, checksum)),
            path,
            key,
        })
    }

    /// The cache to create pipelines with.
    pub(super) fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// Writes the file if the cache has changed. Failures are ignored: the pipelines are compiled again next time.
    pub(super) fn save(&self) {
        let Some(data) = self.raw.get_data() else {
            return;
        };
        let mut saved = lock(&self.saved);
        let sum = checksum(&data);
        if *saved != sum && write(&self.path, &encode(&data, self.key)).is_ok() {
            *saved = sum;
        }
    }
}

/// Hash of the properties that a compiled pipeline may depend on.
fn cache_key(info: &AdapterInfo) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&info.name, info.vendor, info.device, adapter::driver(info)).hash(&mut hasher);
    info.backend.to_string().hash(&mut hasher);
    hasher.finish()
}

fn checksum(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// Contents of the file for the data of a pipeline cache.
fn encode(data: &[u8], key: u64) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(key.to_le_bytes());
    file.extend(checksum(data).to_le_bytes());
    file.extend(data);
    file
}

/// The data of the pipeline cache in the contents of a file; `None` if these are damaged or have another key.
fn decode(file: &[u8], key: u64) -> Option<&[u8]> {
    let rest = file.strip_prefix(MAGIC)?;
    let rest = rest.strip_prefix(&key.to_le_bytes())?;
    let (sum, data) = rest.split_at_checked(8)?;
    (sum == checksum(data).to_le_bytes()).then_some(data)
}

/// Writes the file, in a folder that may not exist yet.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = files::folder_of(path);
    std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
    files::write(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupt_files_are_misses() {
        let file = encode(b"pipelines", 7);
        assert_eq!(decode(&file, 7), Some(&b"pipelines"[..]));
        assert_eq!(decode(&file, 8), None);
        for length in 0..file.len() {
            assert_eq!(decode(&file[..length], 7), None);
        }
        for index in 0..file.len() {
            let mut broken = file.clone();
            broken[index] ^= 1;
            assert_eq!(decode(&broken, 7), None, "byte {index}");
        }
    }
}
