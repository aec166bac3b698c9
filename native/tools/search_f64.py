# SPDX-License-Identifier: BSD-3-Clause
"""Search the worst errors of the float64 kernels, and keep them in tests/data/worst_cases.csv.

    python native/tools/search_f64.py [--seconds 60] [--seed 1] [--function NAME] [--update]

Builds the library and search_f64.c (which says how it searches), runs it for every function, two
at a time and at low priority, and prints a table: function, inputs tried, largest error, and the
input, result and correctly rounded result there. What was found before is where it starts. With
--update the file is rewritten: its float64 rows become the worst of the old and the new ones.

Every row that was found is judged again in multiple precision by tests/oracle.py; that error is
the one printed. Needs gcc on x86-64 (libquadmath) and mpmath.
"""

import argparse
import concurrent.futures
import csv
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import oracle  # noqa: E402
from mpmath import mp  # noqa: E402

CASES = ROOT / "tests/data/worst_cases.csv"
COLUMNS = ["function", "dtype", "x_bits", "dy_bits", "correctly_rounded_bits"]

KINDS = ("", "_grad", "_backward", "_grad2")
HEADER = f"{'function':22} {'inputs':>13} {'max ULP':>8}  worst: x, got, want (dy)"
FUNCTIONS = [form + kind for form in oracle.FORMS for kind in KINDS]

# The nearest singularity of a slope is 1.8 from its zero: at a distance of 1/8, this many terms
# leave 2^-115.
TERMS = 30


def slope(form):
    """The slope at -t as a function of t, for mpmath."""
    if form == "gelu":
        return lambda t: mp.ncdf(-t) - t * mp.npdf(t)
    a = 2 * mp.sqrt(2 / mp.pi)
    w, dw = {
        "gelu_tanh": (
            lambda t: a * (t + mp.mpf("0.044715") * t**3),
            lambda t: a * (1 + 3 * mp.mpf("0.044715") * t**2),
        ),
        "gelu_sigmoid": (lambda t: mp.mpf("1.702") * t, lambda t: mp.mpf("1.702")),
        "silu": (lambda t: t, lambda t: mp.mpf(1)),
    }[form]

    def f(t):
        gate = 1 / (1 + mp.exp(w(t)))
        return gate * (1 - t * dw(t) * (1 - gate))

    return f


def second(form):
    """The second derivative at t or -t likewise: minus the derivative of the slope at -t."""
    if form == "gelu":
        return lambda t: mp.npdf(t) * (2 - t * t)
    return lambda t: -mp.diff(slope(form), t)


def slope_zeros():
    """slope_zeros.h: every zero t0, and slope(-t) = d (c[0] + c[1] d + ...) with d = t - t0; the
    same for the second derivatives."""
    lines = [
        f"enum {{ ZERO_TERMS = {TERMS} }};",
        "struct zero {",
        "    double hi;",
        "    const char *lo, *series[ZERO_TERMS];",
        "};",
    ]
    with mp.workdps(120):
        for name, function, guess, silu in (
            ("zeros", slope, 0.75, 1.28),
            ("second_zeros", second, 1.41, 2.4),
        ):
            lines.append(f"static const struct zero {name}[] = {{")
            for form in oracle.FORMS:
                f = function(form)
                zero = mp.findroot(f, silu if form == "silu" else guess)
                high = float(zero)
                if function is slope or form == "gelu":
                    series = mp.taylor(f, zero, TERMS)[1:]
                else:  # from the slope's own series
                    terms = mp.taylor(slope(form), zero, TERMS + 1)
                    series = [-(k + 1) * c for k, c in enumerate(terms[1:])][1:]
                strings = ", ".join(f'"{mp.nstr(c, 40)}"' for c in series)
                lines.append(f'    {{{high.hex()}, "{mp.nstr(zero - high, 40)}", {{{strings}}}}},')
            lines.append("};")
    return "\n".join([*lines, ""])


