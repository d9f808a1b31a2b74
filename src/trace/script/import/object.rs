//! Attributes of modules: weights, numbers, lists and submodules.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::archive::TensorRecord;
use crate::archive::{Pickled, PickledObject};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::scalar::Scalar;
use crate::trace::script::ast::{AstExprKind, BaseClass};

use super::Importer;
use super::datum::{Datum, Instance, ScriptDict, ScriptList};
use super::mutable_cell::MutableCell;
use super::number::ScriptNumber;
use super::tensor::{HostNumber, StorageOrigin, TensorRef};
use crate::trace::views::GuardedGeometry;

impl Importer<'_> {
    /// Returns the root module.
    pub(super) fn root_module(&mut self) -> Result<Rc<Instance>> {
        match self.script.root() {
            Pickled::Object(root) => Ok(self.instance(root, "")),
            Pickled::Unsupported(what) => Err(Error::unsupported(format!("the module is {what}"))),
            _ => Err(Error::format("data.pkl does not hold a module")),
        }
    }

    /// Returns the instance of an object of the archive, which is made on first use. `path` is the path of the
    /// attribute that holds the object.
    fn instance(&mut self, object: &Arc<PickledObject>, path: &str) -> Rc<Instance> {
        let address = Arc::as_ptr(object) as usize;
        let make = || {
            Rc::new(Instance {
                class: object.class.as_ref().into(),
                path: path.to_string(),
                pickled: Some(object.clone()),
                attributes: RefCell::new(BTreeMap::new()),
                depth: 0,
            })
        };
        self.objects.entry(address).or_insert_with(make).clone()
    }

    /// Reads an attribute of an object, a field of a named tuple, or a constant of a class.
    pub(super) fn attribute(&mut self, object: &Datum, name: &str) -> Result<Datum> {
        match object {
            Datum::Unknown => Ok(Datum::Unknown),
            Datum::Object(instance) => self.instance_attribute(instance, name),
            Datum::NamedTuple(class, fields) => {
                let mut fields = fields.iter();
                let field = fields.find(|(field, _)| field == name);
                let value = field.map(|(_, value)| value.clone());
                value.ok_or_else(|| Error::source(format!("{class} has no field {name}")))
            }
            Datum::Tensor(_) => self.tensor_attribute(object, name),
            other => Err(Error::source(format!(
                "a {} has no attribute {name}",
                other.describe()
            ))),
        }
    }

    /// Reads an attribute of an object or a constant of its class.
    pub(super) fn instance_attribute(
        &mut self,
        instance: &Rc<Instance>,
        name: &str,
    ) -> Result<Datum> {
        if let Some(known) = instance.attributes.borrow().get(name) {
            return Ok(known.clone());
        }
        let pickled = instance
            .pickled
            .as_ref()
            .and_then(|object| object.get(name));
        let value = match pickled {
            Some(value) => match self.read_state(instance, name, value)? {
                Some(state) => state,
                None => self.datum_of(value, &join_path(&instance.path, name))?,
            },
            None => match self.member_name(instance, name)? {
                Some(member) => member,
                None => self.class_constant(&instance.class, name)?,
            },
        };
        let mut attributes = instance.attributes.borrow_mut();
        attributes.insert(name.to_string(), value.clone());
        Ok(value)
    }

    /// Returns the attribute `name` of an enumeration's member, which is pickled by its value only; none for other
    /// attributes.
    fn member_name(&self, instance: &Instance, attribute: &str) -> Result<Option<Datum>> {
        let class = self.script.class(&instance.class)?;
        let value = instance
            .pickled
            .as_ref()
            .and_then(|object| object.get("value"));
        let Some(value) = value.filter(|_| class.base == BaseClass::Enum && attribute == "name")
        else {
            return Ok(None);
        };
        let mut members = class.constants.iter();
        let member = members.find(|member| is_literal(value, &member.value.kind));
        Ok(member.map(|member| Datum::str(&member.name)))
    }

    /// Evaluates a constant of a class.
    fn class_constant(&mut self, class: &str, name: &str) -> Result<Datum> {
        let script = self.script;
        let constant = script.class(class)?.constant(name);
        let missing = || Error::source(format!("{class} has no attribute {name}"));
        self.literal(&constant.ok_or_else(missing)?.value)
    }

    /// Converts a value of a pickle. `path` is its path in the root module, by which tensors are named.
    pub(super) fn datum_of(&mut self, value: &Pickled, path: &str) -> Result<Datum> {
        Ok(match value {
            Pickled::None => Datum::None,
            Pickled::Bool(value) => Datum::bool(*value),
            Pickled::Int(value) => Datum::int(*value),
            Pickled::Float(value) => Datum::Number(ScriptNumber::Float(*value)),
            Pickled::Str(text) => Datum::str(text),
            Pickled::Device(name) => Datum::Device(name.as_ref().into()),
            Pickled::Tuple(items) => Datum::tuple(self.datums_of(items, path)?),
            Pickled::List(list) => {
                let items = self.datums_of(&list.items, path)?;
                self.outermost_list(items, true)
            }
            Pickled::Dict(dict) => self.datum_of_dict(&dict.entries, path)?,
            Pickled::Tensor(record) => Datum::Tensor(self.weight(record, path)?),
            Pickled::Object(object) => Datum::Object(self.instance(object, path)),
            Pickled::Unsupported(what) => {
                self.unsupported(Error::unsupported(format!("{path} is {what}")))
            }
        })
    }

    /// Converts the elements of a pickled tuple or list at a path.
    fn datums_of(&mut self, items: &[Pickled], path: &str) -> Result<Vec<Datum>> {
        let numbered = items.iter().enumerate();
        numbered
            .map(|(index, item)| self.datum_of(item, &join_path(path, &index.to_string())))
            .collect()
    }

    /// Converts a pickled dict at a path.
    fn datum_of_dict(&mut self, entries: &[(Pickled, Pickled)], path: &str) -> Result<Datum> {
        let mut items: Vec<(Datum, Datum)> = Vec::new();
        for (key, value) in entries {
            let name = match key {
                Pickled::Str(text) => text.to_string(),
                Pickled::Int(number) => number.to_string(),
                other => other.describe().to_string(),
            };
            let value = self.datum_of(value, &join_path(path, &name))?;
            items.push((self.datum_of(key, "")?, value));
        }
        Ok(Datum::Dict(Rc::new(ScriptDict {
            entries: RefCell::new(items),
            depth: 0,
            is_archived: true,
        })))
    }

    /// Makes a list outside of all regions.
    pub(super) fn outermost_list(&self, items: Vec<Datum>, is_archived: bool) -> Datum {
        Datum::List(Rc::new(ScriptList {
            items: RefCell::new(items),
            depth: 0,
            is_archived,
        }))
    }

    /// Returns a weight. Equal records refer to the same memory, so they are one weight, which is named by the path
    /// that was read first.
    fn weight(&mut self, record: &Arc<TensorRecord>, path: &str) -> Result<TensorRef> {
        if let Some(tensor) = self.tensors.get(record.as_ref()) {
            return Ok(tensor.clone());
        }
        let known_name = self.shared.names.get(record.as_ref()).cloned();
        let name = known_name.unwrap_or_else(|| path.to_string());
        let number = self.scalar_constant(record, &name)?;
        self.shared
            .names
            .insert(record.as_ref().clone(), name.clone());
        self.shared.records.insert(name.clone(), record.clone());
        let value = match number {
            Some(_) => None,
            None => Some(self.scopes.weight(&name, record.tensor_type())),
        };
        let guarded = GuardedGeometry {
            geometry: geometry_of(record),
            assumed: Vec::new(),
        };
        let tensor = self.outermost_tensor(value, number, StorageOrigin::Weight(name), guarded);
        self.tensors.insert(record.as_ref().clone(), tensor.clone());
        Ok(tensor)
    }

    /// Reads the number of a constant of the program without dimensions; none for other tensors. A constant of dtype
    /// `f64`, `i64` or `bool` is taken for a Python number, which tracing turns into such a constant.
    fn scalar_constant(&self, record: &TensorRecord, name: &str) -> Result<Option<HostNumber>> {
        if !record.sizes.is_empty() || !name.starts_with("constants.") {
            return Ok(None);
        }
        let tensor = self.script.read_tensor(record, &self.budget)?;
        let dtype = record.dtype;
        let scalar = match dtype {
            DType::Bool => tensor
                .to_i64()
                .first()
                .map(|value| Scalar::Bool(*value != 0)),
            _ if dtype.is_float() => tensor.to_f64().first().map(|value| Scalar::Float(*value)),
            _ => tensor.to_i64().first().map(|value| Scalar::Int(*value)),
        };
        Ok(scalar.map(|scalar| HostNumber {
            number: scalar.into(),
            dtype,
            wrapped: matches!(dtype, DType::F64 | DType::I64 | DType::Bool),
        }))
    }

    /// `CONSTANTS.cN`
    pub(super) fn constant(&mut self, index: usize) -> Result<Datum> {
        let script = self.script;
        let constant = script.constants().get(index);
        let missing = || Error::source(format!("there is no constant c{index}"));
        self.datum_of(
            constant.ok_or_else(missing)?,
            &format!("constants.c{index}"),
        )
    }

    /// Sets an attribute.
    pub(super) fn set_attribute(&mut self, object: &Datum, name: &str, value: Datum) -> Result<()> {
        match object {
            Datum::Unknown => Ok(()),
            Datum::Object(instance) if instance.pickled.is_none() => {
                self.record_change(MutableCell::Attribute(instance.clone(), name.to_string()))?;
                let mut attributes = instance.attributes.borrow_mut();
                attributes.insert(name.to_string(), value);
                Ok(())
            }
            Datum::Object(instance) => {
                let instance = instance.clone();
                self.write_state(&instance, name, value)
            }
            other => Err(Error::source(format!(
                "an attribute of a {} is set",
                other.describe()
            ))),
        }
    }

    /// Looks up a member of an enumeration.
    pub(super) fn enum_member(&mut self, qualified: &str) -> Result<Option<Datum>> {
        let script = self.script;
        let Some((class_name, member)) = qualified.rsplit_once('.') else {
            return Ok(None);
        };
        let Ok(class) = script.class(class_name) else {
            return Ok(None);
        };
        let (BaseClass::Enum, Some(constant)) = (class.base, class.constant(member)) else {
            return Ok(None);
        };
        let attributes = BTreeMap::from([
            ("name".to_string(), Datum::str(member)),
            ("value".to_string(), self.literal(&constant.value)?),
        ]);
        Ok(Some(Datum::Object(Rc::new(Instance {
            class: class_name.into(),
            path: String::new(),
            pickled: None,
            attributes: RefCell::new(attributes),
            depth: 0,
        }))))
    }

    /// Reads an attribute of a tensor: `shape`, `dtype`.
    fn tensor_attribute(&mut self, tensor: &Datum, name: &str) -> Result<Datum> {
        let Datum::Tensor(tensor) = tensor else {
            return Ok(Datum::Unknown);
        };
        let ty = self.ty(tensor)?;
        Ok(match name {
            "shape" => {
                let sizes = ty.shape.into_iter();
                self.list(sizes.map(|size: Dim| Datum::int(size)).collect())
            }
            "dtype" => Datum::int(ty.dtype.torch_code()),
            "ndim" => Datum::int(ty.shape.len()),
            "device" => Datum::Device("cpu".into()),
            "requires_grad" => Datum::bool(false),
            _ => {
                return Err(Error::unsupported(format!(
                    "the attribute {name} of tensors"
                )));
            }
        })
    }
}

/// Geometry of an archive's tensor in its storage.
fn geometry_of(record: &TensorRecord) -> Geometry {
    let dims = |numbers: &[usize]| numbers.iter().copied().map(Dim::from).collect();
    Geometry {
        sizes: dims(&record.sizes),
        strides: dims(&record.strides),
        offset: record.offset.into(),
    }
}

/// Tests whether a value equals a literal. The serialiser writes large floats like integers.
fn is_literal(value: &Pickled, literal: &AstExprKind) -> bool {
    match (value, literal) {
        (Pickled::Int(value), AstExprKind::Int(literal)) => value == literal,
        (Pickled::Float(value), AstExprKind::Float(literal)) => value == literal,
        (Pickled::Float(value), AstExprKind::Int(literal)) => *value == *literal as f64,
        (Pickled::Str(value), AstExprKind::Str(literal)) => **value == **literal,
        _ => false,
    }
}

/// Appends a name to the path of a module.
pub fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_string()
    } else {
        format!("{path}.{name}")
    }
}
