"""Record a PyTorch model once, replay it without PyTorch ever after.

A recorded case is a folder that holds everything a replay needs:

    cases/models/my_net/
      model.pt           the network as torch.jit.save writes it
      model.pt2          the same by torch.export (only if asked for)
      io0.safetensors    tensors of the first input set: in0, in1 …, out0, out1 …
      io1.safetensors    … of the second
      case.json          names, value trees, tolerances
      gradients.safetensors  gradients of inputs and parameters (only if asked for)

Commit the folder, and a machine without Python replays it: `onionskin test cases`.

From Python, where the model is at hand:

    from record import record

    record(net, (image,), "cases/models", name="my_net",
           more_inputs={"batch 3": (torch.randn(3, 1, 28, 28),)})

From a shell, for an archive or for a function that builds the model:

    python record.py net.pt --name my_net --out cases/models \\
        --inputs 'f32[1, 3, 224, 224]' --more 'batch 3' 'f32[3, 3, 224, 224]'
    python record.py my_package.models:build --name my_net --out cases/models

The expected outputs are what the eager module gives on the CPU; an archive has only itself to go by.
The recorder refuses a trace that does not give these outputs for every set: what a trace got wrong
must not become the reference. With the eager module at hand it also calls both with negated inputs,
zeros and other sizes, and warns of a trace that gives something else there, with the module to blame.
Paths of this machine are cut out of the archives' debug records; what stays is relative to the
working directory or to the package folder, and PyTorch can save the archive again.

Needs torch and safetensors, and the files record_gradients.py, record_paths.py and record_probes.py beside this one.
"""

import argparse
import ast
import collections
import copy
import importlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import warnings
import zipfile

import torch
from safetensors.torch import save

from record_gradients import write_beside
from record_paths import UnknownDebugRecord, without_paths
from record_probes import FROZEN, blamed, call, compare, difference, leaves, one_line, probe

RTOL, HALF_RTOL = 1e-3, 2e-2
"""Relative tolerances of a model's outputs; half precision needs the second."""

ATOL, HALF_ATOL = 1e-4, 2e-2
"""Absolute tolerances, as a part of the largest expected output."""

HALVES = (torch.float16, torch.bfloat16)


class RecordError(Exception):
    """The case can't be recorded faithfully; the message says why."""


