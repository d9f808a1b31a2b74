use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::{Operand, Rules};
use crate::dim::{Bindings, Dim};
use crate::error::{Error, Result};
use crate::kernel::host::HostFunction;
use crate::shape::TensorType;
use crate::symbols::Symbols;
use crate::tensor::Tensor;

/// A user-defined operator, computed by a shader or by a host function that is registered under its name.
///
/// It must be deterministic and free of side effects: passes may remove it or compute it once for two uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Custom {
    /// The name under which its host function is registered.
    pub function: String,
    /// Types of the results, in the sizes of the graph.
    pub results: Vec<TensorType>,
    /// The shader that a device runs. Without one, the device passes the operands to the host function and reads its results
    /// back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shader: Option<Shader>,
}

/// A user-defined compute shader.
///
/// The WGSL follows the declarations of the buffers: operands are arrays `x0`, `x1` …, results `y0`, `y1` …, and
/// `x0_size(axis)` is a size of an operand. The entry point is `main`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shader {
    /// The source.
    pub wgsl: String,
    /// Workgroups along x, y and z, in the sizes of the graph.
    pub workgroups: [Dim; 3],
}

/// Computes the types of results from those of operands.
type ResultTypesFn = dyn Fn(&[TensorType]) -> Result<Vec<TensorType>> + Send + Sync;
/// Computes the number of workgroups from the types of operands.
type WorkgroupsFn = dyn Fn(&[TensorType]) -> [Dim; 3] + Send + Sync;

/// The rules by which a call of a user-defined operator becomes a node.
#[derive(Clone)]
pub struct CustomRules {
    /// Types of the results.
    pub types: Arc<ResultTypesFn>,
    /// WGSL source, and its workgroups.
    pub shader: Option<(String, Arc<WorkgroupsFn>)>,
    /// Name of the operator that computes the gradients of the operands.
    pub gradient: Option<String>,
}

impl CustomRules {
    /// The operator `name` on operands of these types.
    ///
    /// # Errors
    /// The operator refuses the types.
    pub fn operator(&self, name: &str, operands: &[TensorType]) -> Result<Custom> {
        let shader = self.shader.as_ref().map(|(wgsl, workgroups)| Shader {
            wgsl: wgsl.clone(),
            workgroups: workgroups(operands),
        });
        Ok(Custom {
            function: name.to_string(),
            results: (self.types)(operands)?,
            shader,
        })
    }
}

static RULES: RwLock<BTreeMap<String, CustomRules>> = RwLock::new(BTreeMap::new());

/// Registers the rules of custom operators with this name, for the whole process. The import of a program that calls the operator
/// needs them.
pub fn register_rules(name: &str, rules: CustomRules) {
    let mut registered = RULES.write().unwrap_or_else(PoisonError::into_inner);
    registered.insert(name.to_string(), rules);
}

/// The registered rules of an operator, `mine::gelu`.
pub fn rules_of(name: &str) -> Option<CustomRules> {
    let registered = RULES.read().unwrap_or_else(PoisonError::into_inner);
    registered.get(name).cloned()
}

static REGISTERED: RwLock<BTreeMap<String, HostFunction>> = RwLock::new(BTreeMap::new());

/// Registers the host function of custom operators with this name, for the whole process. A loaded graph needs it before it
/// runs.
pub fn register(name: &str, function: HostFunction) {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    registered.insert(name.to_string(), function);
}

impl Custom {
    /// The registered host function.
    ///
    /// # Errors
    /// There is none with this name; the message lists those that exist.
    pub fn host(&self) -> Result<HostFunction> {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        let found = registered.get(&self.function).cloned();
        found.ok_or_else(|| {
            let names: Vec<&str> = registered.keys().map(String::as_str).collect();
            let name = &self.function;
            let error = Error::unsupported(format!("no host function is registered as {name}"));
            error.help(format!(
                "call `onionskin::op::register({name:?}, ..)` before the model runs; registered are {names:?}"
            ))
        })
    }

    /// Replaces the sizes in results and workgroup counts.
    pub(super) fn map_sizes(&mut self, map: &mut impl FnMut(&Dim) -> Dim) {
        let shapes = self.results.iter_mut().flat_map(|ty| &mut ty.shape);
        let counts = self
            .shader
            .iter_mut()
            .flat_map(|shader| &mut shader.workgroups);
        shapes.chain(counts).for_each(|dim| *dim = map(dim));
    }
}

impl Rules for Custom {
    fn infer(&self, symbols: &Symbols, found: &[Operand]) -> Result<Vec<TensorType>> {
        if found.iter().any(|operand| operand.value().is_none()) {
            return Err(Error::operator("operands of a custom operator are tensors"));
        }
        let resolve = |ty: &TensorType| {
            let shape = ty.shape.iter().map(|dim| symbols.resolve(dim));
            TensorType::new(ty.dtype, shape)
        };
        Ok(self.results.iter().map(resolve).collect())
    }

    fn eval(&self, found: &[Tensor], bindings: &Bindings) -> Result<Vec<Tensor>> {
        let sizes = self
            .results
            .iter()
            .map(|ty| Ok((ty.dtype, ty.sizes(bindings)?)));
        self.host()?
            .call(found, &sizes.collect::<Result<Vec<_>>>()?)
    }
}
