//! Upgrades of operators that changed their meaning, like PyTorch's upgraders. The version of an archive says which meaning
//! a call has.

use crate::error::Result;

use super::Importer;
use super::call::Arguments;
use super::datum::Datum;
use super::number::ScriptNumber;
use super::operator::named_argument;

/// Number of steps of `linspace` and `logspace` in old archives, if none is given.
const DEFAULT_STEPS: i64 = 100;

impl Importer<'_> {
    /// Rewrites a call to the form that current archives have.
    pub(super) fn upgraded(&mut self, name: &str, mut arguments: Arguments) -> Result<Arguments> {
        match (name, self.script.operator_version()) {
            ("aten::div" | "aten::div_", ..4) if self.divides_integers(&arguments)? => {
                let mode = Datum::str("trunc");
                arguments.named.push(("rounding_mode".into(), mode));
            }
            ("aten::full", ..5) if is_none(named_argument(&arguments, "dtype").as_ref()) => {
                if let Some(Datum::Number(fill)) = arguments.positional.get_mut(1) {
                    *fill = fill.to_float();
                }
            }
            ("aten::linspace", ..8) | ("aten::logspace", ..9) => set_default_steps(&mut arguments),
            _ => {}
        }
        Ok(arguments)
    }

    /// True for a tensor of integers divided by a tensor of integers or an integer.
    fn divides_integers(&mut self, arguments: &Arguments) -> Result<bool> {
        let [Datum::Tensor(tensor), other] = arguments.positional.as_slice() else {
            return Ok(false);
        };
        let is_float = match other {
            Datum::Tensor(other) => self.ty(other)?.dtype.is_float(),
            Datum::Number(number) => number.is_float(),
            _ => true,
        };
        Ok(!is_float && !self.ty(tensor)?.dtype.is_float())
    }
}

/// True for an argument that is absent or `None`.
fn is_none(value: Option<&Datum>) -> bool {
    matches!(value, None | Some(Datum::None))
}

/// Sets the argument `steps` if it is absent or `None`.
fn set_default_steps(arguments: &mut Arguments) {
    let steps = Datum::Number(ScriptNumber::int(DEFAULT_STEPS));
    let by_name = arguments.named.iter_mut().find(|(name, _)| name == "steps");
    match (by_name, arguments.positional.get_mut(2)) {
        (_, Some(argument @ Datum::None)) => *argument = steps,
        (Some((_, argument @ Datum::None)), _) => *argument = steps,
        (None, None) => arguments.named.push(("steps".into(), steps)),
        _ => {}
    }
}