def record(model, inputs, out_dir, *, name, more_inputs=(), method="trace", export=False, label=None,
           stateful=False, dynamic=None, prepare=None, group="own", source="seeded random weights", probes=True,
           gradients=False):
    """Writes `<out_dir>/<name>/` and returns its path.

    model        an nn.Module, a function of tensors, or a traced or scripted module
    inputs       the arguments of one call, as a tuple; the first set, and what tracing sees
    more_inputs  further sets: a list of tuples, or a dict from label to tuple
    method       "trace" or "script": how to make an archive of an eager module
    export       True: also write model.pt2 by torch.export, with dynamic sizes if torch.export takes them
    label        label of the first set
    stateful     True: a call changes the module's attributes; the sets are to be run in order on one instance
    prepare      what is done to the archived module before it is saved, e.g. torch.jit.freeze
    dynamic      what varies between the sets, in words, e.g. ["batch", "length"]
    group        a word to sort cases by
    source       where the weights come from, in words
    probes       False: don't try other inputs than these
    gradients    True: also write gradients.safetensors, for `onionskin test CASES --gradients CASES`
    """
    if isinstance(model, torch.nn.Module):
        model.eval()
    eager = copy.deepcopy(model) if stateful else model
    archived, kind = archive_of(model, _arguments(inputs), method, check=not stateful)
    if stateful:
        archived.load_state_dict(eager.state_dict())  # tracing called the module once
    archived = prepare(archived) if prepare else archived
    sets = [(label or ("traced inputs" if kind == "trace" else "first"), _arguments(inputs))]
    sets += labelled(more_inputs).items()

    # A partly written case must not appear among the others: it is moved there when it is complete.
    with tempfile.TemporaryDirectory() as made:
        _write_case(pathlib.Path(made), eager, archived, kind, sets, name=name, export=export, stateful=stateful,
                    dynamic=dynamic, group=group, source=source)
        if probes and not stateful and not isinstance(model, torch.jit.ScriptModule):
            _warn(name, eager, torch.jit.load(f"{made}/model.pt"), sets[0][1])
        if gradients:
            write_beside(pathlib.Path(made))
        folder = pathlib.Path(out_dir) / name
        folder.mkdir(parents=True, exist_ok=True)
        for stale in [*folder.glob("io*.safetensors"), *folder.glob("model.pt2"), *folder.glob("gradients.safetensors")]:
            stale.unlink()
        for file in pathlib.Path(made).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def _write_case(folder, eager, archived, kind, sets, *, name, export, stateful, dynamic, group, source):
    case = {
        "name": name,
        "group": group,
        "kind": kind,
        "torch": torch.__version__.split("+")[0],
        "source": source,
        "parameters": sum(p.numel() for p in archived.parameters()),
        "buffers": sum(b.numel() for b in archived.buffers()),
        "file_bytes": save_archive(archived, folder / "model.pt"),
        "stateful": stateful,
        "dynamic": list(dynamic) if dynamic else ["shapes or values"] if len(sets) > 1 else [],
        "sets": [],
        "aten": count_operators(archived),
    }

    replayed = torch.jit.load(str(folder / "model.pt"))
    exported = Exported(name, eager, sets[0][1]) if export else None  # before calls change its state
    for index, (label, args) in enumerate(sets):
        expected = _expected(f"set {label!r} of {name}", eager, args)
        tensors = {}
        entry = {
            "label": label,
            "file": f"io{index}.safetensors",
            "inputs": [value_tree(arg, "in", tensors) for arg in args],
            "output": value_tree(expected, "out", tensors),
        }
        tolerance_of = _tolerances(archived, args)
        entry |= tolerance_of(expected)
        why = compare(replayed, args, expected, entry)
        if why:
            where = "" if eager is archived else f", first in {blamed(eager, replayed, sets[0][1], args, tolerance_of)}"
            raise RecordError(f"set {label!r} of {name}: {why}{where}. {FROZEN}, or leave out the set.")
        if exported:
            exported.compare(args, expected, entry)
        entry["f64_error"] = None if stateful else _f64_error(eager, args, expected)
        (folder / entry["file"]).write_bytes(save(tensors))
        case["sets"].append(entry)

    if exported:
        case["pt2"] = exported.save(folder / "model.pt2")
    (folder / "case.json").write_text(json.dumps(case, indent=1, allow_nan=False) + "\n")


def _warn(name, eager, replayed, example):
    """Print on standard error for which other inputs the archive differs from the model."""
    found = probe(eager, replayed, example, _tolerances(replayed, example))
    for line in found:
        print(f"record: warning: {name}: {line}", file=sys.stderr)
    if found:
        print(f"record: the case is written; it holds for its own sets. {FROZEN}", file=sys.stderr)


def _expected(what, model, args):
    try:
        return call(model, args)
    except RuntimeError as error:
        who = "archive" if isinstance(model, torch.jit.ScriptModule) else "model"
        raise RecordError(f"{what}: the {who} refuses it: {one_line(error)}") from error


def archive_of(model, args, method="trace", check=True):
    """Return the module to save, and whether it is a "trace" or a "script"."""
    if isinstance(model, torch.jit.ScriptModule):
        traced = isinstance(model, torch.jit.TracedModule) or type(model).__name__ == "TopLevelTracedModule"
        return model, "trace" if traced or getattr(model, "_from_trace", False) else "script"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        if method == "script":
            return _as_module(torch.jit.script(model)), "script"
        if method != "trace":
            raise RecordError(f"method = {method!r}: 'trace' or 'script'")
        # A strict trace rejects dicts as outputs; replaying every set finds the mistakes that strictness would find.
        example = copy.deepcopy(args)
        return _as_module(torch.jit.trace(model, example, check_trace=check, strict=False)), "trace"


