# SPDX-License-Identifier: BSD-3-Clause
"""``python -m fastgelu plot``: the curves, their slopes, and how far the approximations are off."""

from pathlib import Path

import numpy as np

import fastgelu
from fastgelu import _command

LABELS = {
    "gelu": "GELU, exact",
    "gelu_tanh": "GELU, tanh form",
    "gelu_sigmoid": "GELU, sigmoid form",
    "silu": "SiLU",
}
STYLES = {"gelu": "-", "gelu_tanh": "--", "gelu_sigmoid": "-.", "silu": "-"}


def curves(axes, x, suffix, relu):
    axes.plot(x, relu, color="#7F7F7F", linestyle=":", label="ReLU")
    for form, colour in zip(_command.FORMS, _command.COLOURS):
        y = getattr(fastgelu, form + suffix)(x)
        axes.plot(x, y, color=colour, linestyle=STYLES[form], label=LABELS[form])
    axes.axhline(0, color="black", linewidth=0.5)
    axes.axvline(0, color="black", linewidth=0.5)
    axes.set_xlabel("x")
    axes.legend(loc="upper left")


def differences(axes, x, suffix):
    """The distance of each approximation from the exact form, and a mark where it is largest."""
    exact = getattr(fastgelu, "gelu" + suffix)(x)
    for form, colour in list(zip(_command.FORMS, _command.COLOURS))[1:3]:
        difference = np.abs(getattr(fastgelu, form + suffix)(x) - exact)
        worst = int(np.argmax(difference))
        axes.semilogy(
            x,
            np.maximum(difference, 1e-300),  # a zero has no logarithm
            color=colour,
            linestyle=STYLES[form],
            label=f"{LABELS[form]}: at most {difference[worst]:.3g}, at |x| = {abs(x[worst]):.2f}",
        )
        axes.plot(x[worst], difference[worst], "o", color=colour)
    axes.set_ylim(1e-8, 1)
    axes.set_xlabel("x")
    axes.legend(loc="upper center")
    axes.grid(alpha=0.3)


def draw():
    figure = _command.figure(figsize=(12, 9))
    (values, slopes), (off, off_slopes) = figure.subplots(2, 2)
    x = np.linspace(-4, 4, 4000)  # 0 is not among them, where ReLU has no slope
    curves(values, x, "", np.maximum(x, 0))
    values.set_title("Values")
    values.set_xlim(-4, 3)
    values.set_ylim(-0.5, 3)
    curves(slopes, x, "_grad", np.where(x > 0, 1.0, 0.0))
    slopes.set_title("Slopes")
    x = np.linspace(-6, 6, 6001)
    differences(off, x, "")
    off.set_title("Values: distance from the exact GELU")
    differences(off_slopes, x, "_grad")
    off_slopes.set_title("Slopes: distance from the exact GELU's")
    return figure


def run(options):
    _command.check_output(options.output)
    _command.save(draw(), options.output)
    return 0


def add_command(commands):
    """Add `plot` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "plot",
        help="a picture of the curves, their slopes and the approximations' distance",
        description="Draws GELU in its three forms and SiLU, with ReLU beside them, their slopes, "
        "and how far the approximations are from the exact form.",
    )
    parser.add_argument(
        "--output",
        type=_command.output_path(".png", ".svg", ".pdf"),
        default=Path("fastgelu.png"),
        metavar="FILE",
        help=".png, .svg or .pdf; an existing file is overwritten; default: fastgelu.png",
    )
    parser.set_defaults(run=run)
