//! Messages of Mesa that say nothing about the program: its layer of device selection complains where there is no desktop, and
//! its drivers say that they are not certified.

use std::env;

use super::trusted;

/// Any of these says which devices Mesa lists first, so that its layer of device selection is wanted.
const WANTED: &[&str] = &[
    "NODEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE",
    "DRI_PRIME",
    // With a desktop the layer is silent, and tells which GPU shows it.
    "XDG_RUNTIME_DIR",
];

/// Keeps Mesa from printing messages on standard error that are about the machine, not about the program. What the environment
/// says already stays.
///
/// Drivers are told through the environment, which programs that this one starts inherit. So this is for the beginning of
/// `main`, as [`widen_vectors`](super::widen_vectors) is; where other threads run, nothing changes.
pub fn silence_mesa() {
    let is_set = |name: &&str| env::var_os(name).is_some();
    if !WANTED.iter().any(is_set) {
        trusted::set_variable_if_alone("NODEVICE_SELECT", "1");
    }
    let conformance = "MESA_VK_IGNORE_CONFORMANCE_WARNING";
    if !is_set(&conformance) {
        trusted::set_variable_if_alone(conformance, "1");
    }
}
