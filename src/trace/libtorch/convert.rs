//! Conversion of tensors and values between this crate and libtorch.

use tch::{Device, IValue, Kind};

use super::tch_error;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// Element types, each with the kind that libtorch calls it by.
const KINDS: [(DType, Kind); 10] = [
    (DType::Bool, Kind::Bool),
    (DType::U8, Kind::Uint8),
    (DType::I8, Kind::Int8),
    (DType::I16, Kind::Int16),
    (DType::I32, Kind::Int),
    (DType::I64, Kind::Int64),
    (DType::F16, Kind::Half),
    (DType::BF16, Kind::BFloat16),
    (DType::F32, Kind::Float),
    (DType::F64, Kind::Double),
];

/// Copies a tensor to libtorch, on the CPU.
pub fn to_libtorch(tensor: &Tensor) -> Result<tch::Tensor> {
    let kind = KINDS.iter().find(|(dtype, _)| *dtype == tensor.dtype());
    let (_, kind) = kind.ok_or_else(|| Error::internal("a dtype has no kind in libtorch"))?;
    let sizes = tensor.shape().iter().map(|size| i64::try_from(*size));
    let sizes: Vec<i64> = sizes
        .collect::<Result<_, _>>()
        .map_err(|_| Error::input("a size is too large for libtorch"))?;
    tch::Tensor::f_from_data_size(tensor.bytes(), &sizes, *kind).map_err(|error| tch_error(&error))
}

/// Copies a tensor of libtorch, from any device.
pub fn from_libtorch(tensor: &tch::Tensor) -> Result<Tensor> {
    if !tensor.defined() {
        return Err(Error::unsupported("an undefined libtorch tensor"));
    }
    let read_elements = || -> Result<(Kind, Vec<i64>, Vec<u8>), tch::TchError> {
        let contiguous = tensor
            .f_detach()?
            .f_to_device(Device::Cpu)?
            .f_contiguous()?;
        let (kind, numel) = (contiguous.f_kind()?, contiguous.numel());
        let mut bytes = vec![0; numel * kind.elt_size_in_bytes()];
        contiguous.f_copy_data_u8(&mut bytes, numel)?;
        Ok((kind, contiguous.size(), bytes))
    };
    let (kind, sizes, bytes) = read_elements().map_err(|error| tch_error(&error))?;
    let dtype = KINDS.iter().find(|(_, known)| *known == kind);
    let unknown = || Error::unsupported(format!("libtorch tensors of dtype {kind:?}"));
    let (dtype, _) = dtype.ok_or_else(unknown)?;
    let sizes: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
    Tensor::from_bytes(*dtype, sizes, &bytes)
}

/// Converts an argument for libtorch. A list has the element type of its first item, if all items have that type.
pub(super) fn to_ivalue(item: &Item) -> Result<IValue> {
    let all = |items: &[Item]| items.iter().map(to_ivalue).collect::<Result<Vec<IValue>>>();
    Ok(match item {
        Item::Tensor(tensor) => IValue::Tensor(to_libtorch(tensor)?),
        Item::Number(Scalar::Bool(value)) => IValue::Bool(*value),
        Item::Number(Scalar::Int(value)) => IValue::Int(*value),
        Item::Number(Scalar::Float(value)) => IValue::Double(*value),
        Item::Str(text) => IValue::String(text.clone()),
        Item::None => IValue::None,
        Item::Tuple(items) => IValue::Tuple(all(items)?),
        Item::List(items) => to_ivalue_list(all(items)?),
        Item::Dict(items) => {
            let entry =
                |(key, item): &(String, Item)| Ok((IValue::String(key.clone()), to_ivalue(item)?));
            IValue::GenericDict(items.iter().map(entry).collect::<Result<_>>()?)
        }
    })
}

/// Makes a list of the items' type, or a generic list if they have several types.
fn to_ivalue_list(items: Vec<IValue>) -> IValue {
    macro_rules! list_of_type {
        ($($item:ident => $list:ident),*) => {
            match items.first() {
                $(Some(IValue::$item(_)) => {
                    let all = items.iter().map(|item| match item {
                        IValue::$item(value) => Some(value),
                        _ => None,
                    });
                    match all.collect::<Option<Vec<_>>>() {
                        Some(all) => IValue::$list(all.into_iter().map(Copied::copied).collect()),
                        None => IValue::GenericList(items),
                    }
                })*
                _ => IValue::GenericList(items),
            }
        };
    }
    list_of_type!(Tensor => TensorList, Int => IntList, Double => DoubleList, Bool => BoolList, String => StringList)
}

/// Clones an element of a list. The copy of a tensor shares its storage.
trait Copied {
    fn copied(&self) -> Self;
}

impl Copied for tch::Tensor {
    fn copied(&self) -> Self {
        self.shallow_clone()
    }
}

/// Implements [`Copied`] by `Clone`.
macro_rules! cloned {
    ($($ty:ty),*) => {
        $(impl Copied for $ty {
            fn copied(&self) -> Self {
                self.clone()
            }
        })*
    };
}

cloned!(i64, f64, bool, String);

/// Converts a result of libtorch.
pub(super) fn from_ivalue(value: &IValue) -> Result<Item> {
    let all = |values: &[IValue]| {
        values
            .iter()
            .map(from_ivalue)
            .collect::<Result<Vec<Item>>>()
    };
    fn numbers<T: Copy + Into<Scalar>>(values: &[T]) -> Item {
        let number = |value: &T| Item::Number((*value).into());
        Item::List(values.iter().map(number).collect())
    }
    Ok(match value {
        IValue::None => Item::None,
        IValue::Tensor(tensor) => Item::Tensor(from_libtorch(tensor)?),
        IValue::Double(value) => Item::Number(Scalar::Float(*value)),
        IValue::Int(value) => Item::Number(Scalar::Int(*value)),
        IValue::Bool(value) => Item::Number(Scalar::Bool(*value)),
        IValue::String(text) => Item::Str(text.clone()),
        IValue::Tuple(items) => Item::Tuple(all(items)?),
        IValue::GenericList(items) => Item::List(all(items)?),
        IValue::IntList(values) => numbers(values),
        IValue::DoubleList(values) => numbers(values),
        IValue::BoolList(values) => numbers(values),
        IValue::StringList(texts) => Item::List(texts.iter().cloned().map(Item::Str).collect()),
        IValue::TensorList(tensors) => {
            let item = |tensor| from_libtorch(tensor).map(Item::Tensor);
            Item::List(tensors.iter().map(item).collect::<Result<_>>()?)
        }
        IValue::GenericDict(entries) => {
            Item::Dict(entries.iter().map(dict_entry).collect::<Result<_>>()?)
        }
        // Objects, devices, and variants that libtorch may add.
        other => {
            let message = format!(
                "libtorch returned something other than tensors, numbers, strings and structures of these: {other:?}"
            );
            return Err(Error::unsupported(message));
        }
    })
}

/// Converts an entry of a dict. An integer key becomes its decimal text.
fn dict_entry((key, value): &(IValue, IValue)) -> Result<(String, Item)> {
    let key = match key {
        IValue::String(text) => text.clone(),
        IValue::Int(number) => number.to_string(),
        other => {
            let message = format!(
                "libtorch returned a dict with the key {other:?}; keys must be strings or integers"
            );
            return Err(Error::unsupported(message));
        }
    };
    Ok((key, from_ivalue(value)?))
}
