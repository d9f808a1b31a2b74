"""Record a PyTorch model once, replay it without PyTorch ever after.

A recorded case is a folder that holds everything a replay needs:

    cases/models/my_net/
      model.pt           the network as torch.jit.save writes it
      model.pt2          the same by torch.export (only if asked for)
      io0.safetensors    tensors of the first input set: in0, in1 …, out0, out1 …
      io1.safetensors    … of the second
      case.json          names, value trees, tolerances

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
must not become the reference. Paths of this machine are cut out of the archives' debug records;
what stays is relative to the working directory or to the package folder.

Needs torch and safetensors.
"""

import argparse
import ast
import collections
import copy
import importlib
import io
import json
import math
import os
import pathlib
import pickle
import re
import sys
import tempfile
import warnings
import zipfile

import torch
import torch.jit._pickle
from safetensors.torch import save

RTOL, HALF_RTOL = 1e-3, 2e-2
"""Relative tolerances of a model's outputs; half precision needs the second."""

ATOL, HALF_ATOL = 1e-4, 2e-2
"""Absolute tolerances, as a part of the largest expected output."""

HALVES = (torch.float16, torch.bfloat16)


class RecordError(Exception):
    """The case can't be recorded faithfully; the message says why."""


def record(model, inputs, out_dir, *, name, more_inputs=(), method="trace", export=False, label=None,
           stateful=False, dynamic=None, prepare=None, group="own", source="seeded random weights"):
    """Writes `<out_dir>/<name>/` and returns its path.

    model        an nn.Module, a function of tensors, or a traced or scripted module
    inputs       the arguments of one call, as a tuple; the first set, and what tracing sees
    more_inputs  further sets: a list of tuples, or a dict from label to tuple
    method       "trace" or "script": how to make an archive of an eager module
    export       True: also write model.pt2 by torch.export (with the sizes of `inputs` baked in)
    label        label of the first set
    stateful     True: a call changes the module's attributes; the sets are to be run in order on one instance
    prepare      what is done to the archived module before it is saved, e.g. torch.jit.freeze
    dynamic      what varies between the sets, in words, e.g. ["batch", "length"]
    group        a word to sort cases by
    source       where the weights come from, in words
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

    # A case that fails half-way must not lie among the good ones: it moves there when it is whole.
    with tempfile.TemporaryDirectory() as made:
        _write_case(pathlib.Path(made), eager, archived, kind, sets, name=name, export=export, stateful=stateful,
                    dynamic=dynamic, group=group, source=source)
        folder = pathlib.Path(out_dir) / name
        folder.mkdir(parents=True, exist_ok=True)
        for stale in [*folder.glob("io*.safetensors"), *folder.glob("model.pt2")]:
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
    half = any(p.dtype in HALVES for p in archived.parameters())
    for index, (label, args) in enumerate(sets):
        expected = _call(eager, args)
        tensors = {}
        entry = {
            "label": label,
            "file": f"io{index}.safetensors",
            "inputs": [value_tree(arg, "in", tensors) for arg in args],
            "output": value_tree(expected, "out", tensors),
        }
        entry |= _tolerance(tensors, half)
        _check_replay(f"set {label!r} of {name}", _call(replayed, args), expected, entry)
        entry["f64_error"] = None if stateful else _f64_error(eager, args, expected)
        (folder / entry["file"]).write_bytes(save(tensors))
        case["sets"].append(entry)

    if export:
        case["pt2"] = _export(eager, sets[0][1], folder / "model.pt2")
    (folder / "case.json").write_text(json.dumps(case, indent=1, allow_nan=False) + "\n")


def archive_of(model, args, method="trace", check=True):
    """The module to save, and whether it is a "trace" or a "script"."""
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
        # A dict as output is refused by a strict trace; replaying every set catches what strictness would.
        example = copy.deepcopy(args)
        return _as_module(torch.jit.trace(model, example, check_trace=check, strict=False)), "trace"


def _as_module(archived):
    """A scripted or traced function as the module that its saved form is."""
    if isinstance(archived, torch.jit.ScriptModule):
        return archived
    buffer = io.BytesIO()
    torch.jit.save(archived, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def save_archive(archived, path):
    """Saves without this machine's paths; returns the size in bytes."""
    buffer = io.BytesIO()
    torch.jit.save(archived, buffer)
    pathlib.Path(path).write_bytes(without_paths(buffer.getvalue()))
    return os.path.getsize(path)


