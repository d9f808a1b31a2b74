//! Packed sequences, whose sizes depend on values.
//!
//! The dictionary's operators for packed sequences (`aten`'s `packed`) work on tensors with room for every sequence at full
//! length, which are longer than PyTorch's. Only operators that treat every row in one way may read them, and only queries
//! that have PyTorch's answers are answered.

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
    known: Vec<PackedTensor>,
    /// Number of operators in progress that may read them.
    readers: usize,
    /// Number of packed sequences so far.
    count: usize,
}

/// A tensor of a packed sequence.
#[derive(Clone)]
struct PackedTensor {
    tensor: TensorRef,
    part: PackedPart,
    /// Number of the packed sequence.
    number: usize,
    /// Number of sequences in it.
    batch: Dim,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PackedPart {
    Data,
    BatchSizes,
}

/// Operators that return their tensor, a copy or a cast of it.
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
            Some(part) => {
                let result = self.read_packed(name, arguments)?;
                let packed = PackedTensor { part, ..packed };
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

    fn pack(&mut self, name: &str, arguments: &Arguments) -> Result<Datum> {
        let result = self.read_packed(name, arguments)?;
        let lengths = match arguments.positional.get(1) {
            Some(Datum::Tensor(lengths)) => self.ty(&lengths.clone())?.shape,
            _ => Vec::new(),
        };
        let batch = lengths.first().cloned().unwrap_or(Dim::ZERO);
        self.packed.count += 1;
        let parts = [PackedPart::Data, PackedPart::BatchSizes];
        for (item, part) in result.items().iter().flatten().zip(parts) {
            if let Datum::Tensor(tensor) = item {
                let packed = PackedTensor {
                    tensor: tensor.clone(),
                    part,
                    number: self.packed.count,
                    batch: batch.clone(),
                };
                self.packed.add(item, packed);
            }
        }
        Ok(result)
    }

    /// Answers size queries by the number of sequences, or by a number that the graph counts.
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
        Ok(match (packed.part, name, rest) {
            (PackedPart::BatchSizes, "size", [_])
            | (PackedPart::BatchSizes, "len" | "numel", []) => {
                Some(self.longest_sequence(&tensor)?)
            }
            // Every sequence has a first step.
            (PackedPart::BatchSizes, "select", [axis, index])
                if is_zero(axis) && is_zero(index) =>
            {
                Some(Datum::Tensor(self.host_tensor(HostNumber {
                    number: ScriptNumber::Int(packed.batch.clone()),
                    dtype: DType::I64,
                    wrapped: false,
                })))
            }
            (PackedPart::Data, "size", [Datum::Number(axis)]) => {
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

    fn rank(&mut self, tensor: &TensorRef) -> Result<i64> {
        self.packed.readers += 1;
        let ty = self.ty(tensor);
        self.packed.readers -= 1;
        Ok(i64::try_from(ty?.rank()).unwrap_or(i64::MAX))
    }

    /// The number of steps of the longest sequence, which the graph counts.
    fn longest_sequence(&mut self, batch_sizes: &TensorRef) -> Result<Datum> {
        self.packed.readers += 1;
        let read = self.read(batch_sizes);
        self.packed.readers -= 1;
        let builder = self.builder();
        let steps = builder.value(read?).gt(0).to(DType::I64).sum(&[0], false);
        builder.check()?;
        Ok(Datum::Dynamic(NumberKind::Int, self.new_tensor(steps.id())))
    }

    /// Pads packed sequences. PyTorch pads to the longest sequence, unless the call gives a length. A graph pads to the
    /// number of steps that there is room for, and checks that this is the wanted length.
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

    /// Number of steps that there is room for.
    fn padded_steps(&mut self, batch_sizes: &TensorRef) -> Result<Dim> {
        self.packed.readers += 1;
        let ty = self.ty(batch_sizes);
        self.packed.readers -= 1;
        Ok(ty?.shape.first().cloned().unwrap_or(Dim::ZERO))
    }

    /// The part of a packed sequence that the result of an operator is; none for operators that must not read packed
    /// sequences.
    fn packed_result(
        &mut self,
        name: &str,
        packed: &PackedTensor,
        arguments: &Arguments,
    ) -> Result<Option<PackedPart>> {
        let part = |index: usize| {
            let argument = self.packed.find_datum(arguments.positional.get(index)?)?;
            (argument.number == packed.number).then_some(argument.part)
        };
        let (first, second) = (part(0), part(1));
        let others = arguments.positional.get(1..).unwrap_or_default();
        let alone = others
            .iter()
            .all(|other| self.packed.find_datum(other).is_none());
        let is_data = first == Some(PackedPart::Data);
        let is_recurrent = is_data
            && second == Some(PackedPart::BatchSizes)
            && RECURRENT_OPERATORS.contains(&name);
        let is_embedding = name == "embedding" && second == Some(PackedPart::Data);
        let is_rowwise = is_data && alone && ROWWISE_OPERATORS.contains(&name);
        if COPY_OPERATORS.contains(&name) {
            return Ok(first);
        }
        let of_data = packed.part == PackedPart::Data;
        let keeps = is_rowwise || of_data && self.is_by_element(name, packed, arguments)?;
        Ok((is_recurrent || is_embedding || keeps).then_some(PackedPart::Data))
    }

    /// True for elementwise operators on packed data whose other tensors are data of that packed sequence, or equal for
    /// every row.
    fn is_by_element(
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
                Some(other) => other.part == PackedPart::Data && other.number == packed.number,
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

const LENGTH_MISMATCH: &str = "the longest sequence is shorter than the padded input: pass total_length to pad_packed_sequence, or cut the \
    input to its longest sequence";

impl PackedTensors {
    fn find(&self, tensor: &TensorRef) -> Option<&PackedTensor> {
        let mut known = self.known.iter();
        known.find(|packed| Rc::ptr_eq(&packed.tensor.storage(), &tensor.storage()))
    }

    fn find_datum(&self, datum: &Datum) -> Option<&PackedTensor> {
        match datum {
            Datum::Tensor(tensor) => self.find(tensor),
            _ => None,
        }
    }

    /// The first packed tensor among arguments, including those within lists.
    fn first_among(&self, arguments: &Arguments) -> Option<PackedTensor> {
        if self.known.is_empty() {
            return None;
        }
        let named = arguments.named.iter().map(|(_, value)| value);
        let mut all = arguments.positional.iter().chain(named);
        all.find_map(|argument| match argument.items() {
            Some(items) => items.iter().find_map(|item| self.find_datum(item).cloned()),
            None => self.find_datum(argument).cloned(),
        })
    }

    /// Marks a tensor, or the first of several.
    fn add(&mut self, result: &Datum, packed: PackedTensor) {
        let first = result.items().and_then(|items| items.into_iter().next());
        if let Datum::Tensor(tensor) = first.as_ref().unwrap_or(result)
            && self.find(tensor).is_none()
        {
            let tensor = tensor.clone();
            self.known.push(PackedTensor { tensor, ..packed });
        }
    }
}

fn is_zero(datum: &Datum) -> bool {
    matches!(datum, Datum::Number(ScriptNumber::Int(dim)) if dim.as_const() == Some(0))
}

fn refusal(name: &str) -> Error {
    let message = format!("{name} on a packed sequence, whose sizes depend on values");
    Error::unsupported(message).help(
        "between pack_padded_sequence and pad_packed_sequence, call recurrent layers and functions of single elements only",
    )
}
