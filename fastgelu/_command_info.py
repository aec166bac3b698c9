# SPDX-License-Identifier: BSD-3-Clause
"""``python -m fastgelu info``: what this installation is, runs on and has found."""

import importlib
import importlib.metadata
import json

from fastgelu import _command, _config, _info

# Optional packages: the name to import, what it is for, what installs it.
PARTS = (
    ("ml_dtypes", "bfloat16", "ml_dtypes"),
    ("numba", "the functions in compiled functions, fastgelu.numba", "fastgelu[numba]"),
    ("rich", "tables and progress bars", "fastgelu[cli]"),
    ("matplotlib", "pictures", "fastgelu[cli]"),
    ("mpmath", "accuracy: the truth for float64", "fastgelu[cli]"),
)


def part(name, purpose, requirement):
    """One optional package: found or not, its version, or why it cannot be used."""
    result = {"for": purpose, "found": False, "version": None, "problem": None}
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            result["problem"] = f"not installed: pip install '{requirement}'"
        else:
            result["problem"] = f"cannot be imported: {error}"
        return result
    except Exception as error:  # a broken package may raise anything
        first = (str(error).strip().splitlines() or ["no message"])[0]
        result["problem"] = f"cannot be imported: {type(error).__name__}: {first}"
        return result
    result["found"] = True
    result["version"] = getattr(module, "__version__", None)
    if result["version"] is None:
        try:
            result["version"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            result["version"] = "unknown"
    return result


def path(find):
    try:
        return find()
    except FileNotFoundError:
        return None


def collect():
    """All of it, for JSON."""
    config = _info.show_config("dicts")
    config["bounds"] = [entry._asdict() for entry in _info.functions()]
    config["optional"] = {line[0]: part(*line) for line in PARTS}
    config["include"] = path(_config.get_include)
    config["library"] = path(_config.get_library_dir)
    return config


def run(options):
    if options.json:
        print(json.dumps(collect(), indent=2))
        return 0
    console = _command.console()
    found = collect()
    threads = f"{found['threads']} ({found['threads_from']})"
    rows = [
        ("version", found["version"]),
        ("instruction set", found["target"]),
        (
            "compiled in",
            ", ".join(
                name if here else f"{name} (not on this machine)"
                for name, here in found["targets"].items()
            ),
        ),
        ("threads", threads),
        *(("ignored", note) for note in found["ignored"]),
        ("OpenMP", found["openmp"]),
        ("compiler", found["compiler"]),
        ("Python, NumPy", f"{found['python']}, {found['numpy']}"),
        ("C header in", found["include"] or "not carried by this installation"),
        ("C library in", found["library"] or "not carried by this installation"),
    ]
    _command.print_table(console, "fastgelu", ["", ""], rows)
    rows = [
        (name, entry["version"] if entry["found"] else entry["problem"], entry["for"])
        for name, entry in found["optional"].items()
    ]
    _command.print_table(console, "Optional packages", ["package", "found", "for"], rows)
    bounds = {}
    for entry in found["bounds"]:
        bounds.setdefault(entry["name"], {})[entry["dtype"]] = f"{entry['max_ulp']:g}"
    dtypes = _command.registry_dtypes()
    rows = [(name, *(row.get(dtype, "") for dtype in dtypes)) for name, row in bounds.items()]
    columns = ["function", *((dtype, "right") for dtype in dtypes)]
    _command.print_table(console, "Error bounds in ULP, over all inputs", columns, rows)
    return 0


def add_command(commands):
    """Add `info` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "info",
        help="what this installation is, runs on and has found",
        description="Shows the version, the instruction set and the threads in use and why, the "
        "optional packages found or why not, the paths for C programs, the error bounds.",
    )
    parser.add_argument("--json", action="store_true", help="for programs; needs no extra")
    parser.set_defaults(run=run)
