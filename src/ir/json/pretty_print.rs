use serde_json::Value as Json;

/// Keys of lists that are printed with one item a line.
const LISTS: [&str; 9] = [
    "graphs",
    "guards",
    "inputs",
    "arguments",
    "reads",
    "writes",
    "states",
    "nodes",
    "tensors",
];

/// The text of a document: graphs are spread over lines, with one node a line.
pub(super) fn text(document: &Json) -> String {
    let mut text = String::new();
    spread_over_lines(document, 0, &mut text);
    text.push('\n');
    text
}

/// Prints an object that holds graphs, nodes or tensors, with one field a line.
fn spread_over_lines(value: &Json, depth: usize, text: &mut String) {
    let Json::Object(fields) = value else {
        return compact(value, text);
    };
    if !fields.iter().any(|(key, value)| is_spread(key, value)) {
        return compact(value, text);
    }
    block(
        "{",
        "}",
        depth,
        fields.iter(),
        text,
        |(key, value), text| {
            *text += &format!("{}: ", quoted(key));
            match value {
                Json::Array(items) if is_list(key) && !items.is_empty() => {
                    block("[", "]", depth + 1, items.iter(), text, |item, text| {
                        spread_over_lines(item, depth + 2, text);
                    });
                }
                Json::Object(fields) if is_list(key) => {
                    block(
                        "{",
                        "}",
                        depth + 1,
                        fields.iter(),
                        text,
                        |(key, value), text| {
                            *text += &format!("{}: ", quoted(key));
                            compact(value, text);
                        },
                    );
                }
                value => spread_over_lines(value, depth + 1, text),
            }
        },
    );
}

fn is_list(key: &str) -> bool {
    LISTS.contains(&key)
}

fn is_spread(key: &str, value: &Json) -> bool {
    match value {
        Json::Array(_) => key == "graphs" || key == "nodes",
        Json::Object(_) => key == "tensors",
        _ => false,
    }
}

fn block<T>(
    open: &str,
    close: &str,
    depth: usize,
    items: impl Iterator<Item = T>,
    text: &mut String,
    write: impl Fn(T, &mut String),
) {
    let indent = "  ".repeat(depth);
    text.push_str(open);
    for (index, item) in items.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        *text += &format!("{comma}\n{indent}  ");
        write(item, text);
    }
    *text += &format!("\n{indent}{close}");
}

/// Prints a value on one line, with a space after each comma and colon.
fn compact(value: &Json, text: &mut String) {
    match value {
        Json::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                compact(item, text);
            }
            text.push(']');
        }
        Json::Object(fields) => {
            text.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                *text += &format!("{}: ", quoted(key));
                compact(value, text);
            }
            text.push('}');
        }
        other => *text += &other.to_string(),
    }
}

fn quoted(key: &str) -> String {
    Json::from(key).to_string()
}
