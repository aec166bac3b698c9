# SPDX-License-Identifier: BSD-3-Clause
"""``python -m fastgelu apply``: a function of a .npy file of any size.

The input is a memory map, computed in chunks. The output is written, not mapped: a full disk is an
error where one writes, and ends the process by a signal where one maps. It goes to a temporary file
beside the output, which gets its name only when it is whole.
"""

import contextlib
import os
import signal
import stat
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import fastgelu
from fastgelu import _command
from fastgelu._command import CommandError

CHUNK = 16 << 20  # bytes of output: enough for every thread, and past the cost of a call


def open_input(path):
    """The array of a .npy file as a memory map."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would keep open() waiting
        raise CommandError(f"{path} is no regular file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers of old versions
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                version = np.lib.format.read_magic(file)
                if version == (1, 0):
                    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
                elif version == (2, 0):
                    shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
                else:  # (3, 0), which has no public reader: names of fields in UTF-8
                    raise CommandError(f"{path}: version {version} of the format is for records")
                start = file.tell()
    except (OSError, CommandError):
        raise
    except Exception as error:  # NumPy's parser of headers raises a dozen kinds
        reason = " ".join(str(error).split())[:120]
        raise CommandError(f"{path} is no .npy file, or a damaged one: {reason}") from error
    if dtype.hasobject:
        raise CommandError(f"{path} holds Python objects ({dtype}), not numbers")
    count = 1
    for length in shape:
        if length < 0:
            raise CommandError(f"{path} is damaged: its shape is {shape}")
        count *= length
    if size - start < count * dtype.itemsize:
        raise CommandError(
            f"{path} is truncated: {size - start:,} bytes of data, where its shape {shape} of "
            f"{dtype} has {count * dtype.itemsize:,}"
        )
    order = "F" if fortran else "C"
    if count == 0:
        return np.empty(shape, dtype, order)
    return np.memmap(path, dtype, "r", start, shape, order)


def as_numbers(x, path, wanted):
    """The input under its true dtype: NumPy writes bfloat16 as two raw bytes."""
    if x.dtype.kind != "V":
        return x
    bfloat16 = _command.numpy_dtype("bfloat16")
    if x.dtype == np.dtype("V2") and bfloat16 is not None:
        if wanted == "bfloat16":
            return x.view(bfloat16)
        raise CommandError(
            f"{path} holds {x.dtype}, raw bytes; if they are bfloat16, say --dtype bfloat16"
        )
    raise CommandError(f"{path} holds {x.dtype}, which are no numbers")


def result_dtype(function, x, path, wanted):
    """The dtype of the output, or an error that says why there is none."""
    if wanted is not None:
        # as for dtype= of a ufunc: no complex numbers, no strings
        if not np.can_cast(x.dtype, _command.numpy_dtype(wanted), "same_kind"):
            raise CommandError(f"{path} holds {x.dtype}, which cannot become {wanted}")
        return _command.numpy_dtype(wanted)
    try:
        return function.resolve_dtypes((x.dtype, None))[-1].newbyteorder("=")
    except TypeError as error:
        raise CommandError(
            f"{path} holds {x.dtype}, which {function.__name__} does not take"
        ) from error


def header(shape, dtype, fortran):
    """What comes before the data."""
    import io

    file = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(dtype)
        if dtype.kind != "V"
        else f"<V{dtype.itemsize}",
        "fortran_order": fortran,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def write_all(function, x, dtype, file, label):
    """Compute x chunk by chunk into a file."""
    fortran = x.flags.f_contiguous and not x.flags.c_contiguous
    file.write(header(x.shape, dtype, fortran))
    flat = x.reshape(-1, order="F" if fortran else "C")
    step = max(1, CHUNK // dtype.itemsize)
    out = np.empty(min(step, flat.size), dtype)
    with _command.Progress(label, flat.size, required=False) as bar, np.errstate(all="ignore"):
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            y = out[: part.size]
            function(part, out=y, dtype=dtype, casting="same_kind")
            file.write(memoryview(y.view(np.uint8)))
            bar.advance(part.size)


@contextlib.contextmanager
def signals_as_interrupts():
    """SIGTERM and SIGHUP raise KeyboardInterrupt, so that they too leave nothing behind."""

    def stop(*_):
        raise KeyboardInterrupt

    before = {}
    try:
        for name in ("SIGTERM", "SIGHUP"):
            with contextlib.suppress(AttributeError, ValueError):  # no such signal; no main thread
                which = getattr(signal, name)
                if signal.getsignal(which) is not signal.SIG_IGN:  # as under nohup
                    before[which] = signal.signal(which, stop)
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def mode_of(path):
    """The permissions of the output: those it has, or those of a new file."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def give_name(temporary, path, force):
    """Rename into place; without force not over a file that has come in the meantime."""
    if not force:
        try:
            os.link(temporary, path)  # unlike a rename, it fails where there is a file
            os.unlink(temporary)
            return
        except FileExistsError:
            raise
        except OSError:  # no hard links there
            if path.exists():
                raise FileExistsError from None
    os.replace(temporary, path)


