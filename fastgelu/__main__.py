# SPDX-License-Identifier: BSD-3-Clause
"""The command line, ``python -m fastgelu`` or ``fastgelu``: one subcommand a module."""

import argparse
import os
import sys

from fastgelu import (
    _command,
    _command_accuracy,
    _command_apply,
    _command_bench,
    _command_info,
    _command_plot,
    _config,
)

# Each adds one subcommand, and sets `run` to what it does: run(options) returns the exit status.
COMMANDS = (
    _command_info.add_command,
    _command_apply.add_command,
    _command_accuracy.add_command,
    _command_bench.add_command,
    _command_plot.add_command,
    _config.add_command,
)


def make_parser():
    script = os.path.basename(sys.argv[0]).removesuffix(".exe") == "fastgelu"
    parser = argparse.ArgumentParser(
        prog="fastgelu" if script else "python -m fastgelu",
        description="Fast and accurate GELU and SiLU for NumPy arrays and for C.",
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    for add_command in COMMANDS:
        add_command(commands)
    return parser


def main(arguments=None):
    options = make_parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as of `| head`
        # what is left in the buffer must not fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("fastgelu: interrupted", file=sys.stderr)
        return 1
    except (OSError, _command.CommandError) as error:
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            error = f"{error.filename}: {error.strerror}"
        print(f"fastgelu: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
