//! Documents of PyTorch 2.1 and 2.2 (versions 1 and 2 of the schema) in the form of later versions.
//!
//! In both, a union has all of its keys, of which all but one are null; offsets and examples of sizes are plain numbers. In
//! version 1, moreover, the signature maps names of inputs to weights; the structure of arguments and results stands beside the
//! graph; types of tensors are nested one deeper; constants are `torch.save` archives in base64.
//! Source: `torch/_export/serde/schema.py` of these releases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// Prefix that TorchDynamo gives the names of a module's weights.
pub const WEIGHT_PREFIX: &str = "L__self___";

/// Returns a document in the form of later versions.
///
/// # Errors
/// A key is missing.
pub fn upgrade(mut document: Value) -> Result<Value> {
    strip_nulls(&mut document);
    let version = member(&mut document, "schema_version")?.take();
    document["schema_version"] = json!({"major": version, "minor": 0});
    let module = member(&mut document, "graph_module")?;
    if version == 1 {
        upgrade_signature(module)?;
    }
    upgrade_graph(member(module, "graph")?);
    Ok(document)
}

/// Replaces the signature and structure of version 1.
fn upgrade_signature(module: &mut Value) -> Result<()> {
    let signature = new_signature(module)?;
    let call = module_call(
        module
            .get("call_spec")
            .ok_or_else(|| missing("call_spec"))?,
    )?;
    let fields = module
        .as_object_mut()
        .ok_or_else(|| missing("graph_module"))?;
    fields.insert("signature".into(), signature);
    fields.insert("module_call_graph".into(), json!([call]));
    Ok(())
}

/// The constants of a document, each a `torch.save` archive of one tensor, by name.
///
/// # Errors
/// A constant is no base64.
pub fn constants(document: &Value) -> Result<Vec<(String, Vec<u8>)>> {
    let constants = document.pointer("/graph_module/graph/constants");
    let constants = constants.and_then(Value::as_object).into_iter().flatten();
    let decode = |(name, text): (&String, &Value)| {
        let bytes = STANDARD.decode(text.as_str().unwrap_or_default());
        let bytes = bytes.map_err(|error| Error::format(format!("constant {name}: {error}")))?;
        Ok((name.clone(), bytes))
    };
    constants.map(decode).collect()
}

fn missing(key: &str) -> Error {
    Error::format(format!("the document has no {key}"))
}

fn member<'a>(value: &'a mut Value, key: &str) -> Result<&'a mut Value> {
    value.get_mut(key).ok_or_else(|| missing(key))
}

/// Upgrades types of tensors and stacks of modules in a graph and in those within it.
fn upgrade_graph(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(types)) = fields.get_mut("tensor_values") {
                types.values_mut().for_each(upgrade_tensor_type);
            }
            if let Some(Value::String(stack)) = fields.get_mut("nn_module_stack") {
                *stack = module_stack(stack);
            }
            if let Some(hint) = fields.get_mut("hint").filter(|hint| hint.is_i64()) {
                *hint = json!({"as_int": hint});
            }
            fields.values_mut().for_each(upgrade_graph);
        }
        Value::Array(items) => items.iter_mut().for_each(upgrade_graph),
        _ => {}
    }
}

fn upgrade_tensor_type(value: &mut Value) {
    if let Some(meta) = value.get_mut("meta").map(Value::take) {
        *value = meta;
    }
    if let Some(offset) = value.get_mut("storage_offset") {
        *offset = json!({"as_int": offset});
    }
}

