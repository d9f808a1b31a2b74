"""Record PyTorch's gradients of recorded cases, for `onionskin test CASES --gradients OUT`.

    python record_gradients.py ../cases OUT [--only PATTERN]

For each call the loss is the sum of products of all elements of its float outputs with fixed random numbers. One
file for each operator, program and model, `OUT/ops/add.safetensors`, holds for each call, under its number:

    3/grad_output0     the random numbers for the first float output, and so on
    3/in0              the gradient of the first tensor among the arguments, if that is a float
    3/param/fc.weight  the gradient of a parameter
    3/in0/tolerance    relative and absolute tolerance, wider where PyTorch's own gradient is far from double precision

Of calls that PyTorch cannot differentiate the entry `none` of the file's metadata has the reasons.

`record.py --gradients` writes such a file beside a model that it records: `gradients.safetensors`.

Needs torch and safetensors, and the file record_probes.py beside this one.
"""

import argparse
import fnmatch
import io
import json
import pathlib
import warnings
import zipfile

import torch
from safetensors.torch import load, save_file

from record_probes import leaves

RTOL, ATOL = 1e-4, 1e-5
"""Relative tolerance, and absolute one as a part of the largest gradient (at least of 1)."""

OWN_ERRORS = 4
"""Times that PyTorch's distance from double precision is tolerated."""


class NoGradient(Exception):
    """PyTorch has no gradient of the call; the message says why."""


def cases(folder):
    """Yields kind, name and the calls of each case: number, bytes of the archive, arguments, dtypes of the results."""
    for path in sorted(folder.glob("ops/*.zip")):
        with zipfile.ZipFile(path) as file:
            yield "ops", path.stem, list(operator_calls(file))
    for path in sorted(folder.glob("programs/*.zip")):
        with zipfile.ZipFile(path) as file:
            yield "programs", path.stem, list(set_calls(file.read))
    for path in sorted(folder.glob("models/*/case.json")):
        read = lambda name, folder=path.parent: (folder / name).read_bytes()
        yield "models", path.parent.name, list(set_calls(read))


def operator_calls(file):
    """Yields the calls of an operator in single precision."""
    for name in file.namelist():
        number, _, rest = name.partition("/")
        if rest != "case.json":
            continue
        case = json.loads(file.read(name))
        if case["dtype"] == "float32":
            tensors = load(file.read(f"{number}/io.safetensors"))
            arguments = [tensors[f"in{index}"] for index in range(len(case["inputs"]))]
            yield number, file.read(f"{number}/model.pt"), arguments, result_dtypes(tensors)


def set_calls(read):
    """Yields the calls of a program or model; of a model with states the first."""
    case = json.loads(read("case.json"))
    for index, entry in enumerate(case["sets"][: 1 if case.get("stateful") else None]):
        if "inputs" in entry:
            tensors = load(read(entry["file"]))
            arguments = [value(tree, tensors) for tree in entry["inputs"]]
            yield str(index), read("model.pt"), arguments, result_dtypes(tensors)


def result_dtypes(tensors):
    return {tensor.dtype for name, tensor in tensors.items() if name.startswith("out")}


def value(tree, tensors):
    """Returns an argument from its one-key object in case.json."""
    (kind, content), *_ = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(value(item, tensors) for item in content)
    if kind == "dict":
        return {key: value(item, tensors) for key, item in content.items()}
    return None if kind == "none" else float(content) if kind == "float" else content


def tensors_in(value):
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def mapped(item, function):
    """Returns an argument with a function applied to its tensors."""
    if isinstance(item, torch.Tensor):
        return function(item)
    if isinstance(item, dict):
        return {key: mapped(inner, function) for key, inner in item.items()}
    return type(item)(mapped(inner, function) for inner in item) if isinstance(item, (tuple, list)) else item


