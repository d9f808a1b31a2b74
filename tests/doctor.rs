//! `onionskin doctor`: every check passes on the device of the tests, and the report has all of them.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

mod command;
mod samples;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use command::{Folder, onionskin};
use onionskin::doctor::{CheckVerdict, DoctorOptions, DoctorReport, examine};
use onionskin::gpu::{DeviceChoice, FeatureLevel};

/// Returns the examination of the tests' device, which is made once. None without a device.
fn report() -> Option<&'static DoctorReport> {
    static REPORT: OnceLock<Option<DoctorReport>> = OnceLock::new();
    let examined = REPORT.get_or_init(|| {
        samples::device(FeatureLevel::Full)?;
        let choice = std::env::var("ONIONSKIN_DEVICE").unwrap_or_default();
        let options = DoctorOptions {
            device: choice.parse().ok(),
            ..DoctorOptions::default()
        };
        Some(examine(&options, &mut |_| ()).unwrap())
    });
    examined.as_ref()
}

#[test]
fn every_check_passes_or_is_refused_for_a_reason() {
    let Some(report) = report() else { return };
    assert!(report.passed(), "{report}");
    for check in &report.devices[0].checks {
        match &check.verdict {
            CheckVerdict::Passed => {
                assert!(!check.differences.is_empty(), "{}: no output", check.name);
                assert!(
                    check
                        .differences
                        .iter()
                        .all(|difference| difference.passed())
                );
            }
            CheckVerdict::Refused(reason) => {
                assert!(reason.contains("the device"), "{}: {reason}", check.name);
            }
            verdict => panic!("{}: {verdict:?}", check.name),
        }
    }
}

#[test]
fn a_device_is_examined_in_full() {
    let Some(report) = report() else { return };
    let device = &report.devices[0];
    let details = device.details.as_ref().unwrap();
    assert!(
        details
            .limits
            .iter()
            .any(|(name, _)| name == "max_buffer_size")
    );
    assert!(
        device.error.is_none() && device.timing.is_some(),
        "{report}"
    );
    let has_subgroups = details.report.capabilities.subgroups;
    assert_eq!(device.subgroups.is_some(), has_subgroups);
    let groups: BTreeSet<&str> = device.checks.iter().map(|check| check.group).collect();
    assert_eq!(groups.len(), 19, "{groups:?}");
}

/// Kernel variants are checked besides those that the planner chooses.
#[test]
fn variants_are_computed_too() {
    let Some(report) = report() else { return };
    let checks = report.devices[0].checks.iter();
    let variants: BTreeSet<&str> = checks
        .filter_map(|check| check.name.split_once(", by "))
        .map(|(_, variant)| variant)
        .collect();
    assert!(variants.contains("portable"), "{variants:?}");
}

#[test]
fn every_form_has_every_check() {
    let Some(report) = report() else { return };
    let (page, json) = (report.to_markdown(), report.to_json());
    assert!(page.starts_with("# written by onionskin doctor "), "{page}");
    let parsed: serde_json::Value = serde_json::from_str(&json.to_string()).unwrap();
    assert_eq!(parsed["format"], "onionskin-doctor-1");
    let checks = &report.devices[0].checks;
    assert_eq!(
        parsed["devices"][0]["checks"].as_array().unwrap().len(),
        checks.len()
    );
    let text = report.to_string();
    for check in checks {
        assert!(
            page.contains(&format!("| {}: {} | ", check.group, check.name)),
            "{}",
            check.name
        );
        assert!(text.contains(check.group), "{text}");
    }
}

/// The host computes all graphs on machines without an adapter.
#[test]
fn the_host_is_examined_without_a_device() {
    let options = DoctorOptions {
        device: Some(DeviceChoice::Cpu),
        only: Some("recurrent layers".into()),
        ..DoctorOptions::default()
    };
    let report = examine(&options, &mut |_| ()).unwrap();
    assert!(report.passed() && report.devices[0].details.is_none());
    assert_eq!(report.devices[0].checks.len(), 4);
}

#[test]
fn machines_without_adapters_get_help() {
    // A driver that does not exist: the loader finds no adapter.
    let output = Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .args(["doctor", "--only", "scans"])
        .env("VK_ICD_FILENAMES", "/nonexistent.json")
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if cfg!(target_os = "linux") {
        assert!(text.contains("no adapter found"), "{text}");
        assert!(
            text.contains("VK_ICD_FILENAMES=/nonexistent.json"),
            "{text}"
        );
        assert!(text.contains("the host interpreter"), "{text}");
    }
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_report_is_written_whole_and_replaces_only_reports() {
    let folder = Folder::new("doctor");
    let report = folder.file("report.md");
    let arguments = [
        "doctor", "--device", "cpu", "--only", "scans", "--report", &report,
    ];
    for _ in 0..2 {
        let (code, text, error) = onionskin(&arguments);
        assert_eq!(code, 0, "{error}");
        assert!(text.contains(&format!("attach {report}")), "{text}");
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(
        page.contains("| scans: cumulative sum | passed |"),
        "{page}"
    );
    std::fs::write(&report, "# my notes\n").unwrap();
    let (code, _, error) = onionskin(&arguments);
    assert_eq!(code, 2, "{error}");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "# my notes\n");
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for arguments in [
        ["--device", "no such adapter"],
        ["--timeout", "0"],
        ["--report", "report.txt"],
    ] {
        let (code, _, error) = onionskin(&[&["doctor"], arguments.as_slice()].concat());
        assert_eq!(code, 2, "{arguments:?}: {error}");
    }
}
