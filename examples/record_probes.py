"""Inputs that show what a trace froze, and the module whose trace is to blame.

A trace keeps the path that its example took: an `if`, a loop over a size and a number that was read from a tensor leave
nothing behind in it. The eager module shows them: it is called beside its trace with negated inputs, with zeros and with
other sizes.
"""

import copy
import inspect
import itertools
import math
import re

import torch

from record_paths import short_path

GROUPS = 6
"""Largest number of sizes that are changed."""

ORDERS = 24
"""Largest number of orders of a module's tensors that are tried."""

FROZEN = ("A trace keeps the branch that its example took and the Python numbers that it saw: "
          "write the line with tensors, record with method='script'")


def leaves(value):
    """Return the values in a tree of tuples, lists and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def call(model, args, kwargs=None):
    """Call a module on copies of the arguments, into which it may write."""
    with torch.no_grad():
        return model(*copy.deepcopy(args), **copy.deepcopy(kwargs or {}))


def difference(got, expected, tolerance):
    """Describe how results differ; None if they agree. `tolerance` has `rtol` and `atol`."""
    got, expected = leaves(got), leaves(expected)
    if len(got) != len(expected):
        return f"the trace gives {len(got)} values, the model {len(expected)}"
    for index, (g, e) in enumerate(zip(got, expected)):
        found = _leaf_difference(g, e, tolerance)
        if found:
            return f"output {index} {found}"
    return None


def _leaf_difference(got, expected, tolerance):
    if type(got) is not type(expected):
        return f"is a {type(got).__name__} in the trace, a {type(expected).__name__} in the model"
    if not isinstance(expected, torch.Tensor):
        close = math.isclose(got, expected, rel_tol=0, abs_tol=1e-6) if isinstance(expected, float) else got == expected
        return None if close else f"is {got!r} in the trace, {expected!r} in the model"
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"is {_type(got)} in the trace, {_type(expected)} in the model"
    exact = not expected.is_floating_point()
    rtol, atol = (0, 0) if exact else (tolerance["rtol"], tolerance["atol"])
    got, expected = got.double(), expected.double()
    if torch.allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True):
        return None
    farthest = (got - expected).abs().nan_to_num(math.inf).max().item()
    return f"of the trace is up to {farthest:.3g} away from the model's"


def _type(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def one_line(error):
    """Describe an exception of a trace in a line: the failure, and the user's line that caused it."""
    text = str(error).strip()
    last = text.splitlines()[-1].strip() if text else type(error).__name__
    frames = re.findall(r"^\s*(\S+\.py)\((\d+)\): \S+", text, re.MULTILINE)
    own = [(file, line) for file, line in frames if not short_path(file).startswith("torch/")]
    place = f" (at {short_path(own[0][0])}:{own[0][1]})" if own else ""
    return re.sub(r"^\w*Error: ", "", last) + place


# Other inputs


