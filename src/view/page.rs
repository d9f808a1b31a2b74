//! Self-contained HTML pages: one file without references to others, which needs no server.

use serde_json::Value as Json;

/// Colours, fonts and tables of every page.
const BASE_STYLE: &str = include_str!("page/base.css");
/// Functions of every page: it reads the data, makes elements and formats numbers.
const BASE_SCRIPT: &str = include_str!("page/base.js");

/// A page in parts. All parts but the title are trusted: texts of users belong in the data, or are escaped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page<'a> {
    /// The title, as plain text.
    pub(crate) title: &'a str,
    /// Parts of the style sheet, after the style of every page.
    pub(crate) styles: &'a [&'a str],
    /// The content of the body.
    pub(crate) body: &'a str,
    /// Data of the scripts, which is the constant `data` there.
    pub(crate) data: Option<&'a Json>,
    /// Scripts in order, after the script of every page. They are one script: their top-level names must differ.
    pub(crate) scripts: &'a [&'a str],
}

impl Page<'_> {
    /// The page as HTML.
    pub(crate) fn html(&self) -> String {
        let title = escaped(self.title);
        let style = [&[BASE_STYLE], self.styles].concat().join("\n");
        let body = self.body;
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"generator\" content=\"onionskin\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n"
        );
        if let Some(data) = self.data {
            // A name may contain `</script>` or `<!--`, which would end or disguise the script.
            let data = data.to_string().replace('<', "\\u003c");
            html += &format!("<script type=\"application/json\" id=\"data\">{data}</script>\n");
        }
        if !self.scripts.is_empty() {
            let script = [&[BASE_SCRIPT], self.scripts].concat().join("\n");
            html += &format!("<script>\n{script}</script>\n");
        }
        html + "</body>\n</html>\n"
    }
}

/// Escapes a text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_cannot_leave_their_place() {
        let data = json!({"name": "</script><!--<script>"});
        let page = Page {
            title: "<b>.pt",
            data: Some(&data),
            scripts: &["data.name;"],
            ..Page::default()
        };
        let html = page.html();
        assert!(html.contains("<title>&lt;b&gt;.pt</title>"), "{html}");
        assert_eq!(html.matches("</script>").count(), 2, "{html}");
        assert!(!html.contains("<!--"), "{html}");
    }
}
