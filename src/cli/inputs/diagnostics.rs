//! Errors for wrong inputs. They show the model's signature, the given inputs, and a command that works.

use std::path::Path;

use super::assignment::{AssignedTensor, TensorOrigin};
use super::command_line::CommandLine;
use super::python::{MismatchedInput, fix_commands, rename_command, single_file_names};
use crate::error::{Error, Result};
use crate::ir::Graph;
use crate::item::Item;
use crate::model::{InputMismatch, Model, Signature, SignatureInput};
use crate::tensor::Tensor;

/// Builds the errors for wrong inputs of a model's entry.
pub(super) struct InputDiagnostics<'a> {
    model: &'a Model,
    signature: &'a Signature,
}

impl<'a> InputDiagnostics<'a> {
    pub(super) fn new(model: &'a Model, signature: &'a Signature) -> InputDiagnostics<'a> {
        InputDiagnostics { model, signature }
    }

    /// Builds the arguments of a call from inputs by name. Where types differ from the example's, the model is imported for
    /// them to find out whether it takes them.
    ///
    /// # Errors
    /// Inputs are missing, unknown or given twice, or do not match the model.
    pub(super) fn checked_arguments(&self, assigned: &[AssignedTensor]) -> Result<Vec<Item>> {
        let named = assigned
            .iter()
            .map(|one| (one.name.clone(), one.tensor.clone()));
        let arguments = self.signature.arguments(&named.collect::<Vec<_>>());
        let arguments = arguments.map_err(|error| self.wrong_names(assigned, &error))?;
        let tried = match self.differs(assigned) {
            true => self.try_arguments(&arguments),
            false => Ok(()),
        };
        tried.map_err(|error| self.type_mismatch(assigned, &error))?;
        Ok(arguments)
    }

    /// True if the type of an input differs from the example's.
    fn differs(&self, assigned: &[AssignedTensor]) -> bool {
        let inputs = self.signature.inputs();
        assigned.iter().any(|one| {
            let input = inputs.iter().find(|input| input.name == one.name);
            let example = input.and_then(|input| input.example.as_ref());
            example.is_some_and(|ty| *ty != one.tensor.tensor_type())
        })
    }

    /// Checks that the model can be imported for and called with these arguments.
    fn try_arguments(&self, arguments: &[Item]) -> Result<()> {
        let entry = self.signature.entry();
        let module = self.model.import_method_in_place(entry, Some(arguments))?;
        let graph = module.graph(entry)?;
        let inputs = crate::item::flatten_arguments(&graph_inputs(graph), arguments)?;
        let states = graph.inputs.iter().skip(inputs.len());
        let states: Vec<Vec<usize>> = states
            .map(|id| graph.ty(*id).sizes(&graph.hints))
            .collect::<Result<_>>()?;
        let given = inputs.iter().map(Tensor::shape);
        let shapes: Vec<&[usize]> = given.chain(states.iter().map(Vec::as_slice)).collect();
        graph.bind(&shapes)?;
        graph.check_dtypes(&inputs)
    }

    /// Returns the error for a picture if no input of the model can be one.
    pub(super) fn no_picture_input(&self, path: &Path) -> Error {
        let entry = self.signature.entry();
        let message = format!("{}: no input of {entry} is a picture", path.display());
        let help = "pictures are inputs of 3 or 4 dimensions; give other tensors with -i";
        self.error(&message, &[]).help(help)
    }

    /// Returns the error for more tensors than inputs.
    pub(super) fn too_many(&self, given: &[(&Tensor, &TensorOrigin)]) -> Error {
        let inputs = self.signature.inputs();
        let message = format!(
            "{}, {} takes {}",
            given_count(given.len()),
            self.signature.entry(),
            inputs.len()
        );
        let surplus: Vec<String> = given
            .iter()
            .skip(inputs.len())
            .filter_map(|(_, origin)| match origin {
                TensorOrigin::File(path, None) | TensorOrigin::Picture(path) => {
                    Some(path.display().to_string())
                }
                _ => None,
            })
            .collect();
        let mut command = CommandLine::given();
        surplus.iter().for_each(|file| command.remove(file));
        let help = match (surplus.is_empty(), single_file_names(given)) {
            (true, Some((path, keys))) => {
                let pairs = inputs.iter().zip(&keys);
                let pairs: Vec<(String, String)> = pairs
                    .map(|(input, key)| (input.name.clone(), key.clone()))
                    .collect();
                format!(
                    "keep those that the model takes, under its names:\n  {}\n  {}",
                    rename_command(&path, &pairs),
                    command.with_fixed_file(&path)
                )
            }
            _ => format!("remove the inputs that the model does not take:\n  {command}"),
        };
        self.error(&message, given).help(help)
    }

    /// Returns the error for a file in which only some of the names are inputs.
    pub(super) fn unknown_names_in_file(
        &self,
        path: &Path,
        known: &[String],
        unknown: &[String],
        given: &[(&Tensor, &TensorOrigin)],
    ) -> Error {
        let plural = |names: &[String]| match names.len() {
            1 => "is not an input",
            _ => "are not inputs",
        };
        let message = format!(
            "{}: {} {} of {}",
            path.display(),
            unknown.join(", "),
            plural(unknown),
            self.signature.entry()
        );
        let names = self.signature.names();
        let missing = names.iter().filter(|name| !known.contains(name));
        let kept = known.iter().map(|name| (name.clone(), name.clone()));
        let pairs: Vec<(String, String)> = kept
            .chain(missing.cloned().zip(unknown.iter().cloned()))
            .collect();
        let help = format!(
            "give them the names of the inputs:\n  {}\n  {}",
            rename_command(path, &pairs),
            CommandLine::given().with_fixed_file(path)
        );
        self.error(&message, given).help(help)
    }

    /// Returns the error for names that are missing, unknown or given twice.
    fn wrong_names(&self, assigned: &[AssignedTensor], error: &Error) -> Error {
        let given: Vec<(&Tensor, &TensorOrigin)> = tensors_with_origins(assigned);
        if assigned.is_empty() {
            return self.no_inputs();
        }
        let has = |name: &str| {
            let within = format!("{name}.");
            assigned
                .iter()
                .any(|one| one.name == name || one.name.starts_with(&within))
        };
        let names = self.signature.names();
        let missing: Vec<&String> = names.iter().filter(|name| !has(name)).collect();
        // The second tensor for an input counts as meant for another input.
        let is_taken = |place: usize, one: &AssignedTensor| {
            let mut earlier = assigned.iter().take(place);
            earlier.any(|other| other.name == one.name)
        };
        let unknown: Vec<(bool, &AssignedTensor)> = assigned
            .iter()
            .enumerate()
            .map(|(place, one)| (is_taken(place, one), one))
            .filter(|(is_taken, one)| *is_taken || !self.signature.takes(&one.name))
            .collect();
        let mut command = CommandLine::given();
        let mut why = Vec::new();
        for (place, (is_taken, one)) in unknown.iter().enumerate() {
            why.push(match is_taken {
                true => format!("{} is given twice", one.name),
                false => format!("{} is not an input", one.name),
            });
            if let Some(name) = missing.get(place) {
                command.replace(&format!("{}=", one.name), &format!("{name}="));
            }
        }
        for name in missing.iter().skip(unknown.len()) {
            command.add(&["-i", &format!("{name}={name}.npy")]);
        }
        let told = missing.iter().map(|name| format!("{name} is missing"));
        let why: Vec<String> = told.chain(why).collect();
        if why.is_empty() {
            return self.error(error.message(), &given);
        }
        let help = match missing.len() > unknown.len() {
            true => format!(
                "give every input by its name, or draw those that are missing:\n  {command}\n  {}",
                CommandLine::given().with("--random")
            ),
            false => format!("give every input by its name:\n  {command}"),
        };
        self.error(&why.join("; "), &given).help(help)
    }

    /// Returns the error for a call without inputs.
    fn no_inputs(&self) -> Error {
        let inputs: Vec<SignatureInput> = self
            .signature
            .inputs()
            .into_iter()
            .filter(|input| input.is_required)
            .collect();
        let message = format!(
            "no input is given, {} takes {}",
            self.signature.entry(),
            inputs.len()
        );
        let mut files = CommandLine::given();
        for input in &inputs {
            match inputs.len() {
                1 => files.add(&["-i", &format!("{}.npy", input.name)]),
                _ => files.add(&["-i", &format!("{0}={0}.npy", input.name)]),
            }
        }
        let is_known = inputs.iter().all(|input| input.example.is_some());
        let random = match is_known {
            true => CommandLine::given().with("--random"),
            false => {
                let mut command = CommandLine::given().with("--random");
                for input in inputs.iter().filter(|input| input.example.is_none()) {
                    command.add(&["--shape", &format!("{}=f32[SIZES]", input.name)]);
                }
                command
            }
        };
        let picture = match inputs.as_slice() {
            [input] if is_picture(input) => {
                format!(
                    "\n  {}",
                    CommandLine::given().with("--image").with("photo.jpg")
                )
            }
            _ => String::new(),
        };
        let what = if picture.is_empty() {
            "tensors"
        } else {
            "tensors, a picture"
        };
        let help = format!("give {what}, or random numbers:\n  {files}{picture}\n  {random}");
        self.error(&message, &[]).help(help)
    }

    /// Returns the error for inputs whose types the model refuses. It names mistakes such as a missing batch dimension.
    fn type_mismatch<'b>(&self, assigned: &'b [AssignedTensor], error: &Error) -> Error {
        let (inputs, symbolic) = (self.signature.inputs(), self.symbolic());
        let find = |one: &'b AssignedTensor| {
            let named =
                |list: &[SignatureInput]| list.iter().find(|input| input.name == one.name).cloned();
            let input = named(&inputs)?;
            let known = named(&symbolic).and_then(|known| known.ty);
            let wanted = known.or_else(|| input.example.clone())?;
            let misfit = InputMismatch::find(&wanted, &one.tensor.tensor_type())?;
            Some((one, input, misfit))
        };
        let found: Vec<MismatchedInput> = assigned.iter().filter_map(find).collect();
        let given = tensors_with_origins(assigned);
        if found.is_empty() {
            let told = self.error(error.message(), &given);
            let told = error
                .context()
                .iter()
                .fold(told, |told, frame| told.at(frame));
            return told.help(format!(
                "sizes like those of the example work:\n  {}",
                CommandLine::given().only_random()
            ));
        }
        let mistakes = found.iter().map(|(one, _, misfit)| {
            let mistakes = misfit.mistakes.join("\n  ");
            format!("{} does not fit {}\n  {mistakes}", one.origin, one.name)
        });
        let message = mistakes.collect::<Vec<_>>().join("\n  ");
        let told = self.error(&message, &given);
        let cures = fix_commands(&found);
        let lines = match found.iter().all(|(_, _, misfit)| misfit.is_dtype) {
            true => {
                let how = match cures.is_empty() {
                    true => "let --cast convert it:",
                    false => "let --cast convert it, or do it in Python:",
                };
                let command = CommandLine::given().with("--cast").to_string();
                [vec![how.to_string(), command], cures].concat()
            }
            false if found.iter().all(is_fixable) => {
                let command = fixed_command(&found).to_string();
                [vec!["fix it:".to_string()], cures, vec![command]].concat()
            }
            false => {
                let command = CommandLine::given().only_random().to_string();
                vec!["sizes like those of the example work:".to_string(), command]
            }
        };
        told.help(lines.join("\n  "))
    }

    /// Returns an error with a message, the model's inputs and the given tensors.
    fn error(&self, message: &str, given: &[(&Tensor, &TensorOrigin)]) -> Error {
        let mut text = format!("{message}\n  the model takes:");
        let symbolic = self.symbolic();
        let inputs = self.signature.inputs();
        let width = inputs
            .iter()
            .map(|input| input.name.len())
            .max()
            .unwrap_or(0);
        for input in &inputs {
            let known = symbolic.iter().find(|known| known.name == input.name);
            let ty = known
                .and_then(|known| known.ty.as_ref())
                .or(input.ty.as_ref());
            let shown = ty.map_or("unknown until a call".to_string(), ToString::to_string);
            let traced = input.example.as_ref().map(ToString::to_string);
            let traced = traced.filter(|traced| *traced != shown);
            let traced = traced.map_or(String::new(), |traced| format!("  (example: {traced})"));
            let optional = if input.is_required {
                ""
            } else {
                "  (may be left out)"
            };
            text.push_str(&format!(
                "\n    {:<width$}  {shown}{traced}{optional}",
                input.name
            ));
        }
        if !given.is_empty() {
            text.push_str("\n  given:");
        }
        for (tensor, origin) in given {
            text.push_str(&format!("\n    {}  {origin}", tensor.tensor_type()));
        }
        Error::input(text)
    }

    /// Returns the inputs with symbolic sizes, if the model can be imported for its example.
    fn symbolic(&self) -> Vec<SignatureInput> {
        let entry = self.signature.entry();
        let module = self.model.import_method_in_place(entry, None);
        let graph = module
            .as_ref()
            .ok()
            .and_then(|module| module.graph(entry).ok());
        graph.map_or_else(Vec::new, |graph| Signature::of_graph(graph).inputs())
    }
}