def count_operators(archived):
    """Operators in the inlined graph and how often, blocks included."""
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
    """A value as case.json writes it; tensors are added to `tensors` as `<prefix>0`, `<prefix>1` …"""
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


def leaves(value):
    """The values that a tree of tuples, lists and dicts holds, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def labelled(more_inputs):
    """Input sets by label; a list's sets are labelled by their shapes."""
    if isinstance(more_inputs, dict):
        return {label: _arguments(args) for label, args in more_inputs.items()}
    sets = {}
    for args in map(_arguments, more_inputs):
        label, again = _describe(args), sum(key.split(" (")[0] == _describe(args) for key in sets)
        sets[f"{label} ({again + 1})" if again else label] = args
    return sets


def _arguments(inputs):
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _call(model, args):
    """One call on copies of the arguments: a module may write into them."""
    with torch.no_grad():
        return model(*copy.deepcopy(args))


def _describe(args):
    return ", ".join(
        "x".join(map(str, leaf.shape)) or "scalar" if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves(args)
    )


def _tolerance(tensors, half):
    outputs = [t for name, t in tensors.items() if name.startswith("out") and t.is_floating_point()]
    half = half or any(t.dtype in HALVES for t in tensors.values())
    finite = [t[t.isfinite()].abs().max().item() for t in outputs if t.isfinite().any()]
    largest = max(finite, default=1.0)
    return {"rtol": HALF_RTOL if half else RTOL, "atol": _short(largest * (HALF_ATOL if half else ATOL))}


def _check_replay(what, got, expected, tolerance):
    got, expected = leaves(got), leaves(expected)
    if len(got) != len(expected):
        raise RecordError(f"{what}: the archive gives {len(got)} values, the model {len(expected)}")
    for index, (g, e) in enumerate(zip(got, expected)):
        if type(g) is not type(e):
            raise RecordError(f"{what}: output {index} is a {type(g).__name__} from the archive, a {type(e).__name__} from "
                              "the model: a trace gives tensors for numbers; leave it out or record with method='script'")
        if isinstance(e, torch.Tensor):
            same = g.dtype == e.dtype and g.shape == e.shape
            exact = not e.is_floating_point()
            close = same and torch.allclose(g.double(), e.double(), rtol=0 if exact else tolerance["rtol"],
                                            atol=0 if exact else tolerance["atol"], equal_nan=True)
        else:
            close = math.isclose(g, e, rel_tol=0, abs_tol=1e-6) if isinstance(e, float) else g == e
        if not close:
            raise RecordError(
                f"{what}: output {index} of the archive is not what the model gives. A trace keeps the path that "
                "its example took and the Python numbers that it saw; record with method='script', or leave out the set."
            )


def _f64_error(model, args, expected):
    """Distance of the expected outputs from the same call in float64; None where that can't be computed."""

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


def _export(model, args, path):
    if isinstance(model, torch.jit.ScriptModule):
        raise RecordError("model.pt2 needs the eager module, not an archive of it")
    if not isinstance(model, torch.nn.Module):
        raise RecordError("model.pt2 needs an nn.Module, not a function")
    buffer = io.BytesIO()
    program = torch.export.export(model, copy.deepcopy(args))
    torch.export.save(program, buffer)
    path.write_bytes(without_paths(buffer.getvalue()))
    ops = collections.Counter(str(n.target) for n in program.graph.nodes if n.op == "call_function")
    return {"file": path.name, "bytes": path.stat().st_size, "ops": dict(sorted(ops.items()))}


