//! Packed sequences (`torch.nn.utils.rnn.PackedSequence`), whose sizes depend on values.
//!
//! A packed sequence holds several sequences in two tensors: `data`, with a row for each step of each sequence, and
//! `batch_sizes`, with the number of sequences for each step. Sizes in graphs do not depend on values. Our operators
//! for packed sequences (module `packed` of `aten`) therefore use tensors that are large enough for every sequence at
//! full length, and longer than PyTorch's. A program may read such a tensor only by operators that treat all rows
//! alike. It may query only sizes that equal PyTorch's.

use std::rc::Rc;

use crate::aten;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};

use super::Importer;
use super::call::Arguments;
use super::datum::{Datum, NumberKind};
use super::number::ScriptNumber;
use super::tensor::{HostNumber, TensorRef};

/// The tensors of packed sequences.
#[derive(Default)]
pub struct PackedTensors {
    /// All such tensors so far.
    tensors: Vec<PackedTensor>,
    /// Number of operators in progress that may read these tensors.
    readers: usize,
    /// Number of packed sequences so far.
    count: usize,
}

/// A tensor of a packed sequence.
#[derive(Clone)]
struct PackedTensor {
    tensor: TensorRef,
    field: PackedField,
    /// Number that identifies the packed sequence.
    number: usize,
    /// Number of sequences in the packed sequence.
    batch: Dim,
}

/// The field of a packed sequence that a tensor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackedField {
    /// Rows, first those of step 0 of every sequence, then those of step 1, and so on.
    Data,
    /// Number of sequences for each step.
    BatchSizes,
}

/// Operators that return their operand, or a copy or cast of it.
const COPY_OPERATORS: [&str; 9] = [
    "to",
    "cpu",
    "cuda",
    "detach",
    "alias",
    "clone",
    "contiguous",
    "float",
    "double",
];

/// Operators that treat every row of their first operand in one way. Further tensors among the arguments are weights.
const ROWWISE_OPERATORS: [&str; 5] = ["dropout", "dropout_", "linear", "layer_norm", "prelu"];

/// Recurrent layers.
const RECURRENT_OPERATORS: [&str; 4] = ["lstm", "gru", "rnn_tanh", "rnn_relu"];

/// Queries whose answer does not depend on the number of rows.
const SIZE_INDEPENDENT_QUERIES: [&str; 8] = [
    "__is__",
    "__isnot__",
    "dim",
    "dtype",
    "device",
    "layout",
    "is_floating_point",
    "is_cuda",
];

