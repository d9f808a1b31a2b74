//! Replaces the decoder in builds without the feature `images`.

use std::path::Path;

use super::{FittedPicture, Preset};
use crate::budget::Budget;
use crate::error::{Error, Result};

pub(super) fn decode(
    path: &Path,
    _size: Option<(u32, u32)>,
    _channels: usize,
    _preset: Preset,
    _budget: &Budget,
) -> Result<FittedPicture> {
    let message = format!(
        "{}: this build of onionskin cannot read pictures",
        path.display()
    );
    Err(Error::usage(message).help("build it with the feature `images`, or give a tensor file"))
}