def _short(number):
    return float(f"{number:.3g}")


# Machine paths
#
# A trace notes for every node the Python stack that made it, with absolute file names. That tells a reader of the
# archive about the machine and makes two recordings of one model differ, so that they are cut short.


def short_path(path):
    """A source path as it may be published: below the package folder, the working directory, or the bare name."""
    for marker in ("site-packages/", "dist-packages/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith("..") else relative


def without_paths(archive):
    """The bytes of a .pt or .pt2 archive with short paths, in the container layout that PyTorch writes."""
    out = _Stream()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            payload = old.read(entry)
            if entry.filename.endswith("/.data/serialization_id"):
                continue  # a sum over the records as they were
            if entry.filename.endswith(".debug_pkl"):
                payload = _shorten_debug(payload)
            elif entry.filename.endswith(".json"):
                payload = re.sub(rb'(File \\")([^"\\]+)(\\")',
                                 lambda m: m[1] + short_path(m[2].decode()).encode() + m[3], payload)
            info = zipfile.ZipInfo(entry.filename)
            info.compress_type = entry.compress_type
            # Payloads start at multiples of 64 bytes, so that a reader can map them.
            gap = -(out.length + 30 + len(entry.filename.encode()) + 4) % 64
            info.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap
            new.writestr(info, payload)
            info.extra = b""
    return out.getvalue()


class _Stream(io.RawIOBase):
    """A sink that can't seek: sizes then follow the payloads, as in the archives that PyTorch writes."""

    def __init__(self):
        self.parts, self.length = [], 0

    def writable(self):
        return True

    def write(self, data):
        self.parts.append(bytes(data))
        self.length += len(data)
        return len(data)

    def getvalue(self):
        return b"".join(self.parts)


class _IntList(list):
    def __reduce__(self):
        return torch.jit._pickle.build_intlist, (list(self),)


class _DebugUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("torch.jit._pickle", "build_intlist"):
            return _IntList
        raise RecordError(f"unexpected {module}.{name} in a debug record")


def _shorten_debug(payload):
    """A `.debug_pkl`: a table of strings (lines of source or of stacks, file names) and ranges that refer to it."""
    records = _DebugUnpickler(io.BytesIO(payload)).load()
    if not (isinstance(records, tuple) and records and records[0] == "FORMAT_WITH_STRING_TABLE"):
        raise RecordError("a debug record in a format unknown to this script")
    frame = re.compile(r"(?P<path>.+)(?P<rest>\(\d+\): \S+\n?)")

    def shorten(text):
        match = frame.fullmatch(text)
        if match and os.path.abspath(match["path"]) == os.path.abspath(__file__):
            return ""  # how it was recorded is no part of the model
        if match:
            return short_path(match["path"]) + match["rest"]
        return short_path(text) if text.startswith("/") and "\n" not in text else text

    old = records[1]
    new = tuple(map(shorten, old))

    def move(offset, lines):
        """Where a position in the text made of `lines` is after shortening."""
        moved = 0
        for line in lines:
            if offset < len(old[line]):
                return moved + min(offset, len(new[line]))
            offset -= len(old[line])
            moved += len(new[line])
        return moved + offset

    def rewrite(item):
        if isinstance(item, tuple):
            if len(item) == 3 and isinstance(item[0], tuple) and item[0] and isinstance(item[0][0], _IntList):
                (lines, file, first_line), start, end = item
                return ((lines, file, first_line), move(start, lines), move(end, lines))
            return tuple(map(rewrite, item))
        return item

    return pickle.dumps((records[0], new) + tuple(map(rewrite, records[2:])), protocol=2)


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
                        export=options.export, stateful=options.stateful)
    except RecordError as error:
        sys.exit(f"record: {error}")
    print(f"{folder}: {1 + len(more)} input sets, {sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