def build(directory, library, jobs):
    """Build the search in `directory`, and the library unless given; returns the program."""
    if platform.machine() not in ("x86_64", "AMD64"):
        sys.exit("search_f64 needs gcc's __float128 on x86-64")
    gcc = os.environ.get("CC", "gcc")
    include = f"-I{ROOT / 'native/include'}"
    common = [gcc, "-O3", "-ffp-contract=off", "-Wall", "-Wextra", include]
    objects = [library]
    if not library:
        sources = sorted((ROOT / "native/src").glob("*.c"))
        objects = [directory / f"{source.stem}.o" for source in sources]
        commands = [[*common, "-std=c11", "-c", s, "-o", o] for s, o in zip(sources, objects)]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda command: subprocess.run(command, check=True), commands))
    (directory / "slope_zeros.h").write_text(slope_zeros())
    program = directory / "search_f64"
    # -march=native serves the search alone: its screening has many fused operations.
    source = ROOT / "native/tools/search_f64.c"
    link = ["-lquadmath", "-lm", "-o", program]
    own = ["-std=gnu11", "-march=native", f"-I{directory}"]
    subprocess.run([*common, *own, source, *objects, *link], check=True)
    return program


def read_cases():
    if not CASES.exists():
        return []
    with open(CASES, newline="") as file:
        return list(csv.DictReader(file))


def write_cases(rows):
    """All rows, sorted by function, dtype and where they were."""
    order = {name: i for i, name in enumerate(FUNCTIONS)}
    rows = sorted(rows, key=lambda row: (order.get(row["function"], 99), row["dtype"]))
    with open(CASES, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def search(program, function, directory, args):
    """Run the search for one function; returns (inputs tried, rows with their errors)."""
    found = directory / f"{function}.csv"
    command = [program, "--function", function, "--seconds", str(args.seconds)]
    command += ["--seed", str(args.seed), "--rows", found]
    if CASES.exists():
        command += ["--start", CASES]
    if args.target:
        command += ["--target", args.target]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = []
    for line in found.read_text().splitlines():
        _, dtype, x_bits, dy_bits, got_bits, ulp = line.split(",")
        inputs = [oracle.from_bits(int(b, 16), dtype) for b in (dy_bits, x_bits) if b]
        got = oracle.from_bits(int(got_bits, 16), dtype)
        want = oracle.exact(function, *inputs)
        error = oracle.ulp_error(got, want, dtype)
        if not abs(error - float(ulp)) <= 1e-5:
            raise ArithmeticError(f"{line}: {error} ULP in multiple precision")
        rounded = oracle.round_to(want, dtype)
        row = dict(zip(COLUMNS, [function, dtype, x_bits, dy_bits, f"0x{rounded:016x}"]))
        rows.append((error, inputs, got, oracle.from_bits(rounded, dtype), row))
    return int(done.stdout.split()[1]), rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="for each function (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--function", choices=FUNCTIONS, help="only this one")
    parser.add_argument("--library", help="search this static library, and build none")
    parser.add_argument("--target", help="an instruction set; all give the same bits")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (2)")
    parser.add_argument("--update", action="store_true", help=f"rewrite {CASES.relative_to(ROOT)}")
    args = parser.parse_args()
    functions = [args.function] if args.function else FUNCTIONS
    os.nice(10)
    kept = [r for r in read_cases() if r["dtype"] != "f64" or r["function"] not in functions]
    with (
        tempfile.TemporaryDirectory() as directory,
        concurrent.futures.ThreadPoolExecutor(args.jobs) as pool,
    ):
        directory = Path(directory)
        program = build(directory, args.library, args.jobs)
        print(f"seed {args.seed}, {args.seconds:g} s a function")
        print(HEADER, flush=True)
        results = pool.map(lambda f: search(program, f, directory, args), functions)
        for function, (count, rows) in zip(functions, results):
            error, inputs, got, want, _ = max(rows, key=lambda row: row[0])
            dy = f" ({inputs[0].hex()})" if len(inputs) == 2 else ""
            where = f"{inputs[-1].hex()} {got.hex()} {want.hex()}{dy}"
            print(f"{function:22} {count:13} {error:8.4f}  {where}", flush=True)
            kept += [row for *_, row in rows]
    if args.update:
        write_cases(kept)
        print(f"{len(kept)} rows in {CASES.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"status {error.returncode} of: {' '.join(map(str, error.cmd))}")
