# SPDX-License-Identifier: BSD-3-Clause
"""What the CUDA kernels are compiled to, without a device: registers, and how they reach memory.

    python benchmarks/ptx_table.py                        # or: make ptx
    python benchmarks/ptx_table.py --capability 8.0 --functions gelu silu --layout strided

Needs numba-cuda. Registers are those of ptxas where it is found, from a wheel (pip install
nvidia-cuda-nvcc) or on the PATH, and none may be spilled; otherwise the virtual ones of the PTX, of
which there are many more. With nvdisasm (nvidia-cuda-nvdisasm) the last column tells how many
instructions of the device stand between the first vector load and the last vector store, an element
of them; where a kernel has a shorter and a longer way, the first is what nearly all threads go.
"""

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

import fastgelu

VECTOR = re.compile(r"\s(ld|st)\.global\.v(\d)\.[a-z](\d+)")
SINGLE = re.compile(r"\s(ld|st)\.global\.[a-z](\d+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(\S.*)")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(entry.name for entry in fastgelu.functions()))
    dtypes = list(dict.fromkeys(entry.dtype for entry in fastgelu.functions()))
    parser.add_argument("--functions", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", choices=dtypes, default=dtypes, metavar="DTYPE")
    parser.add_argument("--capability", default="9.0", help="such as 7.5, 8.0, 9.0 (the default)")
    parser.add_argument("--layout", choices=("contiguous", "strided"), default="contiguous")
    return parser.parse_args()


def find(tool):
    """The path of a tool of NVIDIA's: from a wheel, or on the PATH, where it may be too old for
    the PTX; None if there is none."""
    folders = [sysconfig.get_path(key) for key in ("purelib", "platlib")] + sys.path
    wheels = (p for f in dict.fromkeys(folders) for p in Path(f).glob(f"nvidia/*/bin/{tool}"))
    return next(map(str, wheels), None) or shutil.which(tool)


def compile_ptx(entry, layout, capability):
    from numba import cuda
    from numba.cuda import types

    from fastgelu import _cuda_kernels

    dtype = entry.dtype.replace("float", "f")
    kernel = getattr(_cuda_kernels, layout)(entry.name, dtype, _cuda_kernels.stamp())
    if layout == "contiguous":
        signature = [types.int64] * 5
    else:
        signature = [types.int64] * 4 + [types.UniTuple(types.int64, 2)] * 4
    return cuda.compile_ptx(kernel, tuple(signature), cc=capability)[0]


def widths(ptx):
    """Accesses by their width: "2 x 16 bytes" of loads, and of stores, of the vector loop or, in a
    strided kernel, of single elements."""
    accesses = [(kind, int(n) * int(bits) // 8) for kind, n, bits in VECTOR.findall(ptx)]
    accesses = accesses or [(kind, int(bits) // 8) for kind, bits in SINGLE.findall(ptx)]
    counts = Counter(accesses)
    return [
        ", ".join(f"{n} x {size}" for (k, size), n in counts.items() if k == kind)
        for kind in ("ld", "st")
    ]


def assemble(ptx, capability, ptxas, nvdisasm):
    """(registers, spilled bytes, instructions of each way between the vector accesses)."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        architecture = f"-arch=sm_{capability[0]}{capability[1]}"
        command = [ptxas, architecture, "-v", source, "-o", binary]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"ptx_table: {ptxas} failed: {done.stderr.splitlines()[0]}")
        text = done.stdout + done.stderr
        registers = int(re.search(r"Used (\d+) registers", text)[1])
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", text)))
        if nvdisasm is None:
            return registers, spilled, []
        command = [nvdisasm, "-c", binary]
        sass = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [match[1] for match in map(INSTRUCTION.match, sass.splitlines()) if match]
    first = [i for i, line in enumerate(lines) if "LDG.E.128" in line]
    last = [i for i, line in enumerate(lines) if "STG.E.128" in line]
    if not first or not last:
        return registers, spilled, []
    ways = [0]  # a jump that is always taken ends one of two ways
    for line in lines[first[0] : last[-1] + 1]:
        ways[-1] += 1
        if line.startswith("BRA "):
            ways.append(0)
    return registers, spilled, sorted(ways)


def takes(ptxas, ptx):
    """Whether it is new enough for the version of the PTX."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [ptxas, "-arch=sm_90", source, "-o", Path(folder, "kernel.cubin")]
        return (
            "Unsupported .version"
            not in subprocess.run(command, capture_output=True, text=True).stderr
        )


def elements(ptx, entry):
    """Of a thread, by the stored vectors."""
    stored = sum(int(n) * int(bits) // 8 for kind, n, bits in VECTOR.findall(ptx) if kind == "st")
    size = {"float64": 8, "float32": 4}.get(entry.dtype, 2)
    return stored // size


def main():
    arguments = options()
    capability = tuple(map(int, arguments.capability.split(".")))
    try:
        from fastgelu import _cuda

        _cuda.import_cuda()
    except ImportError as error:
        sys.exit(f"ptx_table: {error}")
    ptxas, nvdisasm = find("ptxas"), find("nvdisasm")
    if ptxas and not takes(ptxas, compile_ptx(fastgelu.functions()[0], "strided", capability)):
        print(f"ptx_table: {ptxas} is too old for the PTX", file=sys.stderr)
        ptxas = None
    kind = "registers (ptxas)" if ptxas else "virtual registers of 32 bits (no ptxas found)"
    print(f"compute capability {arguments.capability}, {arguments.layout}\n")
    print(f"| function | dtype | {kind} | loads, bytes | stores, bytes | instructions an element |")
    print("|---|---|---|---|---|---|")
    spilled = 0
    for entry in fastgelu.functions():
        if entry.name not in arguments.functions or entry.dtype not in arguments.dtypes:
            continue
        ptx = compile_ptx(entry, arguments.layout, capability)
        virtual = sum(
            int(n) * (2 if bits == "64" else 1)
            for bits, n in re.findall(r"\.reg \.[bf](32|64)\s+%\w+<(\d+)>", ptx)
        )
        registers, count = virtual, "-"
        if ptxas:
            registers, bytes_, ways = assemble(ptx, capability, ptxas, nvdisasm)
            spilled += bytes_
            n = elements(ptx, entry)
            count = " / ".join(f"{way / n:.0f}" for way in ways) or "-" if n else "-"
        loads, stores = widths(ptx)
        print(f"| {entry.name} | {entry.dtype} | {registers} | {loads} | {stores} | {count} |")
    if spilled:
        sys.exit(f"ptx_table: {spilled} bytes of registers are spilled")


if __name__ == "__main__":
    main()
