# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the benchmarks: the registry, data, sizes, interleaved timing, tables."""

import argparse
import functools
import math
import platform
import time
from pathlib import Path

import numpy as np
import rivals

import fastgelu

SEED = 20240229
SIZES = (1, 64, 4 << 10, 64 << 10, 1 << 20, 16 << 20)

# ---- what is measured --------------------------------------------------------------------------


def numpy_dtype(name):
    """The dtype of that name. bfloat16 needs ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


@functools.lru_cache(maxsize=2)
def data(dtype, size):
    """Two arrays of normal(0, 1) numbers, always the same; not to be written to."""
    rng = np.random.default_rng(SEED)
    drawn = dtype if dtype in ("float32", "float64") else "float32"
    return tuple(
        rng.standard_normal(size, drawn).astype(numpy_dtype(dtype), copy=False) for _ in range(2)
    )


def bytes_moved(entry, size):
    """Bytes read and written for one call."""
    return (entry.inputs + 1) * numpy_dtype(entry.dtype).itemsize * size


def size_name(size):
    """65536 -> "64Ki"."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def parse_size(text):
    """ "64Ki" -> 65536."""
    number, unit = text, 1
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20)):
        if text.endswith(suffix):
            number, unit = text.removesuffix(suffix), factor
    if not number.strip().isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 64Ki or 16Mi")
    return int(number) * unit


# ---- options that the scripts share ------------------------------------------------------------


def parser(description):
    """An ArgumentParser with --functions and --dtypes."""
    registry = fastgelu.functions()
    result = argparse.ArgumentParser(description=description)
    names = list(dict.fromkeys(entry.name for entry in registry))
    dtypes = list(dict.fromkeys(entry.dtype for entry in registry))
    result.add_argument(
        "--functions",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help="default: all that are registered",
    )
    result.add_argument(
        "--dtypes", nargs="+", choices=dtypes, default=dtypes, metavar="DTYPE", help="default: all"
    )
    return result


def chosen(args):
    """The lines of the registry that the options ask for."""
    return [
        entry
        for entry in fastgelu.functions()
        if entry.name in args.functions and entry.dtype in args.dtypes
    ]


def at_least(minimum, kind=int):
    """A type for argparse: a number not below the minimum."""

    def parse(text):
        value = kind(text)
        if not value >= minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        return value

    parse.__name__ = "number"
    return parse


def set_threads(count):
    """Ours and torch's. NumPy's and SciPy's ufuncs always have one."""
    try:
        fastgelu.set_num_threads(count)
    except ValueError as error:
        raise SystemExit(f"cannot compare on {count} threads: {error}") from error
    if rivals.torch is not None:
        rivals.torch.set_num_threads(count)
    have = fastgelu.get_num_threads()
    if have != count:
        raise SystemExit(f"cannot compare on {count} threads: this fastgelu runs on {have}")


# ---- the machine -------------------------------------------------------------------------------


def processor():
    """The name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe():
    """What was measured, on what: for each library the instruction set that it chose."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    parts = [
        processor(),
        f"Python {platform.python_version()}",
        f"fastgelu {fastgelu.__version__} ({fastgelu.target()})",
        f"NumPy {np.__version__} ({(simd.get('found') or ['baseline'])[-1]})",
    ]
    if rivals.special is None:
        parts.append("no SciPy")
    else:
        import scipy

        parts.append(f"SciPy {scipy.__version__}")
    if rivals.torch is None:
        parts.append("no torch")
    else:
        capability = rivals.torch.backends.cpu.get_cpu_capability()
        parts.append(f"torch {rivals.torch.__version__} ({capability})")
    return ", ".join(parts)


def same_instructions():
    """How to run everyone on AVX2, where someone runs on more."""
    found = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    wide = [name for name in found if name.startswith(("AVX512", "X86_V4"))]
    if not wide:
        return ""
    return (
        "Each library uses the best instruction set that it has. With ATEN_CPU_CAPABILITY=avx2 "
        "ONEDNN_MAX_CPU_ISA=AVX2 FASTGELU_TARGET=avx2 "
        f'NPY_DISABLE_CPU_FEATURES="{" ".join(wide)}" in the environment all use AVX2.'
    )


# ---- timing ------------------------------------------------------------------------------------


def interleave(calls, seconds, min_rounds=5, block=1e-3, clock=time.perf_counter):
    """Time calls in turns, so that all meet the same disturbances.

    Each turn repeats its call for about `block` seconds, once at least. There are `min_rounds`
    rounds at least, and more until `seconds` have passed. Each round begins with another call.

    Returns
    -------
    times : ndarray, shape (rounds, len(calls))
        Seconds for one call.
    """
    repeats = []
    for call in calls:
        call()  # pages, caches, lazy set-up
        count, spent = 1, 0.0
        while spent < block / 4:
            count *= 4 if spent else 1
            start = clock()
            for _ in range(count):
                call()
            spent = clock() - start
        repeats.append(max(1, math.ceil(count * block / spent)))
    rounds = []
    end = clock() + seconds
    while len(rounds) < min_rounds or clock() < end:
        times = [0.0] * len(calls)
        for turn in range(len(calls)):
            which = (len(rounds) + turn) % len(calls)
            call, count = calls[which], repeats[which]
            start = clock()
            for _ in range(count):
                call()
            times[which] = (clock() - start) / count
        rounds.append(times)
    return np.array(rounds)


# ---- tables ------------------------------------------------------------------------------------


def number(value):
    """Three significant digits, more where the number has more before its point."""
    if not math.isfinite(value):
        return str(value)
    if value >= 1e6:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 3)}f}"


def table(header, rows):
    """A markdown table, its columns aligned: text to the left, the others to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    left = [all(not row[i].lstrip("-")[:1].isdigit() for row in rows) for i in range(len(header))]
    width = [max(3, *(len(row[i]) for row in [header, *rows])) for i in range(len(header))]

    def line(cells):
        padded = [
            cell.ljust(width[i]) if left[i] else cell.rjust(width[i])
            for i, cell in enumerate(cells)
        ]
        return f"| {' | '.join(padded)} |"

    ruler = ["-" * width[i] if left[i] else "-" * (width[i] - 1) + ":" for i in range(len(header))]
    return "\n".join([line(header), line(ruler), *map(line, rows)])
