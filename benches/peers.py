"""Onionskin beside its peers, on the same models in one run; prints one table.

    cargo build --release
    python benches/peers.py
    python benches/peers.py --models resnet18 minilm --rounds 5 --onionskin target/release/onionskin --json figures.json
    python benches/peers.py --models torchvision/densenet121 torchvision/swin_t --peers PyTorch
    python benches/peers.py --models digits/backward resnet18/backward --peers PyTorch

Needs torch, numpy and a built `onionskin`. A peer that is not installed, or that a model fails on, is named under the table,
never left out in silence: `pip install onnx onnxruntime ncnn pnnx` has all that package registries offer. The models are
written here in plain PyTorch with random weights, in the sizes of torchvision's and Hugging Face's, batch 1, or are
torchvision's classifiers, where that is installed; they are traced into a temporary folder. Every peer runs in a separate
process on `--threads` threads, and its outputs are compared with PyTorch's: `wrong` marks a peer whose outputs differ by more
than a thousandth of the largest number. Gradients are compared with those in double precision, and may be as far from them as four
times PyTorch's own.

NAME/backward is the forward and backward pass of a model in training mode, for the sum of its output and with the gradients of
all parameters: 8 images, or 64 scans of digits.

Onionskin and its peers are measured in turn, in several rounds. Cells are the median, and the fastest call in brackets, in
milliseconds; then come our fastest over PyTorch's and over that of the best GPU peer, both of one round: the median of the
rounds, and their range. On a machine that others use too, believe the ratios.
"""

import argparse
import copy
import itertools
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn

# --- models ---------------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Layers under a name: pnnx rejects parameters whose names begin with digits."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(x)), F.relu(self.expand3x3(x))], 1)


def squeezenet1_1():
    def pool():
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return Network(
        nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), pool(), Fire(64, 16, 64), Fire(128, 16, 64), pool(), Fire(128, 32, 128),
        Fire(256, 32, 128), pool(), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), [image()]


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        layers += [Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)]
        inputs = outputs
    return Network(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), [image()]


def digits():
    """The network of examples/digits without its dropout."""
    layers = []
    for inputs, outputs, pools in [(1, 16, False), (16, 32, True), (32, 32, True)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pools else []
    return Network(*layers, nn.Flatten(), nn.Linear(128, 10)), [torch.rand(1, 1, 8, 8)]


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, widen):
        super().__init__()
        wide = inputs * widen
        first = [nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()] if widen > 1 else []
        self.conv = nn.Sequential(
            *first, nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


def mobilenet_v2():
    layers, inputs = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
    for widen, outputs, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                          (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(count):
            layers.append(Inverted(inputs, outputs, stride if index == 0 else 1, widen))
            inputs = outputs
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
    return Network(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)), [image()]


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, wide):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)

    def forward(self, x):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)))
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """MiniLM's shape: 6 layers, 384 features, 12 heads."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, 384), nn.Embedding(512, 384)
        self.norm = nn.LayerNorm(384, 1e-12)
        self.layers = nn.ModuleList(EncoderLayer(384, 12, 1536) for _ in range(6))

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.positions.weight[:ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x


def minilm():
    return Encoder(), [torch.randint(30522, (1, 128))]


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, past):
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), key, value


class Decoder(nn.Module):
    """GPT-2 small's shape: 12 layers, 768 features, 12 heads. A cache holds keys and values of all layers."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.ModuleList(DecoderLayer(768, 12) for _ in range(12))
        self.norm = nn.LayerNorm(768)

    def forward(self, ids, cache=None):
        start = 0 if cache is None else cache.shape[4]
        x = self.words(ids) + self.positions.weight[start:start + ids.shape[1]]
        kept = []
        for index, layer in enumerate(self.layers):
            x, key, value = layer(x, None if cache is None else cache[index])
            kept.append(torch.stack([key, value]))
        logits = self.norm(x) @ self.words.weight.t()
        return logits if cache is None else (logits, torch.stack(kept))


def gpt2_prefill():
    return Decoder(), [torch.randint(50257, (1, 128))]


def gpt2_decode():
    return Decoder(), [torch.randint(50257, (1, 1)), torch.randn(12, 2, 1, 12, 128, 64)]


def image():
    return torch.randn(1, 3, 224, 224)


INFERENCE = [squeezenet1_1, resnet18, mobilenet_v2, minilm, gpt2_prefill, gpt2_decode]
MODELS = {make.__name__: make for make in [*INFERENCE, digits]}
TORCHVISION = "torchvision/"
BACKWARD = "/backward"
TRAINING_BATCHES = {"digits": 64}
"""Batch sizes of backward passes; 8 where there is none."""


def known(name):
    """Return the name of a model, if it is defined here or may be one of torchvision's."""
    if name.removesuffix(BACKWARD) not in MODELS and not name.startswith(TORCHVISION):
        raise argparse.ArgumentTypeError(f"no model {name}: {', '.join(MODELS)}, or {TORCHVISION}NAME")
    return name


