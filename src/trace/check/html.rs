//! The report as a self-contained HTML page: findings, runs, the picture of the graph with marks at the findings, and the
//! graph as text.

use std::fmt::Write;

use super::canonical::{enclosing_regions, node_line, value_path};
use super::{CatalogEntry, CheckReport, Finding, Severity};
use crate::error::Result;
use crate::ir::{Graph, GraphModule, Node};
use crate::view::{
    FIGURE, OverlayFile, PICTURE_SCRIPT, PICTURE_STYLE, Page, ViewOptions, escaped, page_data,
};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

impl CheckReport {
    /// The report as an HTML page. `title` names the model, such as its file.
    ///
    /// # Errors
    /// The picture of the graph cannot be made.
    pub fn to_html(&self, title: &str) -> Result<String> {
        let verdict = self.verdict().name();
        let findings = self.by_severity();
        let name = escaped(title);
        let body = format!(
            "<div class=\"document\">\n<h1>{name} <span class=\"{verdict}\">{verdict}</span></h1>\n\
             <p>graph {}: {}</p>\n{}{}{}<h2>Graph</h2>\n{FIGURE}\
             <details>\n<summary>the graph as text</summary>\n{}</details>\n</div>",
            escaped(&self.graph.name),
            self.summary(),
            self.limits_section(),
            findings_section(&findings),
            self.runs_section(),
            graph_table(&self.graph, &findings),
        );
        let page = Page {
            title: &format!("{title}: {verdict}"),
            styles: &[PICTURE_STYLE, STYLE],
            body: &body,
            data: Some(&self.picture(title)?),
            scripts: &[PICTURE_SCRIPT, SCRIPT],
        };
        Ok(page.html())
    }

    /// The data of the graph's picture, with the findings as its overlay.
    fn picture(&self, title: &str) -> Result<serde_json::Value> {
        let module = GraphModule {
            graphs: vec![self.graph.clone()],
            ..GraphModule::default()
        };
        let options = ViewOptions {
            overlays: OverlayFile::of("", self.to_json()).into_iter().collect(),
            ..ViewOptions::default()
        };
        page_data(&module, title, &options)
    }

    /// Section about the limits of the check.
    fn limits_section(&self) -> String {
        let limits = self.limits();
        let lines = limits.iter().map(|line| with_code_tags(&escaped(line)));
        match lines.collect::<Vec<_>>() {
            lines if lines.is_empty() => String::new(),
            lines => format!("<p class=\"limits\">{}</p>\n", lines.join("<br>")),
        }
    }

    /// Section with a table of the runs.
    fn runs_section(&self) -> String {
        let mut text = String::from(
            "<h2>Runs</h2>\n<table>\n<tr class=\"head\"><td></td><td>inputs</td><td>result</td></tr>\n",
        );
        for run in &self.runs {
            let unequal = run.differences.iter().filter(|found| found.max_abs != 0.0);
            let outputs = unequal.map(ToString::to_string);
            let lines: Vec<String> = std::iter::once(run.summary())
                .chain(outputs.filter(|_| run.differences.len() > 1))
                .map(|line| escaped(&line))
                .collect();
            let outcome = run.outcome.name();
            text += &format!(
                "<tr class=\"{outcome}\"><td>{outcome}</td><td>{}</td><td>{}</td></tr>\n",
                escaped(&run.label),
                lines.join("<br>")
            );
        }
        text + "</table>\n"
    }
}

/// Section with the findings.
fn findings_section(findings: &[&Finding]) -> String {
    let mut text = String::from("<h2>Findings</h2>\n");
    if findings.is_empty() {
        text += "<p>None.</p>\n";
    }
    for (index, finding) in findings.iter().enumerate() {
        let (entry, severity) = (finding.id.entry(), finding.severity);
        let place = match finding.place.is_unknown() {
            true => String::new(),
            false => format!(
                "<p class=\"place\">{}</p>\n",
                escaped(&finding.place.to_string())
            ),
        };
        let value = finding.value.as_ref().map(|value| {
            let value = escaped(value);
            format!("<p>in the graph: <a href=\"#value-{value}\" data-finding=\"{index}\">{value}</a></p>\n")
        });
        let details = finding.details.join("\n");
        let _ = write!(
            text,
            "<section id=\"finding-{index}\" class=\"{severity}\">\n<h3>{} {}: {}</h3>\n{place}{}",
            entry.code,
            escaped(entry.title),
            escaped(&finding.message),
            value.unwrap_or_default(),
        );
        if !details.is_empty() {
            let _ = writeln!(text, "<pre>{}</pre>", escaped(details.trim_end()));
        }
        let _ = write!(
            text,
            "<details><summary>cause and cure</summary><p>{}</p><p>{}</p>{}</details>\n</section>\n",
            with_code_tags(&escaped(entry.cause)),
            with_code_tags(&escaped(entry.cure)),
            rust_cure(entry)
        );
    }
    text
}