def _as_module(archived):
    """Return a scripted or traced function as a module: saved functions are modules."""
    if isinstance(archived, torch.jit.ScriptModule):
        return archived
    buffer = io.BytesIO()
    torch.jit.save(archived, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def save_archive(archived, path):
    """Save without this machine's paths; return the size in bytes."""
    buffer = io.BytesIO()
    torch.jit.save(archived, buffer)
    pathlib.Path(path).write_bytes(without_paths(buffer.getvalue()))
    return os.path.getsize(path)


def count_operators(archived):
    """Count the operators in the inlined graph, including its blocks."""
    counts = collections.Counter()

    def visit(block):
        for node in block.nodes():
            if node.kind() != "prim::Constant":
                counts[node.kind()] += 1
            for inner in node.blocks():
                visit(inner)

    visit(archived.inlined_graph)
    return dict(sorted(counts.items()))


def value_tree(value, prefix, tensors):
    """Return a value as JSON for case.json; tensors are added to `tensors` as `<prefix>0`, `<prefix>1` …"""
    if isinstance(value, torch.Tensor):
        key = f"{prefix}{sum(name.startswith(prefix) for name in tensors)}"
        tensors[key] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": key, "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if value is None:
        return {"none": True}
    for kind, key in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
        if isinstance(value, kind):
            return {key: value}
    if isinstance(value, dict):
        return {"dict": {str(key): value_tree(item, prefix, tensors) for key, item in value.items()}}
    if isinstance(value, (tuple, list)):
        key = "tuple" if isinstance(value, tuple) else "list"
        return {key: [value_tree(item, prefix, tensors) for item in value]}
    raise RecordError(f"no place in a case for a {type(value).__name__}")


def labelled(more_inputs):
    """Return input sets by label; the sets of a list are labelled by their shapes."""
    if isinstance(more_inputs, dict):
        return {label: _arguments(args) for label, args in more_inputs.items()}
    sets = {}
    for args in map(_arguments, more_inputs):
        label, again = _describe(args), sum(key.split(" (")[0] == _describe(args) for key in sets)
        sets[f"{label} ({again + 1})" if again else label] = args
    return sets


def _arguments(inputs):
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _describe(args):
    return ", ".join(
        "x".join(map(str, leaf.shape)) or "scalar" if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves(args)
    )


def _tolerances(archived, args):
    """Return the tolerance of an output of a call with these arguments."""
    half = any(t.dtype in HALVES for t in [*archived.parameters(), *_tensors(args)])
    return lambda output: _tolerance(_tensors(output), half)


def _tolerance(outputs, half):
    half = half or any(t.dtype in HALVES for t in outputs)
    outputs = [t for t in outputs if t.is_floating_point()]
    finite = [t[t.isfinite()].abs().max().item() for t in outputs if t.isfinite().any()]
    largest = max(finite, default=1.0)
    return {"rtol": HALF_RTOL if half else RTOL, "atol": _short(largest * (HALF_ATOL if half else ATOL))}


def _tensors(value):
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def _f64_error(model, args, expected):
    """Return the distance of the expected outputs from a float64 call; None if that can't be computed."""

    def widen(value):
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value.clone()
        if isinstance(value, (tuple, list)):
            return type(value)(widen(item) for item in value)
        return {key: widen(item) for key, item in value.items()} if isinstance(value, dict) else value

    try:
        double = copy.deepcopy(model)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(double, torch.nn.Module):
                double.double()
            exact = leaves(double(*widen(args)))
        distance = largest = 0.0
        for e, x in zip(leaves(expected), exact, strict=True):
            if isinstance(e, torch.Tensor) and e.is_floating_point():
                if e.dtype != torch.float32 or x.dtype != torch.float64:
                    return None
                mask = e.isfinite() & x.isfinite()
                if mask.any():
                    distance = max(distance, (e.double() - x)[mask].abs().max().item())
                    largest = max(largest, x[mask].abs().max().item())
    except Exception:  # whatever a model does with float64 is no fault of the case
        return None
    return {"max_abs": _short(distance), "max_rel_to_largest": _short(distance / largest if largest else 0.0)}


class Exported:
    """The program of torch.export beside an archive. Its calls are those of one instance, like the model's."""

    def __init__(self, name, model, args):
        if isinstance(model, torch.jit.ScriptModule):
            raise RecordError("model.pt2 needs the eager module, not an archive of it")
        if not isinstance(model, torch.nn.Module):
            raise RecordError("model.pt2 needs an nn.Module, not a function")
        self.name, self.taken = name, []
        program = _program(name, copy.deepcopy(model), args)  # a program shares its tensors with the module
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        self.bytes = without_paths(buffer.getvalue())
        ops = collections.Counter(str(n.target) for n in program.graph.nodes if n.op == "call_function")
        self.ops = dict(sorted(ops.items()))
        self.module = program.module()

    def compare(self, args, expected, tolerance):
        """Remember whether the program takes the arguments. If it does, it must give the model's results."""
        try:
            got = call(self.module, args)
        except Exception:  # guards raise errors of several kinds
            self.taken.append(False)
            return
        why = difference(got, expected, tolerance)
        if why:
            raise RecordError(f"{self.name}: the export differs from the model: {why}")
        self.taken.append(True)

    def save(self, path):
        """Write the program, and return its entry of case.json. "dynamic" says whether it takes the sizes of all sets."""
        if not self.taken[0]:
            raise RecordError(f"{self.name}: the export refuses the inputs that it was made for")
        path.write_bytes(self.bytes)
        return {"file": path.name, "bytes": len(self.bytes), "dynamic": all(self.taken), "ops": self.ops}


def _program(name, model, args):
    """Export a module with every size dynamic, or, if torch.export can't, with those of the arguments."""
    auto = getattr(torch.export.Dim, "AUTO", None)  # PyTorch 2.5 has it
    if auto is not None:
        shapes = torch.utils._pytree.tree_map(
            lambda leaf: dict.fromkeys(range(leaf.dim()), auto) if isinstance(leaf, torch.Tensor) else None, args)
        try:
            return torch.export.export(model, copy.deepcopy(args), dynamic_shapes=shapes)
        except Exception as error:  # torch.export raises what it meets
            print(f"record: warning: {name}: model.pt2 takes the sizes of the first set only: {one_line(error)}",
                  file=sys.stderr)
    return torch.export.export(model, copy.deepcopy(args))


def _short(number):
    return float(f"{number:.3g}")


# Command line

DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}