def in_batch(argument, batch):
    """Return an argument for a whole batch: other numbers for each image, and equal indices."""
    if argument.is_floating_point():
        return torch.rand(batch, *argument.shape[1:])
    return argument.repeat(batch, *[1] * (argument.dim() - 1))


def made(name):
    """Return a model and its arguments, equal in every process."""
    torch.manual_seed(0)
    if name.endswith(BACKWARD):
        of = name.removesuffix(BACKWARD)
        model, arguments = made(of)
        batch = TRAINING_BATCHES.get(of, 8)
        return model.train(), [in_batch(argument, batch) for argument in arguments]
    if name.startswith(TORCHVISION):
        import torchvision

        model, arguments = torchvision.models.get_model(name.removeprefix(TORCHVISION), weights=None), [image()]
    else:
        model, arguments = MODELS[name]()
    return model.eval(), arguments


# --- peers: each takes a model and returns a function that runs it, and its outputs as arrays -----------------------


def arrays(outputs):
    return [tensor.numpy() for tensor in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def forward(model, arguments):
    with torch.inference_mode():
        return arrays(model(*arguments))


def forward_and_backward(model, arguments):
    """The output, and the gradients of its sum in the order of the parameters' names."""
    model.zero_grad()
    output = model(*arguments)
    output.sum().backward()
    return arrays([output.detach(), *(parameter.grad for _, parameter in sorted(model.named_parameters()))])


def pytorch(model, arguments, folder, threads):
    run = forward_and_backward if model.training else forward
    return lambda: run(model, arguments)


def onnx_runtime(model, arguments, folder, threads):
    import onnxruntime

    path = str(folder / "model.onnx")
    torch.onnx.export(model, tuple(arguments), path, dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {info.name: tensor.numpy() for info, tensor in zip(session.get_inputs(), arguments)}
    return lambda: session.run(None, given)


def ncnn_on(vulkan):
    def make(model, arguments, folder, threads):
        import ncnn
        import pnnx

        # pnnx writes files to the working directory and prints much output.
        os.chdir(folder)
        pnnx.export(model, "model.pt", tuple(arguments), optlevel=2)
        net = ncnn.Net()
        net.opt.num_threads = threads
        net.opt.use_vulkan_compute = vulkan
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.load_param("model.ncnn.param")
        net.load_model("model.ncnn.bin")
        # ncnn has no batch dimension, and its indices have 32 bits.
        given = [tensor.to(torch.int32 if tensor.dtype == torch.int64 else tensor.dtype)[0].numpy() for tensor in arguments]

        def run():
            extractor = net.create_extractor()
            for name, array in zip(net.input_names(), given):
                extractor.input(name, ncnn.Mat(array))
            return [numpy.array(extractor.extract(name)[1]) for name in net.output_names()]

        return run

    return make


PEERS = {"PyTorch": pytorch, "ONNX Runtime": onnx_runtime, "ncnn": ncnn_on(False), "ncnn Vulkan": ncnn_on(True)}
GPU_PEERS = ["ncnn Vulkan"]


def timed(run, seconds):
    """Return median and least milliseconds of calls, after warm-up calls."""
    for _ in range(3):
        run()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return {"median": statistics.median(times), "least": min(times)}


def reference(model, arguments):
    """Return the outputs that a peer should have, and the difference that is allowed; None for a thousandth of each output."""
    if not model.training:
        return forward(model, arguments), None
    single = forward_and_backward(model, arguments)
    exact = forward_and_backward(copy.deepcopy(model).double(), [argument.double() for argument in arguments])
    own = max(numpy.abs(one - other).max() for one, other in zip(single, exact))
    return exact, max(4 * own, 1e-3 * max(numpy.abs(array).max() for array in exact))


def differs(found, expected, allowed):
    """True if an output differs from PyTorch's; a missing batch dimension of 1 is no difference."""
    if len(found) != len(expected):
        return True
    for ours, theirs in zip(found, expected):
        if ours.size != theirs.size or not numpy.isfinite(ours).all():
            return True
        limit = 1e-3 * max(numpy.abs(theirs).max(), 1e-30) if allowed is None else allowed
        if numpy.abs(ours.reshape(-1) - theirs.reshape(-1)).max() > limit:
            return True
    return False


def prepared(peer, name, folder, threads):
    """Return a function that runs a peer on a model, and whether its outputs are wrong."""
    torch.set_num_threads(threads)
    model, arguments = made(name)
    if model.training and peer != "PyTorch":
        raise NotImplementedError("it has no backward pass here")
    expected, allowed = reference(model, arguments)
    run = PEERS[peer](model, arguments, folder, threads)
    return run, differs([numpy.asarray(output) for output in run()], expected, allowed)


def serve(connection, peer, name, options):
    """Run one peer on one model in this process: send a measurement for every message that comes in."""
    # ncnn and pnnx print much output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode(not name.endswith(BACKWARD)):
            run, wrong = prepared(peer, name, pathlib.Path(folder), options.threads)
            while connection.recv():
                connection.send({**timed(run, options.seconds), "wrong": wrong})
    except Exception as error:
        connection.send({"failed": " ".join(f"{type(error).__name__}: {error}".split())})


def measured(peer, name, options):
    """Yield a measurement of a peer on a model for every round, taken in a separate process that waits between the rounds."""
    spawning = multiprocessing.get_context("spawn")
    connection, theirs = spawning.Pipe()
    process = spawning.Process(target=serve, args=(theirs, peer, name, options), daemon=True)
    process.start()
    theirs.close()
    try:
        while True:
            connection.send(True)
            yield connection.recv()
    except (EOFError, BrokenPipeError):
        process.join()
        yield from itertools.repeat({"failed": f"it ended with {process.exitcode}"})
    finally:
        process.kill()


# --- Onionskin ------------------------------------------------------------------------------------------------------


def trace(name, folder):
    """Write archive and arguments; return the reference."""
    model, arguments = made(name)
    numpy.savez(folder / "in.npz", **{f"x{index}": tensor.numpy() for index, tensor in enumerate(arguments)})
    with torch.inference_mode(not model.training):
        torch.jit.trace(model, tuple(arguments), check_trace=False).save(str(folder / "model.pt"))
    return reference(model, arguments)


def printed(command):
    """Return what a command printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def onionskin_rounds(name, folder, options):
    expected, allowed = trace(name, folder)
    given = [str(folder / "model.pt"), "-i", str(folder / "in.npz"), "--device", options.device]
    given += ["--backward"] if name.endswith(BACKWARD) else []
    printed([options.onionskin, "run", *given, "-o", str(folder / "out.npz")])
    with numpy.load(folder / "out.npz") as found:
        wrong = differs([found[key] for key in found.files], expected, allowed)
    cold = [] if options.cold else ["--no-cold"]
    while True:
        figures = json.loads(printed([options.onionskin, "bench", *given, "--json", "--seconds", str(options.seconds), *cold]))
        yield {"median": figures["median_ms"], "least": figures["least_ms"], "wrong": wrong, "bench": figures}


def onionskin(name, options):
    """Yield a measurement of Onionskin on a model for every round."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield from onionskin_rounds(name, pathlib.Path(folder), options)
        except RuntimeError as error:
            yield from itertools.repeat({"failed": str(error)})


# --- the table ------------------------------------------------------------------------------------------------------


def together(rounds):
    """Return one measurement for those of all rounds, which it includes."""
    failed = [result for result in rounds if "failed" in result]
    if failed:
        return failed[0]
    return {**rounds[-1], "median": statistics.median(result["median"] for result in rounds),
            "least": min(result["least"] for result in rounds), "rounds": rounds}


def cell(result):
    if "failed" in result:
        return "–"
    text = f"{result['median']:.1f} ({result['least']:.1f})"
    return text + ", wrong" if result["wrong"] else text


def ratio(ours, others):
    """Our fastest call over that of the best of the others: the median of the rounds, and their range."""
    others = [other["rounds"] for other in others if "rounds" in other and not other["wrong"]]
    if not others or "rounds" not in ours:
        return "–"
    best = [min(result["least"] for result in results) for results in zip(*others)]
    ratios = [result["least"] / least for result, least in zip(ours["rounds"], best)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def row(name, results, peers):
    ours = results["Onionskin"]
    bench = (ours.get("bench") or {}).get("on_device") or {}
    counts = f"{bench.get('dispatches', '–')} / {ours.get('bench', {}).get('operators') or '–'}"
    cells = [name, *(cell(results[key]) for key in ["Onionskin", *peers]), ratio(ours, [results["PyTorch"]]),
             ratio(ours, [results[peer] for peer in GPU_PEERS if peer in results]), counts]
    return "| " + " | ".join(cells) + " |"


def in_turn(name, options):
    """Measure Onionskin and the peers on a model, one after the other in every round."""
    runners = {"Onionskin": onionskin(name, options), **{peer: measured(peer, name, options) for peer in options.peers}}
    rounds = [{key: next(runner) for key, runner in runners.items()} for _ in range(options.rounds)]
    for runner in runners.values():
        runner.close()
    return {key: together([results[key] for results in rounds]) for key in runners}


def main():
    parser = argparse.ArgumentParser(description="Onionskin beside its peers on the same models.")
    parser.add_argument("--models", nargs="+", type=known, default=[make.__name__ for make in INFERENCE])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--onionskin", default="target/release/onionskin")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured, in turn")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each is watched in a round")
    parser.add_argument("--cold", action="store_true", help="measure our cold starts too; they are in the JSON file")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures there")
    options = parser.parse_args()
    columns = ["model", "Onionskin", *options.peers, "of PyTorch", "of the best GPU peer", "dispatches / operators"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns), flush=True)
    everything, failures = {}, []
    for name in options.models:
        results = in_turn(name, options)
        failures += [f"{peer} on {name}: {result['failed']}" for peer, result in results.items() if "failed" in result]
        results.setdefault("PyTorch", {"failed": "left out"})
        everything[name] = results
        print(row(name, results, options.peers), flush=True)
    print(f"\nMilliseconds, median (fastest), batch 1 without a backward pass, f32, {options.threads} threads; torch {torch.__version__}.")
    for failure in failures:
        print(f"- {failure}")
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