impl Importer<'_> {
    /// Calls an operator on packed sequences; none if no argument is one.
    pub(super) fn packed_operator(
        &mut self,
        name: &str,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        let Some(short) = name.split_once("::").map(|(_, short)| short) else {
            return Ok(None);
        };
        if self.packed.readers > 0 {
            return Ok(None);
        }
        if short == "_pack_padded_sequence" {
            return self.pack(name, arguments).map(Some);
        }
        let Some(packed) = self.packed.first_among(arguments) else {
            return Ok(None);
        };
        if let Some(answer) = self.packed_size(short, &packed, arguments)? {
            return Ok(Some(answer));
        }
        if short == "_pad_packed_sequence" {
            return self.pad_packed(name, arguments).map(Some);
        }
        match self.packed_result(short, &packed, arguments)? {
            Some(field) => {
                let result = self.read_packed(name, arguments)?;
                let packed = PackedTensor { field, ..packed };
                self.packed.add(&result, packed);
                Ok(Some(result))
            }
            None if SIZE_INDEPENDENT_QUERIES.contains(&short) => {
                self.read_packed(name, arguments).map(Some)
            }
            None => Ok(Some(self.unsupported(refusal(name)))),
        }
    }

    /// Fails if a packed sequence is used as if its sizes were known.
    pub(super) fn check_packed(&self, tensor: &TensorRef) -> Result<()> {
        match self.packed.readers == 0 && self.packed.find(tensor).is_some() {
            true => Err(refusal("the program")),
            false => Ok(()),
        }
    }

    /// Calls `_pack_padded_sequence` and records its results as a packed sequence.
    fn pack(&mut self, name: &str, arguments: &Arguments) -> Result<Datum> {
        let result = self.read_packed(name, arguments)?;
        let lengths = match arguments.positional.get(1) {
            Some(Datum::Tensor(lengths)) => self.ty(&lengths.clone())?.shape,
            _ => Vec::new(),
        };
        let batch = lengths.first().cloned().unwrap_or(Dim::ZERO);
        self.packed.count += 1;
        let fields = [PackedField::Data, PackedField::BatchSizes];
        for (item, field) in result.items().iter().flatten().zip(fields) {
            if let Datum::Tensor(tensor) = item {
                let packed = PackedTensor {
                    tensor: tensor.clone(),
                    field,
                    number: self.packed.count,
                    batch: batch.clone(),
                };
                self.packed.add(item, packed);
            }
        }
        Ok(result)
    }

    /// Answers queries of sizes that equal PyTorch's; none for other calls. A query of the number of steps becomes a
    /// count in the graph.
    fn packed_size(
        &mut self,
        name: &str,
        packed: &PackedTensor,
        arguments: &Arguments,
    ) -> Result<Option<Datum>> {
        let [Datum::Tensor(tensor), rest @ ..] = arguments.positional.as_slice() else {
            return Ok(None);
        };
        let tensor = tensor.clone();
        Ok(match (packed.field, name, rest) {
            (PackedField::BatchSizes, "size", [_])
            | (PackedField::BatchSizes, "len" | "numel", []) => {
                Some(self.longest_sequence(&tensor)?)
            }
            // The first batch size is the number of sequences, since every sequence has a first step.
            (PackedField::BatchSizes, "select", [axis, index])
                if is_zero(axis) && is_zero(index) =>
            {
                Some(Datum::Tensor(self.host_tensor(HostNumber {
                    number: ScriptNumber::Int(packed.batch.clone()),
                    dtype: DType::I64,
                    wrapped: false,
                })))
            }
            (PackedField::Data, "size", [Datum::Number(axis)]) => {
                let axis = axis.concrete(self.builder().symbols())?.to_i64();
                let rank = self.rank(&tensor)?;
                match axis == 0 || axis == -rank {
                    true => None,
                    false => Some(self.read_packed("aten::size", arguments)?),
                }
            }
            _ => None,
        })
    }

    /// Returns the number of dimensions of a tensor, which may be of a packed sequence.
    fn rank(&mut self, tensor: &TensorRef) -> Result<i64> {
        self.packed.readers += 1;
        let ty = self.ty(tensor);
        self.packed.readers -= 1;
        Ok(i64::try_from(ty?.rank()).unwrap_or(i64::MAX))
    }

    /// The number of steps of the longest sequence, which the graph counts.
    fn longest_sequence(&mut self, batch_sizes: &TensorRef) -> Result<Datum> {
        self.packed.readers += 1;
        let id = self.read(batch_sizes);
        self.packed.readers -= 1;
        let builder = self.builder();
        let steps = builder.value(id?).gt(0).to(DType::I64).sum(&[0], false);
        builder.check()?;
        Ok(Datum::Dynamic(NumberKind::Int, self.new_tensor(steps.id())))
    }

    /// Calls `_pad_packed_sequence`. PyTorch pads to the longest sequence, unless the call gives a length. A graph pads
    /// to the size of the tensor of batch sizes ([`Importer::padded_steps`]), and asserts that this is the wanted
    /// length.
    fn pad_packed(&mut self, name: &str, arguments: &Arguments) -> Result<Datum> {
        let mut arguments = arguments.clone();
        if let [_, Datum::Tensor(sizes), _, _, total] = arguments.positional.as_mut_slice()
            && let Datum::Tensor(wanted) | Datum::Dynamic(_, wanted) = &*total
            && wanted.number().is_none()
        {
            let (sizes, wanted) = (sizes.clone(), wanted.clone());
            let steps = self.padded_steps(&sizes)?;
            let wanted = self.read(&wanted)?;
            let builder = self.builder();
            builder
                .value(wanted)
                .eq(steps.clone())
                .check_true(LENGTH_MISMATCH);
            builder.check()?;
            *total = Datum::int(steps);
        }
        self.read_packed(name, &arguments)
    }

    /// Size of the tensor of batch sizes: the number of steps that the padded input had.
    fn padded_steps(&mut self, batch_sizes: &TensorRef) -> Result<Dim> {
        self.packed.readers += 1;
        let ty = self.ty(batch_sizes);
        self.packed.readers -= 1;
        Ok(ty?.shape.first().cloned().unwrap_or(Dim::ZERO))
    }

    /// Returns the field of the packed sequence that the result of an operator is; none for operators that must not
    /// read packed sequences.
    fn packed_result(
        &mut self,
        name: &str,
        packed: &PackedTensor,
        arguments: &Arguments,
    ) -> Result<Option<PackedField>> {
        let field = |index: usize| {
            let argument = self.packed.find_datum(arguments.positional.get(index)?)?;
            (argument.number == packed.number).then_some(argument.field)
        };
        let (first_field, second_field) = (field(0), field(1));
        let others = arguments.positional.get(1..).unwrap_or_default();
        let others_are_plain = others
            .iter()
            .all(|other| self.packed.find_datum(other).is_none());
        let is_data = first_field == Some(PackedField::Data);
        let is_recurrent = is_data
            && second_field == Some(PackedField::BatchSizes)
            && RECURRENT_OPERATORS.contains(&name);
        let is_embedding = name == "embedding" && second_field == Some(PackedField::Data);
        let is_rowwise = is_data && others_are_plain && ROWWISE_OPERATORS.contains(&name);
        if COPY_OPERATORS.contains(&name) {
            return Ok(first_field);
        }
        let has_packed_data = packed.field == PackedField::Data;
        let treats_rows_alike =
            is_rowwise || has_packed_data && self.is_elementwise_call(name, packed, arguments)?;
        Ok((is_recurrent || is_embedding || treats_rows_alike).then_some(PackedField::Data))
    }

    /// True for elementwise operators on packed data whose other tensors are data of that packed sequence, or equal for
    /// every row.
    fn is_elementwise_call(
        &mut self,
        name: &str,
        packed: &PackedTensor,
        arguments: &Arguments,
    ) -> Result<bool> {
        let name = format!("aten::{}", name.strip_suffix('_').unwrap_or(name));
        let is_elementwise = |operator: &aten::Operator| {
            matches!(operator.row.strides, aten::StrideRule::Elementwise)
        };
        if !aten::overloads(&name).any(is_elementwise) {
            return Ok(false);
        }
        let rank = self.rank(&packed.tensor)?;
        let named = arguments.named.iter().map(|(_, value)| value);
        for argument in arguments.positional.iter().chain(named) {
            let Datum::Tensor(tensor) = argument else {
                continue;
            };
            let fits = match self.packed.find(tensor) {
                Some(other) => other.field == PackedField::Data && other.number == packed.number,
                None => self.rank(&tensor.clone())? < rank,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls an operator that may read packed sequences.
    fn read_packed(&mut self, name: &str, arguments: &Arguments) -> Result<Datum> {
        self.packed.readers += 1;
        let result = self.operator(name, arguments.clone());
        self.packed.readers -= 1;
        result
    }
}

/// Message of the assertion of [`Importer::pad_packed`].
const LENGTH_MISMATCH: &str = "the longest sequence is shorter than the padded input: pass total_length to pad_packed_sequence, or cut the \
    input to its longest sequence";

impl PackedTensors {
    /// Finds the record of a tensor, by its storage.
    fn find(&self, tensor: &TensorRef) -> Option<&PackedTensor> {
        let mut tensors = self.tensors.iter();
        tensors.find(|packed| Rc::ptr_eq(&packed.tensor.storage(), &tensor.storage()))
    }

    /// Finds the record of a value, if it is a tensor.
    fn find_datum(&self, datum: &Datum) -> Option<&PackedTensor> {
        match datum {
            Datum::Tensor(tensor) => self.find(tensor),
            _ => None,
        }
    }

    /// The first packed tensor among arguments, including those within lists.
    fn first_among(&self, arguments: &Arguments) -> Option<PackedTensor> {
        if self.tensors.is_empty() {
            return None;
        }
        let named = arguments.named.iter().map(|(_, value)| value);
        let mut all = arguments.positional.iter().chain(named);
        all.find_map(|argument| match argument.items() {
            Some(items) => items.iter().find_map(|item| self.find_datum(item).cloned()),
            None => self.find_datum(argument).cloned(),
        })
    }

    /// Records the result of an operator, or the first of several results, as a tensor of a packed sequence. `packed`
    /// gives the field and the packed sequence.
    fn add(&mut self, result: &Datum, packed: PackedTensor) {
        let first = result.items().and_then(|items| items.into_iter().next());
        if let Datum::Tensor(tensor) = first.as_ref().unwrap_or(result)
            && self.find(tensor).is_none()
        {
            let tensor = tensor.clone();
            self.tensors.push(PackedTensor { tensor, ..packed });
        }
    }
}

/// True for the known integer 0.
fn is_zero(datum: &Datum) -> bool {
    matches!(datum, Datum::Number(ScriptNumber::Int(dim)) if dim.as_const() == Some(0))
}

/// The error for a use of a packed sequence that depends on its sizes. `name` is the operator.
fn refusal(name: &str) -> Error {
    let message = format!("{name} on a packed sequence, whose sizes depend on values");
    Error::unsupported(message).help(
        "between pack_padded_sequence and pad_packed_sequence, call recurrent layers and functions of single elements only",
    )
}