fn graph_inputs(graph: &Graph) -> Vec<crate::ir::NamedTree> {
    match graph.input_trees.is_empty() {
        true => graph.default_inputs(),
        false => graph.input_trees.clone(),
    }
}

fn tensors_with_origins(assigned: &[AssignedTensor]) -> Vec<(&Tensor, &TensorOrigin)> {
    let list = assigned.iter();
    list.map(|one| (&one.tensor, &one.origin)).collect()
}

fn given_count(count: usize) -> String {
    match count {
        1 => "1 input is given".to_string(),
        count => format!("{count} inputs are given"),
    }
}

fn is_picture(input: &SignatureInput) -> bool {
    let sizes = input.example.as_ref().map(|ty| {
        let sizes = ty.shape.iter().map(|dim| dim.as_const().unwrap_or(0));
        sizes.collect::<Vec<_>>()
    });
    matches!(sizes.as_deref(), Some([_, 1 | 3, height, width]) if *height > 1 && *width > 1)
}

/// True if a mismatched input can be fixed by a line of Python or by another `--shape`.
fn is_fixable((one, _, misfit): &MismatchedInput) -> bool {
    one.origin == TensorOrigin::Zeros || !misfit.fix.is_empty()
}

/// Returns the command with fixed files, and with the example's types in place of wrong ones in `--shape`.
fn fixed_command(found: &[MismatchedInput]) -> CommandLine {
    let mut command = CommandLine::given();
    for (one, input, _) in found {
        match (&one.origin, &input.example) {
            (TensorOrigin::File(path, _), _) => command = command.with_fixed_file(path),
            (TensorOrigin::Zeros, Some(example)) => {
                command.replace(&one.tensor.tensor_type().to_string(), &example.to_string());
            }
            _ => {}
        }
    }
    command
}
