"""Times PyTorch's eager mode on recorded models, for comparison with Onionskin's times.

    python examples/bench_pytorch.py tests/fixtures/cases/models/dynamic_batch
    python examples/bench_pytorch.py --threads 2 --runs 30 --out pytorch.json tests/fixtures/cases/models/*

Each folder holds a recorded case (see tests/fixtures/README.md). `model.pt` runs as a TorchScript module without the optimising
executor, so that every operator is one call of PyTorch's own kernel, as in eager mode. Prints a line with a JSON object for each input set:
median, fastest and slowest of `runs` calls in milliseconds, after `warmup` calls. Needs torch and safetensors.

Use a quiet machine: where another process holds a core, two threads wait for each other, and a small model takes a hundred
times as long.
"""

import argparse
import copy
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import torch
from safetensors.torch import load_file


def value_of(tree, tensors):
    """Return the value of a one-key object of case.json."""
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    (kind, value), = tree.items()
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(value_of(item, tensors) for item in value)
    if kind == "dict":
        return {key: value_of(item, tensors) for key, item in value.items()}
    return None if kind == "none" else value


def time_set(module, args, warmup, runs):
    """Return the milliseconds of every run; each call gets its own copy of the arguments, made before timing."""
    milliseconds = []
    with torch.inference_mode(), torch.jit.optimized_execution(False):
        for run in range(warmup + runs):
            own = copy.deepcopy(args)
            started = time.perf_counter()
            module(*own)
            if run >= warmup:
                milliseconds.append((time.perf_counter() - started) * 1e3)
    return milliseconds


def bench(folder, options):
    case = json.loads((folder / "case.json").read_text())
    module = torch.jit.load(str(folder / "model.pt"), map_location="cpu").eval()
    for entry in case["sets"][: None if options.all_sets else 1]:
        if "inputs" not in entry:
            print(f"{case['name']}: a sequence of calls, left out", file=sys.stderr)
            continue
        tensors = load_file(str(folder / entry["file"]))
        args = [value_of(tree, tensors) for tree in entry["inputs"]]
        times = time_set(module, args, options.warmup, options.runs)
        yield {
            "name": case["name"], "set": entry["label"], "median_ms": round(statistics.median(times), 4),
            "min_ms": round(min(times), 4), "max_ms": round(max(times), 4), "runs": options.runs,
            "threads": options.threads, "torch": torch.__version__, "machine": platform.machine(), "cores": os.cpu_count(),
        }


def main():
    parser = argparse.ArgumentParser(description="Time PyTorch's eager mode on recorded models.")
    parser.add_argument("cases", nargs="+", type=pathlib.Path, help="folders with case.json and model.pt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--all-sets", action="store_true", help="every input set; otherwise the first")
    parser.add_argument("--out", type=pathlib.Path, help="also write all results there as one JSON array")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    results = []
    for folder in options.cases:
        for result in bench(folder, options):
            print(json.dumps(result), flush=True)
            results.append(result)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
