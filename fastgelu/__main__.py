# SPDX-License-Identifier: BSD-3-Clause
"""The command line, ``python -m fastgelu``: one subcommand a module."""

import argparse
import sys

from fastgelu import _config

# Each adds one subcommand, and sets `run` to what it does: run(options) returns the exit status.
COMMANDS = (_config.add_command,)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m fastgelu",
        description="Fast and accurate GELU and SiLU for NumPy arrays and for C.",
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    for add_command in COMMANDS:
        add_command(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except FileNotFoundError as error:
        print(f"fastgelu: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