def map_tensors(value, change):
    """Return the tree with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def _negated(tensor):
    """Negate numbers; reverse integers, which may be indices."""
    backwards = tensor.flatten().flip(0).reshape(tensor.shape)
    return -backwards if tensor.is_floating_point() or tensor.is_complex() else backwards


def _zeros(tensor):
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or not tensor.numel():
        return torch.zeros_like(tensor)
    return torch.full_like(tensor, tensor.min().item())


def _resized(tensor, is_batch, size, to):
    """Cut the tensor, or extend it by elements from its beginning, along the axes of that size."""
    for axis, own in enumerate(tensor.shape):
        if own == size and (axis == 0) == is_batch:
            tensor = tensor.index_select(axis, torch.arange(to) % size)
    return tensor


def _sizes(args):
    """Return, for all axes of the tensors, whether the axis is the first, and its size."""
    shapes = [leaf.shape for leaf in leaves(args) if isinstance(leaf, torch.Tensor)]
    found = {(axis == 0, size) for shape in shapes for axis, size in enumerate(shape) if size > 0}
    return sorted(found, key=lambda group: (not group[0], group[1]))[:GROUPS]


def probes(args):
    """Return lists of labelled other inputs; the first of each list that the model accepts is used."""
    yield [("negated inputs", map_tensors(args, _negated))]
    yield [("inputs of zeros", map_tensors(args, _zeros))]
    for is_batch, size in _sizes(args):
        shorter = [to for to in (size - 1, 1) if 0 < to < size]
        for choices in [[size + 1, 2 * size, 3 * size], shorter, [0] if is_batch else []]:
            which = "first size" if is_batch else "size"
            yield [(f"{which} {to} in place of {size}",
                    map_tensors(args, lambda tensor, to=to: _resized(tensor, is_batch, size, to))) for to in choices]


def probe(eager, replayed, example, tolerance_of):
    """Return the differences between trace and model for other inputs, a line each."""
    found = []
    for choices in probes(example):
        for label, args in choices:
            try:
                expected = call(eager, args)
            except Exception:  # the model is the judge of what it takes
                continue
            why = compare(replayed, args, expected, tolerance_of(expected))
            if why:
                where = blamed(eager, replayed, example, args, tolerance_of)
                found.append(f"with {label}: {why}, first in {where}")
            break
    return found


def compare(replayed, args, expected, tolerance):
    """Describe the difference of a trace for these arguments; None if it returns the expected results."""
    try:
        return difference(call(replayed, args), expected, tolerance)
    except Exception as error:
        return f"the trace refuses what the model takes: {one_line(error)}"


# The faulty module


class _Modules:
    """Call the trace of each submodule with the eager submodule's arguments, as soon as that one has returned."""

    def __init__(self, eager, replayed, tolerance_of, orders=None):
        self.replayed, self.tolerance_of = replayed, tolerance_of
        self.known, self.orders, self.first = orders, {}, None
        self.stack, self.count = [], {}
        self.hooks = []
        for name, module in eager.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):
                self.hooks.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
                after = lambda module, args, kwargs, output, name=name: self._after(name, module, output)  # noqa: E731
                # Hooks are part of the trace of the calling module, not of the called one.
                self.hooks.append(module.register_forward_hook(after, with_kwargs=True, prepend=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()

    def _before(self, module, args, kwargs):
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self.stack.append([tensor.detach().clone() for tensor in tensors])

    def _after(self, name, module, output):
        tensors, index = self.stack.pop(), self.count.get(name, 0)
        self.count[name] = index + 1
        method = self._method(name, index)
        if method is None or self.first:
            return
        if self.known is None:
            self.orders[name, index] = self._order(method, tensors, output)
        else:
            order = self.known.get((name, index))
            chosen = order is not None and all(place < len(tensors) for place in order)
            if chosen and compare(method, tuple(tensors[place] for place in order), output, self.tolerance_of(output)):
                self.first = (name, module)

    def _method(self, name, index):
        """Return the method that holds a module's n-th call: a trace has one for each call."""
        traced = self.replayed
        for part in name.split("."):
            traced = getattr(traced, part, None)
        return getattr(traced, f"forward{index}" if index else "forward", None)

    def _order(self, method, tensors, output):
        """Find by trial which tensors a traced method takes: those that its module reads, in order of use."""
        count = len(method.schema.arguments) - 1 if hasattr(method, "schema") else len(tensors)
        orders = itertools.islice(itertools.permutations(range(len(tensors)), count), ORDERS)
        tolerance = self.tolerance_of(output)
        return next((order for order in orders
                     if not compare(method, tuple(tensors[place] for place in order), output, tolerance)), None)


def blamed(eager, replayed, example, args, tolerance_of):
    """Describe the innermost module whose trace differs from the module itself."""
    if not isinstance(eager, torch.nn.Module):
        return _described("", eager)
    with _Modules(eager, replayed, tolerance_of) as modules:
        call(eager, example)
    with _Modules(eager, replayed, tolerance_of, modules.orders) as modules:
        call(eager, args)
    return _described(*(modules.first or ("", eager)))


def _described(name, module):
    code = type(module).forward if isinstance(module, torch.nn.Module) else module
    try:
        place = f", {short_path(inspect.getsourcefile(code))}:{inspect.getsourcelines(code)[1]}"
    except (TypeError, OSError):
        place = ""
    kind = type(module).__name__ if isinstance(module, torch.nn.Module) else getattr(module, "__name__", "a function")
    return f"module {name} ({kind}{place})" if name else f"{kind}'s own code{place and f' ({place[2:]})'}"