def gradients(archive, arguments, dtype=None, chosen=None, expected=None, optimized=False):
    """Returns the random numbers and the gradients of a call; `chosen` names the wanted ones. `dtype` replaces that of floats.
    Where a result has none of the `expected` dtypes, TorchScript's optimisations are on: it promotes some numbers only then."""
    original = arguments
    module = torch.jit.load(io.BytesIO(archive), map_location="cpu")
    if dtype == torch.float64:
        module.double()
    prepared = lambda leaf: leaf.to(dtype if dtype and leaf.is_floating_point() else leaf.dtype, copy=True)
    arguments = [mapped(argument, prepared) for argument in arguments]
    named = [(f"in{index}", leaf) for index, leaf in enumerate(tensors_in(arguments))]
    named += [(f"param/{name}", parameter) for name, parameter in module.named_parameters()]
    is_wanted = lambda name, leaf: leaf.is_floating_point() and (chosen is None or name in chosen)
    wanted = {name: leaf for name, leaf in named if is_wanted(name, leaf)}
    for name, leaf in named:
        leaf.requires_grad_(name in wanted)
    if not wanted:
        raise NoGradient("no argument is a float")
    torch.manual_seed(0)
    # A leaf cannot be written in place, and the gradient of an argument is that before the call.
    arguments = [mapped(argument, lambda leaf: leaf.clone() if leaf.requires_grad else leaf) for argument in arguments]
    with torch.jit.optimized_execution(optimized):
        outputs = tensors_in(module(*arguments))
        if expected is not None and not {leaf.dtype for leaf in outputs} <= expected:
            if optimized:
                raise NoGradient("the results have other dtypes than recorded")
            return gradients(archive, original, dtype, chosen, expected, optimized=True)
        outputs = [leaf for leaf in outputs if leaf.is_floating_point()]
        generator = torch.Generator().manual_seed(1)
        weights = [(torch.rand(leaf.shape, generator=generator) + 0.5).to(leaf.dtype) for leaf in outputs]
        pairs = [(leaf, weight) for leaf, weight in zip(outputs, weights) if leaf.requires_grad]
        if not pairs:
            raise NoGradient("no result depends on a float argument")
        results, cotangents = zip(*pairs)
        found = torch.autograd.grad(results, list(wanted.values()), cotangents, allow_unused=True)
    dense = lambda gradient: gradient.to_dense() if gradient.layout != torch.strided else gradient
    zero = lambda gradient, leaf: torch.zeros_like(leaf) if gradient is None else dense(gradient)
    return weights, {name: zero(gradient, leaf).detach() for (name, leaf), gradient in zip(wanted.items(), found)}


def differentiable(archive, arguments):
    """Returns the names of the arguments that PyTorch has a derivative for, and one reason why it has none for others."""
    names, reason = [], None
    for name in [f"in{index}" for index, leaf in enumerate(tensors_in(arguments)) if leaf.is_floating_point()]:
        try:
            gradients(archive, arguments, chosen=[name])
            names.append(name)
        except NoGradient:
            pass
        except Exception as error:  # PyTorch raises errors of several kinds
            reason = str(error).strip().splitlines()[-1]
    return names, reason


def tolerance(gradient, double):
    """Returns relative and absolute tolerance of a gradient; `double` may be None."""
    finite = gradient[gradient.isfinite()]
    largest = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    own = 0.0
    if double is not None:
        both = gradient.isfinite() & double.isfinite()
        own = (gradient.double() - double)[both].abs().max().item() if both.any() else 0.0
    return torch.tensor([RTOL, max(ATOL * largest, OWN_ERRORS * own)], dtype=torch.float64)


def record(archive, arguments, expected):
    """Returns the tensors of a call; none and the reason if PyTorch has no gradient."""
    chosen = None
    try:
        weights, single = gradients(archive, arguments, expected=expected)
    except NoGradient as error:
        return {}, str(error)
    except Exception as error:  # PyTorch raises errors of several kinds
        chosen, reason = differentiable(archive, arguments)
        if not chosen:
            return {}, reason or str(error)
        weights, single = gradients(archive, arguments, chosen=chosen, expected=expected)
    try:
        double = gradients(archive, arguments, torch.float64, chosen)[1]
    except Exception:  # whatever a call does in double precision is no fault of the case
        double = {}
    tensors = {f"grad_output{index}": weight for index, weight in enumerate(weights)}
    for name, gradient in single.items():
        tensors |= {name: gradient, f"{name}/tolerance": tolerance(gradient, double.get(name))}
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}, None


def write(path, calls):
    """Writes the gradients of calls to a file. Returns how many of the calls PyTorch has gradients of, and has none of."""
    tensors, reasons = {}, {}
    for number, archive, arguments, expected in calls:
        found, reason = record(archive, arguments, expected)
        tensors |= {f"{number}/{key}": tensor for key, tensor in found.items()}
        if reason:
            reasons[number] = reason
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"none": json.dumps(reasons)})
    return len(calls) - len(reasons), len(reasons)


def write_beside(folder):
    """Writes gradients.safetensors into the folder of a recorded model."""
    return write(folder / "gradients.safetensors", list(set_calls(lambda name: (folder / name).read_bytes())))


def main():
    parser = argparse.ArgumentParser(description="Record PyTorch's gradients of recorded cases.")
    parser.add_argument("cases", type=pathlib.Path, help="a folder with ops/, programs/ and models/")
    parser.add_argument("out", type=pathlib.Path, help="the folder to write")
    parser.add_argument("--only", default="*", help="only cases of this name, such as ops/conv*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    recorded = refused = 0
    for kind, name, calls in cases(options.cases):
        if not fnmatch.fnmatch(f"{kind}/{name}", options.only) or not calls:
            continue
        counts = write(options.out / kind / f"{name}.safetensors", calls)
        recorded, refused = recorded + counts[0], refused + counts[1]
    print(f"{options.out}: gradients of {recorded} calls; PyTorch has none of {refused}")


if __name__ == "__main__":
    main()