def run(options):
    function = getattr(fastgelu, options.function)
    source, target = Path(options.input), Path(options.output)
    exists = CommandError(f"{target} exists; --force overwrites it")
    if os.path.lexists(target):
        if target.exists() and not target.is_file():
            raise CommandError(f"{target} is no regular file")
        if not options.force:
            raise exists
    if not target.parent.is_dir():
        raise CommandError(f"{target.parent} is no folder: {target.name} cannot be written there")
    x = as_numbers(open_input(source), source, options.dtype)
    dtype = result_dtype(function, x, source, options.dtype)
    final = Path(os.path.realpath(target))  # a link stays one
    with signals_as_interrupts():
        temporary = None
        try:
            descriptor, temporary = tempfile.mkstemp(".part", f".{final.name}.", final.parent)
            with open(descriptor, "wb", buffering=0) as raw:
                file = Whole(raw)
                write_all(function, x, dtype, file, f"{options.function} {target.name}")
                if hasattr(os, "fchmod"):
                    os.fchmod(raw.fileno(), mode_of(final))
                os.fsync(raw.fileno())
            give_name(temporary, final, options.force)
            temporary = None
        except FileExistsError:
            raise exists from None
        except OSError as error:
            raise CommandError(f"{target} cannot be written: {error.strerror}") from error
        except MemoryError as error:
            raise CommandError(f"not enough memory for a chunk of {CHUNK:,} bytes") from error
        finally:
            if temporary is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
    print(f"{target}: {x.size:,} elements, {x.dtype} -> {dtype}", file=sys.stderr)
    return 0


class Whole:
    """An unbuffered file whose write writes all: a full disk may take a part first."""

    def __init__(self, raw):
        self._raw = raw

    def write(self, data):
        data = memoryview(data)
        while len(data):
            data = data[self._raw.write(data) :]


def add_command(commands):
    """Add `apply` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "apply",
        help="a function of a .npy file of any size",
        description="Computes a function of every element of a .npy file, in chunks, so that the "
        "file may be larger than the memory. OUT.npy is there when it is whole, or not at all.",
    )
    names = _command.registry_names((1,))
    parser.add_argument(
        "function", choices=names, metavar="FUNCTION", help=f"one of {', '.join(names)}"
    )
    parser.add_argument("input", metavar="IN.npy")
    parser.add_argument("output", metavar="OUT.npy")
    parser.add_argument(
        "--dtype",
        choices=_command.registry_dtypes(),
        help="of the computation and of OUT.npy; default: as the function has it for the "
        "input's. bfloat16 is stored as NumPy stores it: as raw bytes of dtype V2",
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT.npy")
    parser.set_defaults(run=run)