def parse_input(text, generator):
    """`f32[1, 3]` (normal numbers), `i64[2, 7]<100` (0 to 99), or a Python literal."""
    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\](?:<(\d+))?", text.strip())
    if not match:
        return ast.literal_eval(text)
    if match[1] not in DTYPES:
        raise RecordError(f"{text}: dtype {match[1]!r}; known are {', '.join(DTYPES)}")
    dtype, shape = DTYPES[match[1]], [int(size) for size in match[2].split(",") if size.strip()]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    below = 2 if dtype == torch.bool else int(match[3] or 10)
    return torch.randint(0, below, shape, generator=generator).to(dtype)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Record a PyTorch model as a case for `onionskin test`.")
    parser.add_argument("model", help="an archive (net.pt) or package.module:function; the function returns the model, "
                        "or (model, inputs), or (model, inputs, more_inputs)")
    parser.add_argument("--name", required=True, help="name of the case: its folder")
    parser.add_argument("--out", required=True, help="where the folder goes, e.g. cases/models")
    parser.add_argument("--inputs", nargs="+", metavar="SPEC", help="f32[1, 3, 8, 8], i64[2, 7]<100, or a Python literal")
    parser.add_argument("--more", nargs="+", action="append", default=[], metavar="LABEL SPEC",
                        help="a further input set: its label and its inputs; may be repeated")
    parser.add_argument("--method", choices=("trace", "script"), default="trace")
    parser.add_argument("--export", action="store_true", help="also write model.pt2")
    parser.add_argument("--gradients", action="store_true", help="also write the gradients of inputs and parameters")
    parser.add_argument("--no-probes", action="store_true", help="don't try negated, zero and resized inputs on model and trace")
    parser.add_argument("--stateful", action="store_true", help="calls change the module; replay them in order")
    parser.add_argument("--seed", type=int, default=0, help="for the inputs and for a function's random weights")
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    inputs, more = None, {}
    if pathlib.Path(options.model).is_file():
        with zipfile.ZipFile(options.model) as archive:
            traced = any(name.endswith("/traced_inputs.pkl") for name in archive.namelist())
        model = torch.jit.load(options.model, map_location="cpu")
        model._from_trace = traced
    else:
        module, _, function = options.model.partition(":")
        if not function:
            parser.error(f"{options.model}: neither a file nor package.module:function")
        sys.path.insert(0, os.getcwd())
        model = getattr(importlib.import_module(module), function)()
        if isinstance(model, tuple):
            model, inputs, *rest = model
            more = labelled(rest[0] if rest else {})
    if options.inputs:
        inputs = tuple(parse_input(text, generator) for text in options.inputs)
    if inputs is None:
        parser.error("no inputs: give --inputs, or let the function return them")
    more |= {label: tuple(parse_input(text, generator) for text in specs) for label, *specs in options.more}

    try:
        folder = record(model, inputs, options.out, name=options.name, more_inputs=more, method=options.method,
                        export=options.export, stateful=options.stateful, probes=not options.no_probes, gradients=options.gradients)
    except (RecordError, UnknownDebugRecord) as error:
        sys.exit(f"record: {error}")
    print(f"{folder}: {1 + len(more)} input sets, {sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
