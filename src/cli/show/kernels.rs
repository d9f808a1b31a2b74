//! `onionskin show --wgsl`: writes the kernels of plans to files.

use std::path::Path;

use crate::cli::argument_errors::check_folder;
use crate::cli::output::wrapped;
use crate::cli::plan::{SizedPlan, kernel_name};
use crate::error::{Error, Result};
use crate::files::OutputFolder;
use crate::kernel::plan::{Plan, Step};

/// Columns of a comment line.
const WIDTH: usize = 100;

/// Checks that a folder is empty, or that it does not exist and its parent does.
pub(super) fn check(folder: &Path) -> Result<()> {
    let is_free = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !folder.exists(),
    };
    match is_free {
        true => check_folder(folder),
        false => {
            let message = format!("{} is not an empty folder", folder.display());
            Err(Error::usage(message).help("name a new one"))
        }
    }
}

/// Writes each kernel of the plans to a file, all or none: `03_dot_gelu.wgsl` in the folder, or in a folder for each plan,
/// by its name, if there are several.
///
/// # Errors
/// Fails as [`check`] does, or if the folder cannot be written.
pub(super) fn write(folder: &Path, plans: &[SizedPlan]) -> Result<()> {
    check(folder)?;
    let output = OutputFolder::new(folder)?;
    fill(output.path(), plans).map_err(|error| Error::io(folder, error))?;
    output.finish()
}

fn fill(folder: &Path, plans: &[SizedPlan]) -> std::io::Result<()> {
    for planned in plans {
        let folder = match plans.len() {
            1 => folder.to_path_buf(),
            _ => folder.join(planned.name()),
        };
        std::fs::create_dir_all(&folder)?;
        for (index, kernel) in planned.plan().kernels.iter().enumerate() {
            let path = folder.join(kernel_name(index, kernel) + ".wgsl");
            std::fs::write(path, header(planned, index) + &kernel.wgsl)?;
        }
    }
    Ok(())
}

/// Returns a comment that lists the steps that run the kernel, and the first step's nodes and sizes.
fn header(planned: &SizedPlan, kernel: usize) -> String {
    let plan = planned.plan();
    let steps = plan.steps.iter().enumerate();
    let steps: Vec<(usize, &Step)> = steps.filter(|(_, step)| step.kernel == kernel).collect();
    let label = &plan.kernels[kernel].label;
    let mut lines = vec![
        format!("{label}: {}.", describe_steps(&steps)),
        String::new(),
    ];
    if let Some((_, step)) = steps.first() {
        let details = planned.details(step).into_iter();
        let mut details: Vec<(&str, String)> =
            details.filter(|(label, _)| *label != "stored").collect();
        details.extend(sizes(plan, step));
        details.extend(workgroup(planned, step));
        let of_line =
            |(label, text): &(&str, String)| wrapped(text, &format!("{label:<11}"), WIDTH);
        lines.extend(details.iter().flat_map(of_line));
    }
    let lines = lines.iter().map(|line| format!("// {line}"));
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_string()).collect();
    lines.join("\n") + "\n\n"
}

/// Returns `step 3 of the plan`, or `steps 3, 5 and 8 of the plan; the lines below are about step 3`.
fn describe_steps(steps: &[(usize, &Step)]) -> String {
    let numbers: Vec<String> = steps
        .iter()
        .map(|(index, _)| (index + 1).to_string())
        .collect();
    match numbers.split_last() {
        None => "no step of the plan".to_string(),
        Some((only, [])) => format!("step {only} of the plan"),
        Some((last, others)) => {
            let first = others.first().unwrap_or(last);
            let others = others.join(", ");
            format!("steps {others} and {last} of the plan; the lines below are about step {first}")
        }
    }
}

/// Returns the contents of the buffer of sizes, in order.
fn sizes(plan: &Plan, step: &Step) -> Option<(&'static str, String)> {
    let count = plan.kernels.get(step.kernel)?.sizes;
    let sizes: Vec<String> = step.sizes.iter().map(ToString::to_string).collect();
    (count > 0).then(|| ("sizes", sizes.join(", ")))
}

/// Returns the number of workgroups and the invocations of each.
fn workgroup(planned: &SizedPlan, step: &Step) -> Option<(&'static str, String)> {
    let wgsl = &planned.plan().kernels.get(step.kernel)?.wgsl;
    let (_, rest) = wgsl.split_once("@workgroup_size(")?;
    let (size, _) = rest.split_once(')')?;
    let size: Vec<&str> = size
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    let count = planned.workgroups(&step.workgroups).ok()?;
    let size = size.join(" × ");
    Some(("workgroups", format!("{count} of {size} invocations")))
}