/// Paragraph on the cure in Rust, if it is another.
fn rust_cure(entry: &CatalogEntry) -> String {
    let cure = entry.rust_cure.map(|cure| with_code_tags(&escaped(cure)));
    cure.map_or_else(String::new, |cure| format!("<p>In Rust: {cure}</p>"))
}

/// Table of the graph's lines.
fn graph_table(graph: &Graph, findings: &[&Finding]) -> String {
    let mut text = String::from("<table class=\"graph\">\n");
    graph_rows(graph, findings, &[], &mut text);
    text + "</table>\n"
}

/// Appends the rows of a graph and its nested graphs to `text`. `regions` are the names of the enclosing regions.
fn graph_rows(graph: &Graph, findings: &[&Finding], regions: &[String], text: &mut String) {
    let depth = regions.len();
    let inputs: Vec<String> = graph
        .inputs
        .iter()
        .map(|id| {
            let info = graph.value(*id);
            format!("{}: {}", info.name, info.ty)
        })
        .collect();
    *text += &graph_row(
        &format!("{}({})", graph.name, inputs.join(", ")),
        "",
        depth,
        "head",
        "",
        "",
    );
    for node in &graph.nodes {
        let value = value_path(regions, graph, node).unwrap_or_default();
        let (class, marks) = node_marks(node, &value, findings);
        let place = if node.place.is_unknown() {
            String::new()
        } else {
            node.place.to_string()
        };
        *text += &graph_row(
            &node_line(graph, node),
            &place,
            depth,
            class,
            &marks,
            &value,
        );
        let inner = enclosing_regions(regions, graph, node);
        for body in node.bodies() {
            graph_rows(body, findings, &inner, text);
        }
    }
    let outputs: Vec<&str> = graph
        .outputs
        .iter()
        .map(|id| graph.value(*id).name.as_str())
        .collect();
    *text += &graph_row(
        &format!("return {}", outputs.join(", ")),
        "",
        depth,
        "head",
        "",
        "",
    );
}

/// A table row for a line of the graph. `marks` are links to findings; `anchor` is the name of the node's value, or
/// empty.
fn graph_row(
    line: &str,
    place: &str,
    depth: usize,
    class: &str,
    marks: &str,
    anchor: &str,
) -> String {
    let id = match anchor {
        "" => String::new(),
        anchor => format!(" id=\"value-{}\"", escaped(anchor)),
    };
    format!(
        "<tr{id} class=\"{class}\"><td>{marks}</td><td style=\"padding-left: {}em\"><code>{}</code></td><td class=\"place\">{}</td></tr>\n",
        1 + 2 * depth,
        escaped(line),
        escaped(place)
    )
}

/// The CSS class of a node's worst finding, and links to its findings: those that name its value, or those of its line if
/// they name no value.
fn node_marks(node: &Node, value: &str, findings: &[&Finding]) -> (&'static str, String) {
    let about = |finding: &Finding| match &finding.value {
        // Values of two branches may have one name. Their lines differ.
        Some(name) => name == value && is_at_node(finding, node),
        None => finding.place.location.is_some() && finding.place.location == node.place.location,
    };
    let found: Vec<(usize, &&Finding)> = findings
        .iter()
        .enumerate()
        .filter(|(_, finding)| about(finding))
        .collect();
    let worst = found.iter().map(|(_, finding)| finding.severity).max();
    let class = match worst {
        Some(Severity::Error) => "error",
        Some(Severity::Warning) => "warning",
        Some(Severity::Note) => "note",
        None => "",
    };
    let link = |(index, finding): &(usize, &&Finding)| {
        format!("<a href=\"#finding-{index}\">{}</a>", finding.id)
    };
    (class, found.iter().map(link).collect::<Vec<_>>().join(" "))
}

/// True if a finding has the node's line, or none.
fn is_at_node(finding: &Finding, node: &Node) -> bool {
    finding.place.location.is_none() || finding.place.location == node.place.location
}

/// Turns text between backquotes into `<code>` elements. `text` is already escaped.
fn with_code_tags(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let pieces = pieces.map(|(index, piece)| match index % 2 {
        0 => piece.to_string(),
        _ => format!("<code>{piece}</code>"),
    });
    pieces.collect()
}
