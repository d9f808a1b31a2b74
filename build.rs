//! Writes a method for every operator of the dictionary, from the schemas in `src/aten`.

#[path = "build/in_place.rs"]
mod in_place;
#[path = "build/methods.rs"]
mod methods;
#[path = "build/options.rs"]
mod options;
#[path = "build/schema.rs"]
mod schema;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use schema::Schema;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src/aten");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    collect(Path::new("src/aten"), &mut files)?;
    files.sort();
    let mut schemas = Vec::new();
    for file in files {
        read(&fs::read_to_string(file)?, &mut schemas)?;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    fs::write(out.join("methods.rs"), methods::generate(&schemas)?)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads the string literals that are schemas, row by row; unit tests at the end of a file have some of their own.
fn read(text: &str, schemas: &mut Vec<Schema>) -> Result<(), String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for row in code.split("Composite::") {
        let is_random = row.contains(".with_random(");
        for part in row.split("\"aten::").skip(1) {
            let literal = literal(part).ok_or_else(|| format!("a string without end: {part}"))?;
            if literal.contains('(') {
                schemas.push(Schema::parse(&format!("aten::{literal}"), is_random)?);
            }
        }
    }
    Ok(())
}

/// The string literal at the beginning of a text, up to its closing quote.
fn literal(text: &str) -> Option<String> {
    let mut literal = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some(literal),
            '\\' => literal.push(characters.next()?),
            character => literal.push(character),
        }
    }
}
