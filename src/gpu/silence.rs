//! Silences messages of Mesa that are not about the program: its device-selection layer complains if there is no
//! desktop, and its drivers report that they are not conformant.

use std::env;

use super::trusted;

/// Variables that influence the order in which Mesa lists devices. If one is set, the device-selection layer is needed.
const DEVICE_SELECT_VARIABLES: &[&str] = &[
    "NODEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE",
    "DRI_PRIME",
    // With a desktop the layer prints nothing, and it knows which GPU drives the display.
    "XDG_RUNTIME_DIR",
];

/// Keeps Mesa from printing messages about the machine on standard error. Variables that are already set keep their
/// values.
///
/// The settings are environment variables, which child processes inherit. Call this at the beginning of `main`, as
/// [`widen_vectors`](super::widen_vectors); if other threads run, nothing changes.
pub fn silence_mesa() {
    let is_set = |name: &&str| env::var_os(name).is_some();
    if !DEVICE_SELECT_VARIABLES.iter().any(is_set) {
        trusted::set_env_if_single_threaded("NODEVICE_SELECT", "1");
    }
    let conformance = "MESA_VK_IGNORE_CONFORMANCE_WARNING";
    if !is_set(&conformance) {
        trusted::set_env_if_single_threaded(conformance, "1");
    }
}
