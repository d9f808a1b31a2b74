//! `onionskin show --wgsl`: the kernels of plans as files.

use std::path::{Path, PathBuf};

use super::plan::stem;
use crate::error::{Error, Result};
use crate::kernel::plan::Plan;

/// Writes every kernel of some plans to a file of its own, all or none: `03_dot_gelu.wgsl` in the folder, or in one folder
/// for each plan by its name if there are several.
///
/// # Errors
/// There is something in the folder already, or it cannot be written.
pub(super) fn write(folder: &Path, plans: &[(String, Plan)]) -> Result<()> {
    let is_free = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !folder.exists(),
    };
    if !is_free {
        let message = format!("{} is no empty folder", folder.display());
        return Err(Error::usage(message).help("name a new one"));
    }
    let temporary = beside(folder);
    let written = fill(&temporary, plans).and_then(|()| {
        // A name that is taken by an empty folder is not given up on every system.
        let _ = std::fs::remove_dir(folder);
        std::fs::rename(&temporary, folder)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_dir_all(&temporary);
        Error::io(folder, error)
    })
}

fn beside(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn fill(folder: &Path, plans: &[(String, Plan)]) -> std::io::Result<()> {
    for (name, plan) in plans {
        let folder = match plans.len() {
            1 => folder.to_path_buf(),
            _ => folder.join(name),
        };
        std::fs::create_dir_all(&folder)?;
        for (index, kernel) in plan.kernels.iter().enumerate() {
            let path = folder.join(stem(index, kernel) + ".wgsl");
            std::fs::write(path, head(plan, index) + &kernel.wgsl)?;
        }
    }
    Ok(())
}

/// Which steps run a kernel.
fn head(plan: &Plan, kernel: usize) -> String {
    let steps = plan.steps.iter().enumerate();
    let steps = steps.filter(|(_, step)| step.kernel == kernel);
    let numbers: Vec<String> = steps.map(|(index, _)| (index + 1).to_string()).collect();
    let label = &plan.kernels[kernel].label;
    match numbers.as_slice() {
        [only] => format!("// {label}: step {only} of the plan.\n\n"),
        many => format!("// {label}: steps {} of the plan.\n\n", many.join(", ")),
    }
}
