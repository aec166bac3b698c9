# SPDX-License-Identifier: BSD-3-Clause
"""What the subcommands of ``python -m fastgelu`` share: errors, options, tables, progress bars."""

import argparse
import importlib
import os
import sys
import textwrap
from pathlib import Path

import numpy as np

import fastgelu
from fastgelu._dtypes import bfloat16

__all__ = ["CommandError"]

# Left to right; the order of the figures' lines and of the tables' rows.
FORMS = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu")


class CommandError(Exception):
    """What went wrong, for the user: one line on stderr, exit status 1."""


def optional(module, extra="cli"):
    """Import an optional module, or say which extra has it."""
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        return importlib.import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        reason = "is not installed" if missing else f"cannot be imported ({error})"
        raise CommandError(
            f"{package} {reason}; this command needs it: pip install 'fastgelu[{extra}]'"
        ) from error


# ---- options ---------------------------------------------------------------------------------


def registry_names(inputs=(1, 2), compiled=False):
    """The functions with that many inputs; those alone that Numba and CUDA have too, and others
    compute as well."""
    entries = [f for f in fastgelu.functions() if f.inputs in inputs and f.compiled >= compiled]
    return list(dict.fromkeys(f.name for f in entries))


def registry_dtypes():
    return list(dict.fromkeys(f.dtype for f in fastgelu.functions()))


def add_list_option(parser, name, choices, default, text):
    """``--functions gelu silu``: a list out of choices."""
    parser.add_argument(
        name,
        nargs="+",
        choices=choices,
        default=default,
        metavar=name[2:-1].upper(),
        help=f"{text}: {', '.join(choices)}; default: "
        + ("all" if list(default) == list(choices) else " ".join(default)),
    )


def numpy_dtype(name):
    """The NumPy dtype of that name; bfloat16 is there where ml_dtypes is."""
    return bfloat16() if name == "bfloat16" else np.dtype(name)


def between(least, most, kind=int):
    """A type for argparse: a number in these limits."""

    def parse(text):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}, not {text}")
        return value

    parse.__name__ = "number"
    return parse


def output_path(*suffixes):
    """A type for argparse: a file whose name ends in one of the suffixes."""

    def parse(text):
        path = Path(text)
        if path.suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(f"{text!r} does not end in {' or '.join(suffixes)}")
        return path

    return parse


def check_output(path):
    """Fail before the work is done, where the result could not be written after it."""
    if path is None:
        return
    if path.is_dir():
        raise CommandError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is no folder: {path.name} cannot be written there")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"{path} cannot be written: permission denied")


# ---- the terminal ----------------------------------------------------------------------------


def console(stderr=False):
    """A rich console. It minds NO_COLOR, TERM and the width; files and pipes get 120 columns."""
    module = optional("rich.console")
    result = module.Console(stderr=stderr, highlight=False)
    if not result.is_terminal and "COLUMNS" not in os.environ:
        result = module.Console(stderr=stderr, highlight=False, width=120)
    return result


def print_table(console, title, columns, rows, sections=()):
    """Print a rich table. A column is a name, or (name, "right") for numbers, which are not broken.

    A line is drawn below the rows whose numbers are in `sections`. Where the terminal is too narrow
    for the numbers, each row is printed as text.
    """
    columns = [(column, "left") if isinstance(column, str) else column for column in columns]
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip([name for name, _ in columns], *rows)]
    numbers = [justify == "right" for _, justify in columns]
    if any(numbers) and sum(widths) + 3 * len(widths) > console.width:
        print_records(console, title, columns, rows)
        return
    text = optional("rich.text").Text  # square brackets are no markup here
    made = optional("rich.table").Table(
        title=text(title),
        title_justify="left",
        box=optional("rich.box").SIMPLE_HEAD,
        pad_edge=False,
        show_header=any(name for name, _ in columns),
    )
    for (name, justify), is_number in zip(columns, numbers):
        made.add_column(name, justify=justify, overflow="fold", no_wrap=is_number)
    for number, row in enumerate(rows):
        made.add_row(*map(text, row), end_section=number in sections)
    console.print(made)


def print_records(console, title, columns, rows):
    """Each row as text: its last words, then its numbers by name, below its first words."""
    width = max(console.width, 20)
    console.print(title, markup=False)
    last, above = [""] * len(columns), None
    for row in rows:
        last = [cell or before for cell, before in zip(row, last)]
        words = [cell for (_, justify), cell in zip(columns, last) if justify == "left"]
        pairs = [(name, cell) for (name, justify), cell in zip(columns, row) if justify == "right"]
        if words[:-1] and words[:-1] != above:
            console.print(f"  {', '.join(words[:-1])}", markup=False)
            above = words[:-1]
        indent = "    " if words[:-1] else "  "
        # a number stays on the line of its name, where that is possible
        numbers = ", ".join(f"{name} {cell}".replace(" ", "\0") for name, cell in pairs if cell)
        lines = textwrap.wrap(
            f"{words[-1]}: {numbers}",
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines:
            console.print(line.replace("\0", " "), markup=False)
    console.print()


class Progress:
    """A progress bar with the time left on stderr; nothing where stderr is no terminal.

    With ``required=False`` a missing rich is no error.
    """

    def __init__(self, label, total, required=True):
        self._bar = None
        if not sys.stderr.isatty():
            return
        try:
            rich = optional("rich.progress")
        except CommandError:
            if required:
                raise
            return
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(bar_width=None),
            rich.TaskProgressColumn(),
            rich.TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(label, total=total)

    def __enter__(self):
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error):
        if self._bar:
            self._bar.stop()

    def advance(self, amount=1, label=None):
        if self._bar:
            if label is None:
                self._bar.advance(self._task, amount)
            else:
                self._bar.update(self._task, advance=amount, description=label)


def number(value):
    """Three significant digits, more where the number has more before its point."""
    if not np.isfinite(value):
        return str(float(value))
    if abs(value) >= 1e6:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if value == 0:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{min(digits, 3)}f}"


# ---- pictures --------------------------------------------------------------------------------

# A qualitative palette that people with colour-vision deficiency can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")


def figure(**options):
    """A matplotlib figure that needs no display."""
    return optional("matplotlib.figure").Figure(layout="constrained", **options)


def save(made, path):
    made.savefig(path, dpi=120)
    if path.suffix.lower() == ".png":  # few colours: a palette takes a third of the room
        module = optional("PIL.Image")  # matplotlib needs it too
        with module.open(path) as picture:
            picture.convert("RGB").quantize(dither=module.Dither.NONE).save(path, optimize=True)
    print(f"wrote {path}", file=sys.stderr)
