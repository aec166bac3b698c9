# SPDX-License-Identifier: BSD-3-Clause
"""How many threads a call may use: the environment, the machine, and the functions that change it.

Also what is a large output, which goes past the caches.

Precedence: `num_threads` and `set_num_threads`, the later first; FASTGELU_NUM_THREADS; the least
of the CPUs that this process may run on, its cgroups' CPU quota and OMP_NUM_THREADS.
"""

import contextlib
import operator
import os
import threading
from pathlib import Path

from fastgelu import _ufuncs

__all__ = ["get_num_threads", "num_threads", "set_num_threads"]

MOST = 1024  # a typing error should not start ten thousand threads

# ---- the default ------------------------------------------------------------------------------


def affinity():
    """The number of CPUs that this process may run on."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # not on every system
        return os.cpu_count() or 1


def cgroup_quota(root="/"):
    """The CPUs that the cgroups of this process leave it, rounded down to at least 1, or None.

    Version 1 and version 2, and every level above the process's own. `root` is for tests.
    """
    root = Path(root)
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = []
    for membership in memberships:
        _, _, rest = membership.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in mounts:
            fields, _, kind = mount.partition(" - ")
            fields, kind = fields.split(), kind.split()
            if len(fields) < 5 or not kind:
                continue
            if controllers:
                matches = kind[0] == "cgroup" and "cpu" in kind[-1].split(",")
            else:
                matches = kind[0] == "cgroup2"
            if matches:
                found += quotas(root, fields[4], fields[3], path)
    return max(1, int(min(found))) if found else None


def quotas(root, mount_point, mount_root, path):
    """The quotas in one hierarchy, from the process's cgroup up to the mount's root."""
    if mount_root != "/":  # a container sees a part of the hierarchy only
        path = path[len(mount_root) :] if (path + "/").startswith(mount_root + "/") else ""
    names = [name for name in path.split("/") if name not in ("", "..")]
    for depth in range(len(names), -1, -1):
        group = Path(root, mount_point.lstrip("/"), *names[:depth])
        with contextlib.suppress(OSError, ValueError):
            if (group / "cpu.max").exists():
                quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
            else:
                quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8")
                period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8")
            if quota.strip() != "max" and int(quota) > 0 and int(period) > 0:
                yield int(quota) / int(period)


def count_in(variable, notes):
    """The number in an environment variable, or None; notes say why one is ignored."""
    text = os.environ.get(variable)
    if text is None:
        return None
    allowed = f"an integer from 1 to {MOST}"
    if variable == "OMP_NUM_THREADS":  # one for each level of nesting
        text_of_count, most = text.split(",")[0], None
        allowed = "a positive integer"
    else:
        text_of_count, most = text, MOST
    if text_of_count.strip().isascii() and text_of_count.strip().isdecimal():
        # more digits than int() takes are too many anyway
        count = int(text_of_count.strip()[:9])
        if count >= 1 and (most is None or count <= most):
            return count
    notes.append(f"{variable}={text!r} is ignored: it is not {allowed}")
    return None


def from_environment():
    """(count, whether that is exactly what was asked for, where it comes from, notes)"""
    notes = []
    asked = count_in("FASTGELU_NUM_THREADS", notes)
    if asked is not None:
        return asked, True, "FASTGELU_NUM_THREADS", notes
    choices = [
        (affinity(), "CPUs of this process"),
        (cgroup_quota(), "cgroup quota"),
        (count_in("OMP_NUM_THREADS", notes), "OMP_NUM_THREADS"),
    ]
    count, source = min((choice for choice in choices if choice[0]), key=lambda choice: choice[0])
    if count > MOST:
        count = MOST
    return count, False, source, notes


def last_level_cache(root="/"):
    """The size in bytes of the largest cache of the first CPU, or 0 where the system does not say.

    The C library's sysconf counts the caches of every core complex of some processors together.
    """
    sizes = []
    for file in Path(root, "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            text = file.read_text(encoding="ascii").strip()
            sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    return max(sizes, default=0)


def was_forked():
    """Whether this process was forked and has started no program since.

    Then another library may have started OpenMP's threads in the parent, though we were not there.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        return bool(int(stat.rpartition(")")[2].split()[6]) & 0x40)  # PF_FORKNOEXEC
    return False


# ---- the setting ------------------------------------------------------------------------------

_lock = threading.RLock()
_base = None  # (count, exactly, source)
_inner = []  # one list [count] for each num_threads() in effect, the latest last
_notes = []


def _apply():
    count, exactly = (_inner[-1][0], True) if _inner else _base[:2]
    _ufuncs.threads_set(count, not exactly)


def _start():
    global _base
    _ufuncs.threads_start(was_forked())
    _ufuncs.stream_above(last_level_cache())
    *_base, notes = from_environment()
    _notes.extend(notes)
    _apply()
    if notes:
        import logging

        for note in notes:
            # nothing there is as good as unset
            level = logging.INFO if "=''" in note else logging.WARNING
            logging.getLogger("fastgelu").log(level, note)


def _checked(n):
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"n must be an integer from 1 to {MOST}, not {n!r}") from None
    if not 1 <= count <= MOST:
        raise ValueError(f"n must be an integer from 1 to {MOST}, not {count}")
    return count


def set_num_threads(n):
    """Set how many threads a call of one of the functions may use, in the whole process.

    Parameters
    ----------
    n : int
        From 1 to 1024. It is taken as it is, also where the process has fewer CPUs. Within
        `num_threads` it holds until the end of that block.

    Raises
    ------
    TypeError
        `n` is not an integer.
    ValueError
        `n` is out of range.

    Notes
    -----
    Results do not depend on it, only the time. Only large arrays go to more than one thread. Calls
    from several threads at once share the `n`.

    A limit set for OpenMP afterwards, as by `threadpoolctl.threadpool_limits` or
    `torch.set_num_threads`, holds in the thread that sets it. A process made by ``fork``, and one
    built without OpenMP, always computes with one thread.
    """
    count = _checked(n)
    global _base
    with _lock:
        if _inner:
            _inner[-1][0] = count
        else:
            _base = (count, True, "set_num_threads")
        _apply()


def get_num_threads():
    """Tell how many threads a call from this thread may use now.

    Returns
    -------
    n : int
        What was set, or less where OpenMP is limited in this thread, after a ``fork``, and in a
        build without OpenMP.
    """
    return _ufuncs.threads_get()


@contextlib.contextmanager
def num_threads(n):
    """Change how many threads a call may use for a ``with`` block, in the whole process.

    Parameters
    ----------
    n : int
        As for `set_num_threads`. Of several blocks in effect, in one or more threads, the latest
        counts.

    Examples
    --------
    >>> import fastgelu
    >>> with fastgelu.num_threads(1):
    ...     fastgelu.get_num_threads()
    1
    """
    mine = [_checked(n)]
    with _lock:
        _inner.append(mine)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _inner[:] = [other for other in _inner if other is not mine]
            _apply()


def describe():
    """(where the number of threads comes from, OpenMP's version, notes), for show_config."""
    version = _ufuncs.openmp()
    openmp = f"{version // 100}-{version % 100:02}" if version else "not built in"
    if not version:
        return "built without OpenMP", openmp, list(_notes)
    if _ufuncs.threads_forked():
        return "serial after fork", openmp, list(_notes)
    with _lock:
        count, _, source = (_inner[-1][0], True, "num_threads") if _inner else _base
    now = get_num_threads()
    if now != count:
        source = f"OpenMP's limit in this thread; {source}: {count}"
    return source, openmp, list(_notes)


# A fork while another thread holds it would leave it locked in the child.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )
_start()
