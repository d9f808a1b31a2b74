//! Opcodes that call functions or make objects by their Python names. The names that occur here are the only ones
//! supported, and no Python code runs.

use super::*;
use crate::dtype::DType;

impl Unpickler<'_> {
    /// `BINPERSID`: a storage, written as `("storage", class, key, device, number of elements)`.
    pub(super) fn persistent(&mut self) -> Result<()> {
        let id = self.pop()?;
        let malformed = || Error::format("a persistent id does not describe a storage");
        let [tag, class, key, device, numel] = *self.tuple_items(id)? else {
            return Err(malformed());
        };
        let PickleNode::Global(class) = &self.nodes[class] else {
            return Err(malformed());
        };
        if &**self.str(tag)? != "storage" {
            return Err(malformed());
        }
        let storage_numel = self.usize(numel)?;
        let Some(dtype) = storage_dtype(class) else {
            let what = format!("a tensor of {class}");
            return self.unsupported_value(what);
        };
        if self.str(device).is_ok_and(|device| &**device == "meta") {
            return self.unsupported_value("a tensor without elements (device \"meta\")");
        }
        let record = TensorRecord {
            storage: format!("{}/{}", self.folder, self.str(key)?).into(),
            storage_numel,
            dtype,
            offset: 0,
            sizes: vec![storage_numel],
            strides: vec![1],
        };
        self.budget.charge_bytes(record.storage.len() as u64)?;
        self.push(PickleNode::Storage(Box::new(record)))
    }

    /// `REDUCE`: calls a name with a tuple of arguments.
    pub(super) fn reduce(&mut self) -> Result<()> {
        let arguments = self.pop()?;
        let function = self.pop()?;
        let PickleNode::Global(name) = &self.nodes[function] else {
            return Err(Error::format(
                "the callable of a REDUCE is not a global name",
            ));
        };
        let name = name.clone();
        // A member of an enumeration is written as a call of its class with the bare value.
        if is_class(&name) {
            return self.enum_member(name, arguments);
        }
        let arguments = self.tuple_items(arguments)?.to_vec();
        self.budget.charge_values(arguments.len())?;
        match (&*name, arguments.as_slice()) {
            ("collections.OrderedDict", []) => self.push(PickleNode::Dict(Vec::new(), None)),
            ("torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor", arguments) => {
                self.tensor(arguments)
            }
            (
                "torch._utils._rebuild_parameter"
                | "torch._utils._rebuild_parameter_with_state"
                | "torch.Size",
                [value, ..],
            ) => self.push_id(*value),
            ("torch.jit._pickle.restore_type_tag", [value, tag]) => {
                let tag = self.str(*tag)?.clone();
                self.set_type_tag(*value, tag)
            }
            ("torch.jit._pickle.build_intlist", [list]) => {
                self.set_type_tag(*list, "List[int]".into())
            }
            ("torch.jit._pickle.build_doublelist", [list]) => {
                self.set_type_tag(*list, "List[float]".into())
            }
            ("torch.jit._pickle.build_boollist", [list]) => {
                self.set_type_tag(*list, "List[bool]".into())
            }
            ("torch.jit._pickle.build_tensorlist", [list]) => {
                self.set_type_tag(*list, "List[Tensor]".into())
            }
            ("torch.device", arguments) => self.device(arguments),
            (name, _) => match unsupported_description(name) {
                Some(what) => self.unsupported_value(what),
                None => Err(unsupported_global(name)),
            },
        }
    }

    /// `NEWOBJ`: makes an instance without attributes.
    pub(super) fn new_object(&mut self) -> Result<()> {
        let arguments = self.pop()?;
        let class = self.pop()?;
        self.tuple_items(arguments)?;
        match &self.nodes[class] {
            PickleNode::Global(name) if is_class(name) => {
                let class = name.clone();
                self.push(PickleNode::Object(class, Vec::new()))
            }
            PickleNode::Global(name) => match name.strip_prefix(CUSTOM_CLASS_PREFIX) {
                Some(class) => {
                    let what = format!("an object of the C++ class {class}");
                    self.unsupported_value(what)
                }
                None => Err(unsupported_global(name)),
            },
            _ => Err(Error::format("the class of a NEWOBJ is not a global name")),
        }
    }

    /// `BUILD`: sets the attributes of an instance.
    pub(super) fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let object = self.top()?;
        let state = match &self.nodes[state] {
            PickleNode::Dict(entries, _) => {
                self.budget.charge_values(entries.len())?;
                Some(entries.clone())
            }
            _ => None,
        };
        match (&mut self.nodes[object], state) {
            (PickleNode::Object(_, attributes), Some(state)) => attributes.extend(state),
            (PickleNode::Object(class, _), None) => {
                let what = format!("an object of {class}, which restores itself by __setstate__");
                self.budget.charge_bytes(what.len() as u64)?;
                self.nodes[object] = PickleNode::Leaf(Pickled::Unsupported(what.into()));
            }
            (PickleNode::Leaf(Pickled::Unsupported(_)), _) => {}
            // A state dict carries `_metadata` as an attribute, which serves to load old versions.
            (PickleNode::Dict(..), Some(_)) => {}
            _ => {
                let message = "BUILD sets the state of something that is not an object";
                return Err(Error::format(message));
            }
        }
        Ok(())
    }

    /// Returns the elements of a tuple. Fails for other nodes.
    fn tuple_items(&self, id: NodeId) -> Result<&[NodeId]> {
        match &self.nodes[id] {
            PickleNode::Tuple(items) => Ok(items),
            _ => Err(Error::format("expected a tuple")),
        }
    }

    /// Returns a node's integer that is not negative. Fails for other nodes.
    fn usize(&self, id: NodeId) -> Result<usize> {
        match &self.nodes[id] {
            PickleNode::Leaf(Pickled::Int(value)) => usize::try_from(*value)
                .map_err(|_| Error::format(format!("expected a size, found {value}"))),
            _ => Err(Error::format("expected a size")),
        }
    }

    fn push_id(&mut self, id: NodeId) -> Result<()> {
        self.stack.push(id);
        Ok(())
    }

    /// Pushes a tensor that `_rebuild_tensor` or `_rebuild_tensor_v2` makes from these arguments.
    fn tensor(&mut self, arguments: &[NodeId]) -> Result<()> {
        let [storage, offset, sizes, strides, ..] = *arguments else {
            return Err(Error::format(
                "a tensor needs storage, offset, sizes and strides",
            ));
        };
        let storage = match &self.nodes[storage] {
            PickleNode::Storage(storage) => storage.clone(),
            PickleNode::Leaf(Pickled::Unsupported(_)) => return self.push_id(storage),
            _ => {
                let message = "a tensor is built from something that is not a storage";
                return Err(Error::format(message));
            }
        };
        if arguments
            .get(6)
            .is_some_and(|metadata| self.has_entries(*metadata))
        {
            return self.unsupported_value("a lazily negated tensor");
        }
        let record = TensorRecord {
            offset: self.usize(offset)?,
            sizes: self.sizes(sizes)?,
            strides: self.sizes(strides)?,
            ..*storage
        };
        if record.sizes.len() != record.strides.len() {
            let (strides, sizes) = (record.strides.len(), record.sizes.len());
            let message = format!("a tensor has {strides} strides for {sizes} sizes");
            return Err(Error::format(message));
        }
        record.numel()?;
        self.leaf(Pickled::Tensor(Arc::new(record)))
    }

    /// True for a dict that is not empty.
    fn has_entries(&self, id: NodeId) -> bool {
        matches!(&self.nodes[id], PickleNode::Dict(entries, _) if !entries.is_empty())
    }

    /// Pushes a value that is not supported, by its description.
    fn unsupported_value(&mut self, what: impl Into<Arc<str>>) -> Result<()> {
        let what = what.into();
        self.budget.charge_bytes(what.len() as u64)?;
        self.leaf(Pickled::Unsupported(what))
    }

    /// Returns the integers of a tuple.
    fn sizes(&self, id: NodeId) -> Result<Vec<usize>> {
        let items = self.tuple_items(id)?;
        self.budget.charge_values(items.len())?;
        items.iter().map(|item| self.usize(*item)).collect()
    }

    /// Sets the type tag of a list or dict, and pushes it.
    fn set_type_tag(&mut self, value: NodeId, type_tag: Arc<str>) -> Result<()> {
        if let PickleNode::List(_, tag) | PickleNode::Dict(_, tag) = &mut self.nodes[value] {
            *tag = Some(type_tag);
        }
        self.push_id(value)
    }

    fn device(&mut self, arguments: &[NodeId]) -> Result<()> {
        let device = match *arguments {
            [kind] => self.str(kind)?.clone(),
            [kind, index] => format!("{}:{}", self.str(kind)?, self.usize(index)?).into(),
            _ => return Err(Error::format("a device takes a type and an optional index")),
        };
        self.budget.charge_bytes(device.len() as u64)?;
        self.leaf(Pickled::Device(device))
    }

    /// Pushes a member of an enumeration by its value.
    fn enum_member(&mut self, class: Arc<str>, value: NodeId) -> Result<()> {
        let name = self.nodes.len();
        self.nodes
            .push(PickleNode::Leaf(Pickled::Str("value".into())));
        self.push(PickleNode::Object(class, vec![(name, value)]))
    }
}