/// Removes the null members of all objects.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// The meaning of each input and output of a graph, from a signature that maps names to weights.
fn new_signature(module: &Value) -> Result<Value> {
    let signature = module
        .get("signature")
        .ok_or_else(|| missing("signature"))?;
    let graph = module.get("graph").ok_or_else(|| missing("graph"))?;
    let items = |key: &str| {
        graph
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let inputs: Vec<Value> = items("inputs")
        .map(|input| input_spec(signature, input))
        .collect();
    let outputs: Vec<Value> = items("outputs")
        .map(|output| output_spec(signature, output))
        .collect();
    let constants = graph.get("constants").and_then(Value::as_object);
    let constants = constants.into_iter().flat_map(Map::keys).map(
        |name| json!({"tensor_constant": {"arg": {"name": name}, "tensor_constant_name": name}}),
    );
    Ok(json!({
        "input_specs": constants.chain(inputs).collect::<Vec<Value>>(),
        "output_specs": outputs,
    }))
}

/// The structure of arguments and results of the root module. Later versions have the positional arguments and those by name, this
/// one has the latter only if there are any.
fn module_call(call_spec: &Value) -> Result<Value> {
    let text = |key: &str| {
        call_spec
            .get(key)
            .and_then(Value::as_str)
            .ok_or_else(|| missing(key))
    };
    let parsed: Value = serde_json::from_str(text("in_spec")?)
        .map_err(|error| Error::format(format!("in_spec: {error}")))?;
    let tree = parsed.get(1).ok_or_else(|| missing("in_spec"))?;
    let is = |child: &str, kind: &str| {
        tree.pointer(child).and_then(|child| child.get("type")) == Some(&json!(kind))
    };
    let children = tree.get("children_spec").and_then(Value::as_array);
    let has_names = children.is_some_and(|children| children.len() == 2)
        && is("/children_spec/0", "builtins.tuple")
        && is("/children_spec/1", "builtins.dict");
    let none = json!({"type": "builtins.dict", "context": "[]", "children_spec": []});
    let in_spec = match has_names {
        true => parsed,
        false => {
            json!([1, {"type": "builtins.tuple", "context": "null", "children_spec": [tree, none]}])
        }
    };
    Ok(json!({"signature": {"in_spec": in_spec.to_string(), "out_spec": text("out_spec")?}}))
}

/// The name of a tensor among inputs or outputs.
fn tensor_name(argument: &Value) -> &str {
    let name = argument.pointer("/as_tensor/name").and_then(Value::as_str);
    name.unwrap_or_default()
}

/// The entry of a name in one of the signature's maps.
fn entry<'a>(signature: &'a Value, map: &str, name: &str) -> Option<&'a str> {
    signature.get(map)?.get(name)?.as_str()
}

fn input_spec(signature: &Value, input: &Value) -> Value {
    let name = tensor_name(input);
    let arg = json!({"name": name});
    if let Some(path) = entry(signature, "inputs_to_parameters", name) {
        json!({"parameter": {"arg": arg, "parameter_name": weight_name(path)}})
    } else if let Some(path) = entry(signature, "inputs_to_buffers", name) {
        json!({"buffer": {"arg": arg, "buffer_name": weight_name(path)}})
    } else {
        json!({"user_input": {"arg": input}})
    }
}

fn output_spec(signature: &Value, output: &Value) -> Value {
    let name = tensor_name(output);
    let arg = json!({"name": name});
    match entry(signature, "buffers_to_mutate", name) {
        Some(path) => json!({"buffer_mutation": {"arg": arg, "buffer_name": weight_name(path)}}),
        None => json!({"user_output": {"arg": output}}),
    }
}

/// The name of a weight without the prefix.
pub fn weight_name(path: &str) -> &str {
    path.strip_prefix(WEIGHT_PREFIX).unwrap_or(path)
}

/// A stack of modules as later versions write it: `key,path,class` for `key:(path,class)`.
fn module_stack(stack: &str) -> String {
    let parts = |entry: &str| {
        let (key, rest) = entry.split_once(":(")?;
        let (path, class) = rest.strip_suffix(')')?.rsplit_once(',')?;
        Some(format!("{key},{},{class}", attribute_path(path)))
    };
    let entry = |entry: &str| parts(entry).unwrap_or_else(|| entry.to_string());
    stack
        .split(';')
        .map(entry)
        .collect::<Vec<String>>()
        .join(";")
}

/// A path as attributes: `L['self'].layers.0` for `getattr(L['self'].layers, '0')`.
fn attribute_path(path: &str) -> String {
    let depth = path.matches("getattr(").count();
    let mut path = path.replace("getattr(", "");
    for _ in 0..depth {
        path = path.replacen(", '", ".", 1).replacen("')", "", 1);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_stacks_have_attribute_paths() {
        let stack = "L__self___a:(L['self'].a,nn.Sequential);L__self___a_0:(getattr(L['self'].a, '0'),nn.Linear);\
                     x:(getattr(getattr(L['self'].a, '0').b, '1'),nn.ReLU)";
        let expected = "L__self___a,L['self'].a,nn.Sequential;L__self___a_0,L['self'].a.0,nn.Linear;x,L['self'].a.0.b.1,nn.ReLU";
        assert_eq!(module_stack(stack), expected);
    }
}
