//! Pictures of models: an HTML page, Graphviz's language, and the JSON of Model Explorer.
//!
//! All three show a hierarchy of boxes: graphs, their modules, and regions with their bodies. The page draws each level
//! of it as `layout` places its boxes; overlays add measurements and findings.

mod box_size;
mod category;
mod document;
mod dot;
mod hierarchy;
mod layout;
mod level;
mod model_explorer;
mod operands;
mod overlay;
mod page;
mod source_lines;
mod weight_summary;

use std::path::PathBuf;

use serde_json::Value as Json;

use self::document::DocumentBuilder;
pub use self::dot::to_dot;
use self::hierarchy::Hierarchy;
pub use self::model_explorer::to_model_explorer;
pub use self::overlay::OverlayFile;
pub(crate) use self::page::{Page, escaped};
use self::source_lines::SourceLines;
use crate::error::Result;
use crate::ir::GraphModule;

/// Options of a page.
#[derive(Clone, Debug, Default)]
pub struct ViewOptions {
    /// Documents of other commands that the page shows over the picture.
    pub overlays: Vec<OverlayFile>,
    /// Folders from which relative paths of source files start. The page contains the lines around the places of nodes if
    /// their files exist; without folders it contains none.
    pub source_folders: Vec<PathBuf>,
    /// Facts about the model for the page's summary: a name and a text.
    pub facts: Vec<[String; 2]>,
}

/// Returns a self-contained HTML page with the picture of a model. `title` is the name of its file.
///
/// ```
/// use onionskin::trace::{TracedTensor, trace_fn};
/// use onionskin::view::{ViewOptions, page};
///
/// let x = TracedTensor::from_vec([2], vec![1f32, -2.0]);
/// let traced = trace_fn(x, |x| Ok(x.relu()))?;
/// let html = page(&traced.module, "relu", &ViewOptions::default())?;
/// assert!(html.starts_with("<!DOCTYPE html>"));
/// # Ok::<(), onionskin::Error>(())
/// ```
///
/// # Errors
/// An overlay is malformed, or about another model.
pub fn page(module: &GraphModule, title: &str, options: &ViewOptions) -> Result<String> {
    let data = page_data(module, title, options)?;
    let page = Page {
        title: &format!("{title}: model"),
        styles: &[PICTURE_STYLE, include_str!("page/view.css")],
        body: include_str!("page/view.html"),
        data: Some(&data),
        scripts: &[
            PICTURE_SCRIPT,
            include_str!("page/list.js"),
            include_str!("page/view.js"),
        ],
    };
    Ok(page.html())
}

/// Style of a picture and its details.
pub(crate) const PICTURE_STYLE: &str = concat!(
    include_str!("page/picture.css"),
    include_str!("page/details.css")
);
/// Script of a picture and its details: the class `Viewer`.
pub(crate) const PICTURE_SCRIPT: &str = concat!(
    include_str!("page/scene.js"),
    include_str!("page/picture.js"),
    include_str!("page/details.js"),
    include_str!("page/viewer.js")
);
/// The elements of a picture within a document.
pub(crate) const FIGURE: &str = include_str!("page/figure.html");

/// The data of a picture: boxes, values, weights, levels and overlays.
pub(crate) fn page_data(module: &GraphModule, title: &str, options: &ViewOptions) -> Result<Json> {
    let hierarchy = Hierarchy::of(&module.graphs);
    let sources = SourceLines::new(options.source_folders.clone());
    let mut data = DocumentBuilder::new(module, &hierarchy, sources).document();
    data["title"] = title.into();
    data["facts"] = serde_json::json!(options.facts);
    data["categories"] = serde_json::json!(category::CATEGORIES);
    overlay::add_overlays(&mut data, &hierarchy, &options.overlays)?;
    Ok(data)
}