/// The error for a name that is not supported.
pub(super) fn unsupported_global(name: &str) -> Error {
    Error::unsupported(format!(
        "the pickle needs {name}, which only Python can construct"
    ))
    .help("save tensors, dicts and lists of them, or a module by torch.jit.save")
}

/// True for the name of a class of the archive.
fn is_class(name: &str) -> bool {
    name.starts_with("__torch__.") && !name.starts_with(CUSTOM_CLASS_PREFIX)
}

/// Prefix of the names of classes that C++ registers.
const CUSTOM_CLASS_PREFIX: &str = "__torch__.torch.classes.";

/// Describes an unsupported value by the function that builds it in Python; none for other functions.
fn unsupported_description(function: &str) -> Option<&'static str> {
    Some(match function {
        "torch._utils._rebuild_sparse_tensor" | "torch._utils._rebuild_sparse_csr_tensor" => {
            "a sparse tensor"
        }
        "torch._utils._rebuild_qtensor" => "a quantised tensor",
        "torch._utils._rebuild_nested_tensor" => "a nested tensor",
        "torch.serialization._get_layout" => "a layout",
        "builtins.complex" | "__builtin__.complex" => "a complex number",
        _ => return None,
    })
}

/// The dtype of a storage by the name of its class.
fn storage_dtype(class: &str) -> Option<DType> {
    Some(match class {
        "torch.FloatStorage" => DType::F32,
        "torch.DoubleStorage" => DType::F64,
        "torch.HalfStorage" => DType::F16,
        "torch.BFloat16Storage" => DType::BF16,
        "torch.LongStorage" => DType::I64,
        "torch.IntStorage" => DType::I32,
        "torch.ShortStorage" => DType::I16,
        "torch.CharStorage" => DType::I8,
        "torch.ByteStorage" => DType::U8,
        "torch.BoolStorage" => DType::Bool,
        _ => return None,
    })
}
