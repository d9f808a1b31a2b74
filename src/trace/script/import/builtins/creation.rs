//! Builtin operators that make tensors from Python's numbers and lists.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;

use crate::trace::script::import::Importer;
use crate::trace::script::import::call::Arguments;
use crate::trace::script::import::datum::Datum;
use crate::trace::script::import::number::ScriptNumber;
use crate::trace::script::import::operator::{named_argument, python_dtype};
use crate::trace::script::import::tensor::HostNumber;

impl Importer<'_> {
    /// Evaluates operators that make tensors from known numbers and lists; none for others.
    pub(super) fn creation(&mut self, name: &str, arguments: &Arguments) -> Result<Option<Datum>> {
        let dtype = match named_argument(arguments, "dtype") {
            Some(Datum::Number(ScriptNumber::Int(code))) => {
                Some(DType::from_torch_code(code.as_const().unwrap_or(-1))?)
            }
            _ => None,
        };
        match (name, arguments.positional.as_slice()) {
            ("_shape_as_tensor", [Datum::Tensor(tensor)]) => {
                let sizes = self.ty(&tensor.clone())?.shape;
                let sizes = self.list(sizes.into_iter().map(Datum::int).collect());
                self.tensor_from(&sizes, Some(DType::I64)).map(Some)
            }
            ("tensor" | "as_tensor", [Datum::Tensor(_), ..]) => self.identity("to", arguments),
            ("tensor" | "as_tensor", [data, ..]) => self.tensor_from(data, dtype).map(Some),
            ("scalar_tensor", [Datum::Number(number), ..]) => Ok(Some(
                self.known_scalar(number, dtype.unwrap_or(DType::F32))?,
            )),
            ("full", [size, Datum::Number(number), ..]) if is_empty(size) => {
                let dtype = dtype.unwrap_or(default_dtype(number));
                Ok(Some(self.known_scalar(number, dtype)?))
            }
            ("zeros" | "ones", [size, ..]) if is_empty(size) => {
                let number = ScriptNumber::int(i64::from(name == "ones"));
                Ok(Some(
                    self.known_scalar(&number, dtype.unwrap_or(DType::F32))?,
                ))
            }
            _ => Ok(None),
        }
    }

    /// Makes a scalar tensor of a known number, which is converted to the dtype.
    fn known_scalar(&mut self, number: &ScriptNumber, dtype: DType) -> Result<Datum> {
        let number = number.cast(dtype, self.builder().symbols())?;
        Ok(Datum::Tensor(self.host_tensor(HostNumber {
            number,
            dtype,
            wrapped: false,
        })))
    }

    /// `torch.tensor` of a number or nested lists of numbers. Without a dtype, it follows from the numbers.
    fn tensor_from(&mut self, data: &Datum, dtype: Option<DType>) -> Result<Datum> {
        if let Datum::Number(number) = data {
            return self.known_scalar(number, dtype.unwrap_or(default_dtype(number)));
        }
        if let Datum::Dynamic(_, tensor) = data {
            let tensor = Datum::Tensor(tensor.clone());
            return self
                .identity("to", &vec![tensor].into())
                .map(|x| x.unwrap_or(Datum::Unknown));
        }
        let mut shape = Shape::new();
        let mut numbers = Vec::new();
        flatten(data, 0, &mut shape, &mut numbers)?;
        let dtypes = numbers.iter().filter_map(|value| match value {
            Datum::Number(number) => Some(default_dtype(number)),
            _ => None,
        });
        let dtype = dtype
            .or(dtypes.reduce(DType::promote))
            .unwrap_or(DType::F32);
        let mut values = Vec::with_capacity(numbers.len());
        for value in &numbers {
            let tensor = self.as_tensor(value)?;
            values.push(self.read(&tensor)?);
        }
        let builder = self.builder();
        let elements: Vec<_> = values
            .into_iter()
            .map(|id| builder.value(id).to(dtype).reshape(vec![1.into()]))
            .collect();
        let vector = match elements.is_empty() {
            true => builder.full(dtype, shape, 0),
            false => builder.concat(&elements, 0).reshape(shape),
        };
        let id = vector.id();
        builder.check()?;
        Ok(Datum::Tensor(self.new_tensor(id)))
    }
}

/// True for sizes without elements: those of a scalar tensor.
fn is_empty(size: &Datum) -> bool {
    size.items().is_some_and(|items| items.is_empty())
}

/// The dtype of `torch.tensor(number)`.
fn default_dtype(number: &ScriptNumber) -> DType {
    match python_dtype(number) {
        DType::F64 => DType::F32,
        dtype => dtype,
    }
}

/// Appends the numbers of nested lists to `out`, and their sizes from axis `depth` on to `shape`. Fails if the lists of
/// an axis differ in length.
fn flatten(data: &Datum, depth: usize, shape: &mut Shape, out: &mut Vec<Datum>) -> Result<()> {
    let Some(items) = data.items() else {
        out.push(data.clone());
        return Ok(());
    };
    match shape.get(depth) {
        None => shape.push(items.len().into()),
        Some(size) if size.as_const() == i64::try_from(items.len()).ok() => {}
        Some(_) => return Err(Error::source("nested lists of unequal lengths")),
    }
    for item in &items {
        flatten(item, depth + 1, shape, out)?;
    }
    Ok(())
}
