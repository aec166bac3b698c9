# SPDX-License-Identifier: BSD-3-Clause
"""Threads: the same bits for any number, the settings, limits, forks, exits, floating-point flags.

What starts threads or forks runs in a process of its own, which an alarm ends should it hang.
"""

import ctypes
import ctypes.util
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import oracle
import pytest

import fastgelu
from fastgelu import _threads, _ufuncs

SERIAL = fastgelu.show_config("dicts")["openmp"] == "not built in"
needs_openmp = pytest.mark.skipif(SERIAL, reason="this fastgelu was built without OpenMP")
needs_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc, which is Linux's"
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def several(n):
    """What get_num_threads says after n was asked for."""
    return 1 if SERIAL else n


@pytest.fixture
def small_pieces():
    """Arrays of some thousand elements are split already."""
    before = _ufuncs.threads_piece(1024)
    yield
    _ufuncs.threads_piece(before)


def same(got, want):
    return got.dtype == want.dtype and np.array_equal(oracle.bits_of(got), oracle.bits_of(want))


def arguments(entry, n, rng):
    x = rng.normal(0, 3, (entry.inputs, n))
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 30.0, -30.0]
    x[-1, rng.integers(0, n, len(special))] = special
    with np.errstate(all="ignore"):
        return [row.astype(np.dtype(entry.dtype.replace("f", "float"))) for row in x]


# What the processes below share.
PREAMBLE = """
import functools, os, signal, sys, threading, time
import numpy as np
signal.alarm(60)

def tasks():
    return len(os.listdir("/proc/self/task"))

@functools.cache  # drawing them takes longer than all else
def data(n=1 << 23):
    return np.random.default_rng(1).normal(size=n).astype(np.float32)

def check(x=None):
    import fastgelu
    x = data() if x is None else x
    got = fastgelu.gelu(x)
    part = np.concatenate([fastgelu.gelu(x[i : i + 1000]) for i in range(0, len(x), 1000)])
    assert np.array_equal(got.view("u4"), part.view("u4"))
    return got

def in_child(do):
    # forks, and fails unless the child ends with 0
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            do()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.fixture
def run(run_python):
    def start(source, *args, **environment):
        return run_python(PREAMBLE + source, *args, **environment)

    return start


# ---- results ----------------------------------------------------------------------------------


def test_same_bits_for_any_number_of_threads(entry, rng, small_pieces):
    for n in (1023, 4096, 20_011):
        args = arguments(entry, n, rng)
        with fastgelu.num_threads(1):
            want = entry.ufunc(*args)
        for count in (2, 3, 7):
            with fastgelu.num_threads(count):
                assert same(entry.ufunc(*args), want), (n, count)
                in_place = args[-1].copy()
                entry.ufunc(*args[:-1], in_place, out=in_place)
                assert same(in_place, want), (n, count)


@pytest.mark.parametrize("n", [(1 << 16) + 5, (9 << 20) + 5])
def test_same_bits_at_full_size(rng, n):
    """With the true thresholds, past the last-level cache too."""
    x = rng.normal(0, 3, n).astype(np.float32)
    with fastgelu.num_threads(1):
        want = fastgelu.gelu_tanh(x)
    for count in (2, 3, 7):
        with fastgelu.num_threads(count):
            for _ in range(4):  # the first may not wake workers
                assert same(fastgelu.gelu_tanh(x), want), count


@pytest.mark.parametrize("step", [2, -1, -3])
def test_same_bits_with_strides(entry, rng, small_pieces, step):
    args = [arg[::step] for arg in arguments(entry, 30_000, rng)]
    want = entry.ufunc(*(arg.copy() for arg in args))
    out = np.zeros(3 * len(want), want.dtype)
    with fastgelu.num_threads(3):
        assert same(entry.ufunc(*args), want)
        entry.ufunc(*args, out=out[::3])
    assert same(out[::3].copy(), want) and not out[1::3].any() and not out[2::3].any()


@pytest.mark.parametrize("code", "?bHiq")
def test_same_bits_for_integers(code, rng, small_pieces):
    x = rng.integers(0, 2 if code == "?" else 40, 20_011).astype(code)
    want = fastgelu.silu(x.astype(float))
    with fastgelu.num_threads(3):
        assert same(fastgelu.silu(x), want)
        if x.itemsize == 8:  # in place, element for element
            y = x.copy()
            fastgelu.silu(y, out=y.view(float))
            assert same(y.view(float), want)


def test_operands_that_overlap_are_still_taken_in_turn(rng, small_pieces):
    x = rng.uniform(0.5, 1, 5000)
    with fastgelu.num_threads(1):
        want = fastgelu.silu_backward.accumulate(x)
        shifted = fastgelu.silu(x[:-1])
    with fastgelu.num_threads(3):
        assert same(fastgelu.silu_backward.accumulate(x), want)
        array = x.copy()
        fastgelu.silu(array[:-1], out=array[1:])
        assert same(array[1:], shifted)


def test_stores_past_the_caches(entry, rng):
    """Every alignment and length: the same bits, and nothing else is written."""
    args = arguments(entry, 300, rng)
    want = entry.ufunc(*args)
    before = _ufuncs.stream_above(1)
    try:
        for offset in range(34):
            for n in (1, 2, 15, 31, 33, 100, 300 - offset):
                out = np.full(400, 77, want.dtype)
                entry.ufunc(*(arg[:n] for arg in args), out=out[offset : offset + n])
                assert same(out[offset : offset + n], want[:n]), (offset, n)
                assert (out[:offset] == 77).all() and (out[offset + n :] == 77).all()
        in_place = args[-1].copy()
        entry.ufunc(*args[:-1], in_place, out=in_place)
        assert same(in_place, want)
    finally:
        assert _ufuncs.stream_above(before) == 1


def test_the_last_level_cache_is_what_decides(tmp_path):
    assert _ufuncs.stream_above() == (_threads.last_level_cache() or 32 << 20)
    assert 256 << 10 <= _ufuncs.stream_above() <= 4 << 30
    for index, size in enumerate(["48K\n", "2048K\n", "33M\n", "", "what"]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size, encoding="ascii")
    assert _threads.last_level_cache(tmp_path) == 33 << 20
    assert _threads.last_level_cache(tmp_path / "nothing") == 0


# ---- workers ----------------------------------------------------------------------------------

WORKERS = """
main = set(os.listdir("/proc/self/task"))

def workers():
    return [int(tid) for tid in sorted(set(os.listdir("/proc/self/task")) - main)]

def status(tid, name):
    for line in open(f"/proc/self/task/{tid}/status"):
        if line.startswith(name + ":"):
            return line.split()[1]
"""


@needs_openmp
@needs_proc
def test_large_arrays_do_go_to_threads(run):
    """And small ones do not; nor does the import start any, nor a call with one thread."""
    printed = run(
        """
alone = tasks()
import fastgelu
assert tasks() == alone
fastgelu.set_num_threads(1)
fastgelu.gelu(data())
assert tasks() == alone
fastgelu.set_num_threads(3)
fastgelu.gelu(data(1 << 14))
assert tasks() == alone
fastgelu.gelu(data(1 << 15))
print(tasks() - alone)
for dtype in (np.float32, np.float64, np.int8, "c"):
    fastgelu.gelu(data() if dtype == "c" else data().astype(dtype))
    print(tasks() - alone)
fastgelu.set_num_threads(2)
fastgelu.gelu(data())
print(tasks() - alone)
"""
    )
    assert printed.split() == ["1"] + ["2"] * 5


@needs_openmp
@needs_proc
def test_workers_take_no_signals(run):
    run(
        WORKERS
        + """
import fastgelu
fastgelu.set_num_threads(3)
before = status(os.getpid(), "SigBlk")
fastgelu.gelu(data())
assert status(os.getpid(), "SigBlk") == before
masks = [int(status(tid, "SigBlk"), 16) for tid in workers()]
assert len(masks) == 2
faults = {getattr(signal, "SIG" + s) for s in ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS")}
for sig in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    assert all((mask >> sig - 1 & 1) == (sig not in faults) for mask in masks), sig
"""
    )


@needs_openmp
@needs_proc
def test_workers_run_where_the_process_may(run):
    """Not only where the thread may whose call has started them; and where others say later."""
    run(
        WORKERS
        + """
import threading
import fastgelu
fastgelu.set_num_threads(2)
every = os.sched_getaffinity(0)
x = data()
def first():
    os.sched_setaffinity(0, {min(every)})
    fastgelu.gelu(x)
thread = threading.Thread(target=first)
thread.start()
thread.join()
(worker,) = set(workers()) - {thread.native_id}
time.sleep(0.1)  # asleep by then
mask = os.sched_getaffinity(worker)
assert mask >= every - {min(every)}, mask
narrow = {max(every)} if mask != {max(every)} else {min(every)}
os.sched_setaffinity(worker, narrow)
for _ in range(20):
    fastgelu.gelu(x)
assert os.sched_getaffinity(worker) == narrow, (mask, narrow, os.sched_getaffinity(worker))
"""
    )


@needs_openmp
def test_pieces_of_any_size(rng):
    x = rng.normal(0, 3, 5000).astype(np.float64)
    want = fastgelu.gelu(x)
    before = _ufuncs.threads_piece(1)
    with fastgelu.num_threads(3):
        got = fastgelu.gelu(x)
    _ufuncs.threads_piece(before)
    assert same(got, want)


@needs_openmp
@needs_proc
def test_no_memory_for_a_worker(run):
    """Then the caller computes alone."""
    run(
        """
import resource
import fastgelu
x = data()
out = np.empty_like(x)
want = check()
fastgelu.set_num_threads(40)
alone = tasks()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    fastgelu.gelu(x, out=out)
used = tasks() - alone
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
assert np.array_equal(out, want) and used < 39 - 1, used
""",
        FASTGELU_NUM_THREADS="1",
    )


@needs_openmp
@needs_proc
def test_who_is_woken(run):
    """Workers sleep soon, and single calls of middle-sized work let them; large work does not."""
    printed = run(
        WORKERS
        + """
import fastgelu
fastgelu.set_num_threads(2)
fastgelu.gelu(data())
[worker] = workers()
def switches(n, calls, most):
    before = int(status(worker, "voluntary_ctxt_switches"))
    end, count = time.monotonic() + 20, 0
    while calls > 0 or count < most and time.monotonic() < end:
        time.sleep(0.002)
        fastgelu.gelu(data(n))
        calls -= 1
        count = int(status(worker, "voluntary_ctxt_switches")) - before
    return count
print(switches(1 << 16, 50, 0))
print(switches(1 << 20, 50, 20))  # more than 50 where others keep it from its CPU
before = float(open(f"/proc/self/task/{worker}/schedstat").read().split()[0])
time.sleep(0.2)
print(float(open(f"/proc/self/task/{worker}/schedstat").read().split()[0]) - before)
"""
    )
    middle, large, spun = map(float, printed.split())
    assert middle <= 10 and large >= 20 and spun < 1e6


@needs_openmp
@needs_proc
@pytest.mark.skipif(
    _threads.affinity() < 2 or not hasattr(os, "SCHED_IDLE"),
    reason="needs two CPUs, and Linux's policy for what may wait",
)
def test_a_worker_without_a_cpu_is_not_waited_for(run):
    """It may run where another process does, and only when that one does not."""
    printed = run(
        WORKERS
        + """
import fastgelu, statistics
x = data(1 << 19)
y = np.empty_like(x)
def call(threads):
    fastgelu.set_num_threads(threads)
    start = time.perf_counter()
    fastgelu.gelu(x, out=y)
    return time.perf_counter() - start
call(2)
[worker] = workers()
ours, its = sorted(os.sched_getaffinity(0))[:2]
busy = os.fork()
if busy == 0:
    os.sched_setaffinity(0, {its})
    while os.getppid() != 1:
        pass
    os._exit(0)
os.sched_setaffinity(0, {ours})
os.sched_setaffinity(worker, {its})
os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0))
time.sleep(0.05)
times = [[call(threads) for threads in (1, 2)] for _ in range(100)]
os.kill(busy, signal.SIGKILL)
print(*map(statistics.median, zip(*times)))
"""
    )
    alone, together = map(float, printed.split())
    assert together < 2 * alone


@needs_openmp
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("alone", [[], ["-DFG_ALONE=0"]], ids=["waiting", "stress"])
def test_workers_under_a_sanitizer(tmp_path, sanitizer, alone):
    """Callers with all kinds of work, which is gone when they have returned; and workers that keep
    them waiting."""
    tests = Path(__file__).parent
    sources = [tests / "workers.c", tests.parent / "fastgelu" / "_workers.c"]
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sources[1].exists():
        pytest.skip("needs gcc or clang, and the sources of the package")
    flags = ["-g", "-O1", "-std=c11", "-D_GNU_SOURCE", "-D_OPENMP=201511", "-Wall", "-Wextra"]
    flags += ["-Werror", f"-fsanitize={sanitizer}", f"-I{sources[1].parent}", *alone]
    program = tmp_path / "workers"
    done = subprocess.run(
        [compiler, *flags, *sources, "-o", program, "-lm", "-lpthread"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 and "cannot find" in done.stderr:
        pytest.skip(f"{compiler} has no -fsanitize={sanitizer} here")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], capture_output=True, text=True, timeout=100)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the sanitizer cannot run under this kernel's layout of memory")
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def test_eight_python_threads_at_once(rng, small_pieces):
    arrays = [rng.normal(0, 3, 200_000).astype(np.float32) for _ in range(8)]
    with fastgelu.num_threads(1):
        want = [fastgelu.gelu(x) for x in arrays]
    wrong = []

    def work(i):
        for _ in range(20):
            if not same(fastgelu.gelu(arrays[i]), want[i]):
                wrong.append(i)

    with fastgelu.num_threads(3):
        threads = [threading.Thread(target=work, args=[i]) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# ---- the settings -----------------------------------------------------------------------------


def test_set_and_get():
    before = fastgelu.get_num_threads()
    with fastgelu.num_threads(2):
        assert fastgelu.get_num_threads() == several(2)
        with fastgelu.num_threads(np.int64(5)):
            assert fastgelu.get_num_threads() == several(5)
            fastgelu.set_num_threads(7)
            assert fastgelu.get_num_threads() == several(7)
            assert fastgelu.show_config("dicts")["threads"] == several(7)
        assert fastgelu.get_num_threads() == several(2)
    assert fastgelu.get_num_threads() == before


def test_set_stays_and_is_the_processs(run):
    source = "built without OpenMP" if SERIAL else "set_num_threads"
    run(
        f"""
import fastgelu
fastgelu.set_num_threads(5)
with fastgelu.num_threads(2):
    pass
seen = []
thread = threading.Thread(target=lambda: seen.append(fastgelu.get_num_threads()))
thread.start(); thread.join()
assert [fastgelu.get_num_threads()] == seen == [{several(5)}], seen
assert "{source}" == fastgelu.show_config("dicts")["threads_from"]
"""
    )


@pytest.mark.parametrize("function", [fastgelu.set_num_threads, fastgelu.num_threads])
@pytest.mark.parametrize("n", [0, -1, 1025, 10**30])
def test_a_number_out_of_range(function, n):
    before = fastgelu.get_num_threads()
    with (
        pytest.raises(ValueError, match=f"from 1 to 1024, not {n}$"),
        function(n) or open(os.devnull),
    ):
        pass
    assert fastgelu.get_num_threads() == before


@pytest.mark.parametrize("function", [fastgelu.set_num_threads, fastgelu.num_threads])
@pytest.mark.parametrize("n", ["two", "2", 2.0, None])
def test_no_number(function, n):
    with (
        pytest.raises(TypeError, match="integer from 1 to 1024, not "),
        function(n) or open(os.devnull),
    ):
        pass


@needs_openmp
def test_blocks_of_several_threads_leave_nothing_behind():
    """The one that was entered first is left first."""
    before = fastgelu.get_num_threads()
    first, second = fastgelu.num_threads(3), fastgelu.num_threads(6)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert fastgelu.get_num_threads() == 6
    second.__exit__(None, None, None)
    assert fastgelu.get_num_threads() == before


REPORT = """
import logging
records = []
class Handler(logging.Handler):
    def emit(self, record):
        records.append((record.name, record.getMessage()))
logging.getLogger("fastgelu").addHandler(Handler())
logging.getLogger("fastgelu").setLevel(logging.INFO)
import fastgelu
config = fastgelu.show_config("dicts")
check()
import json
print(json.dumps([config["threads"], config["threads_from"], config["ignored"], records]))
"""


def report(run, **environment):
    import json

    clean = {"OMP_NUM_THREADS": "", "FASTGELU_NUM_THREADS": ""}
    source = "\n".join(
        f"os.environ.pop({name!r}, None)" for name in clean if name not in environment
    )
    count, source, ignored, records = json.loads(run(source + REPORT, **environment))
    assert records == [["fastgelu", note] for note in ignored]
    return count, source, ignored


def default():
    return min(_threads.affinity(), _threads.cgroup_quota() or 1024, 1024)


@pytest.mark.parametrize("value", ["", "0", "-1", "abc", "4,2", "99999", "2.0", "٣", "9" * 5000])
def test_bad_values_are_ignored_and_told(run, value):
    count, source, ignored = report(run, FASTGELU_NUM_THREADS=value)
    assert count == several(default())
    assert ignored == [
        f"FASTGELU_NUM_THREADS={value!r} is ignored: it is not an integer from 1 to 1024"
    ]
    assert source != "FASTGELU_NUM_THREADS"


@pytest.mark.parametrize("value", ["", "0", "-1", "abc"])
def test_bad_values_of_openmps_variable(run, value):
    count, source, ignored = report(run, OMP_NUM_THREADS=value)
    # LLVM's runtime makes one thread of it
    assert count == several(default()) or (count == 1 and "limit" in source)
    assert ignored == [f"OMP_NUM_THREADS={value!r} is ignored: it is not a positive integer"]


@pytest.mark.parametrize("value, want", [("1", 1), ("1,7", 1), ("4,2", 4), ("99999", 99999)])
def test_openmps_variable_only_lowers(run, value, want):
    count, source, ignored = report(run, OMP_NUM_THREADS=value)
    assert count == several(min(default(), want)) and not ignored
    if want < default() and not SERIAL:
        assert source == "OMP_NUM_THREADS"


@pytest.mark.parametrize("value", ["1", "3", " 5 "])
def test_our_variable_goes_before_openmps(run, value):
    count, source, ignored = report(run, FASTGELU_NUM_THREADS=value, OMP_NUM_THREADS="2")
    assert count == several(int(value)) and not ignored
    assert source == ("built without OpenMP" if SERIAL else "FASTGELU_NUM_THREADS")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_is_the_default_and_not_a_limit(run):
    run(
        f"""
os.environ.pop("OMP_NUM_THREADS", None); os.environ.pop("FASTGELU_NUM_THREADS", None)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import fastgelu
assert fastgelu.get_num_threads() == 1
fastgelu.set_num_threads(3)
assert fastgelu.get_num_threads() == {several(3)}
alone = tasks()
check()
assert tasks() == alone + {several(3) - 1}, tasks()
"""
    )


def cgroup(root, membership, mounts, files):
    for name, text in {
        "proc/self/cgroup": membership,
        "proc/self/mountinfo": mounts,
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return _threads.cgroup_quota(root)


V1 = "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    "quota, want",
    [("max 100000", None), ("250000 100000", 2), ("50000 100000", 1), ("400000 100000", 4)],
)
def test_quota_of_cgroup_version_2(tmp_path, quota, want):
    files = {"sys/fs/cgroup/user/job/cpu.max": quota + "\n"}
    assert cgroup(tmp_path, "0::/user/job\n", V2, files) == want


def test_quota_of_an_outer_cgroup(tmp_path):
    files = {
        "sys/fs/cgroup/user/job/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/user/cpu.max": "300000 100000\n",
    }
    assert cgroup(tmp_path, "0::/user/job\n", V2, files) == 3


@pytest.mark.parametrize("quota, want", [("-1", None), ("150000", 1), ("700000", 7)])
def test_quota_of_cgroup_version_1(tmp_path, quota, want):
    files = {
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": quota + "\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
    }
    assert cgroup(tmp_path, "4:cpu,cpuacct:/job\n3:memory:/job\n", V1, files) == want


def test_quota_inside_a_container(tmp_path):
    """It sees its own cgroup mounted as the root, and perhaps its path outside."""
    mounts = V2.replace(" / ", " /docker/1234 ", 1)
    files = {"sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert cgroup(tmp_path, "0::/docker/1234\n", mounts, files) == 2
    assert cgroup(tmp_path, "0::/\n", V2, files) == 2


@pytest.mark.parametrize("membership", ["", "nonsense", "0::/../../x\n", "1:cpu\n"])
def test_cgroup_files_that_say_nothing(tmp_path, membership):
    assert cgroup(tmp_path, membership, V2 + "short\n", {}) is None
    assert cgroup(tmp_path, membership, V2, {"sys/fs/cgroup/cpu.max": "a b c\n"}) is None
    assert _threads.cgroup_quota(tmp_path / "nothing") is None


# ---- other packages' limits -------------------------------------------------------------------


@needs_openmp
@needs_proc
def test_threadpoolctl_sees_and_limits(run):
    pytest.importorskip("threadpoolctl", reason="threadpoolctl (pip install threadpoolctl)")
    run(
        """
import fastgelu
from threadpoolctl import threadpool_info, threadpool_limits
assert any(info["user_api"] == "openmp" for info in threadpool_info())
alone = tasks()
default = fastgelu.get_num_threads()
with threadpool_limits(1, user_api="openmp"):
    assert fastgelu.get_num_threads() == 1
    check()
    assert tasks() == alone
assert fastgelu.get_num_threads() == default
# what was asked for is limited too, also to what was OpenMP's default
for asked in (4, 7):
    for limit in (1, 2, 3):
        fastgelu.set_num_threads(asked)
        with threadpool_limits(limit, user_api="openmp"):
            assert fastgelu.get_num_threads() == limit, (asked, limit)
            check()
            assert "limit" in fastgelu.show_config("dicts")["threads_from"]
        assert fastgelu.get_num_threads() == asked
# a later wish counts, and is not lost with the limit
with threadpool_limits(1, user_api="openmp"):
    fastgelu.set_num_threads(5)
assert fastgelu.get_num_threads() == 5
""",
        OMP_NUM_THREADS="2",
    )


@needs_openmp
@needs_proc
def test_concurrent_callers_share_the_threads(run):
    """Eight callers, and the workers of one."""
    printed = run(
        """
import fastgelu
fastgelu.set_num_threads(3)
x = data()
most = 0
together = threading.Barrier(8)
def work():
    together.wait()
    for _ in range(10):
        fastgelu.gelu(x)
alone = tasks()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads):
    most = max(most, tasks() - alone)
    time.sleep(0.0005)
for thread in threads: thread.join()
print(most)
"""
    )
    assert 8 <= int(printed) <= 8 + 2


@needs_openmp
@needs_proc
def test_as_many_callers_as_threads_have_no_workers(run):
    printed = run(
        WORKERS
        + """
import fastgelu
fastgelu.set_num_threads(3)
x = data(1 << 21)
fastgelu.gelu(x)
theirs = workers()
together = threading.Barrier(3)
def work():
    y = np.empty_like(x)
    together.wait()
    for _ in range(100):
        fastgelu.gelu(x, out=y)
def used():
    return sum(int(open(f"/proc/self/task/{t}/schedstat").read().split()[0]) for t in theirs)
before, start = used(), time.process_time_ns()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print((used() - before) / (time.process_time_ns() - start))
"""
    )
    assert float(printed) < 0.15


@needs_proc
@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_joblib_processes_keep_to_their_share(run, backend):
    pytest.importorskip("joblib", reason="joblib (pip install joblib)")
    printed = run(
        f"""
import joblib
def job(i):
    import os, threading
    import numpy as np
    import fastgelu
    alone = len(os.listdir("/proc/self/task"))
    x = np.random.default_rng(i).normal(size=1 << 20).astype(np.float32)
    fastgelu.gelu(x)
    return len(os.listdir("/proc/self/task")) - alone + 1, fastgelu.gelu(x)[:5].tolist()
if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    cpus = joblib.cpu_count()
    for used, values in joblib.Parallel(n_jobs=cpus, backend={backend!r})(
        joblib.delayed(job)(i) for i in range(4)
    ):
        print(used)
"""
    )
    assert printed.split() == ["1"] * 4


def test_dask_threads_give_the_same(rng):
    array = pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    x = rng.normal(size=1 << 21).astype(np.float32)
    lazy = fastgelu.gelu(array.from_array(x, chunks=1 << 18))
    assert same(lazy.compute(scheduler="threads", num_workers=2), fastgelu.gelu(x))


# ---- fork -------------------------------------------------------------------------------------

CHILD = """
def child():
    import fastgelu
    alone = tasks()
    check()
    fastgelu.set_num_threads(4)
    check()
    assert fastgelu.get_num_threads() == 1 and tasks() == alone == 1
    assert fastgelu.show_config("dicts")["threads"] == 1
"""


@needs_fork
@needs_proc
def test_fork_after_a_call(run):
    run(
        CHILD
        + """
import fastgelu
fastgelu.set_num_threads(3)
want = check()
in_child(child)
def nested():
    child()
    in_child(child)
in_child(nested)
for _ in range(20):
    in_child(lambda: fastgelu.silu(data()))
assert np.array_equal(check(), want) and fastgelu.get_num_threads() == """
        + str(several(3))
    )


@needs_fork
@needs_proc
@pytest.mark.parametrize("n", [1 << 16, 1 << 22])
def test_fork_during_a_call_of_another_thread(run, n):
    run(
        CHILD
        + f"""
import fastgelu
fastgelu.set_num_threads(2)
x = data({n})
stop = False
def work():
    while not stop:
        fastgelu.gelu(x)
thread = threading.Thread(target=work)
thread.start()
def alone_child():
    signal.alarm(20)
    check(x[: 1 << 16])
    assert fastgelu.get_num_threads() == 1
for _ in range(20):
    in_child(alone_child)
stop = True
thread.join()
"""
    )


OTHER = """
#include <omp.h>
int team(void) {
    int count = 0;
#pragma omp parallel num_threads(3) reduction(+ : count)
    count += 1;
    return count;
}
"""


@pytest.fixture
def other_library(tmp_path):
    """The path of a library that uses the same OpenMP runtime as fastgelu."""
    name = "gcc" if fastgelu.show_config("dicts")["compiler"].startswith("gcc") else "clang"
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} to build another library with")
    (tmp_path / "other.c").write_text(OTHER, encoding="utf-8")
    command = [name, "-shared", "-fPIC", "-fopenmp", "other.c", "-o", "other.so", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{name} has no OpenMP here: {done.stderr.splitlines()[0]}")
    return str(tmp_path / "other.so")


@needs_fork
@needs_openmp
@needs_proc
@pytest.mark.parametrize("imported", ["in the parent", "in the child"])
def test_fork_where_only_another_library_has_used_openmp(run, other_library, imported):
    """Its runtime is ours, and its threads are gone in the child."""
    run(
        CHILD
        + f"""
import ctypes
if {imported == "in the parent"}:
    import fastgelu
assert ctypes.CDLL({other_library!r}).team() == 3
in_child(child)
assert tasks() > 1
"""
    )


@needs_fork
@needs_proc
def test_fork_where_scipys_blas_has_threads(run):
    pytest.importorskip("scipy", reason="SciPy (pip install scipy)")
    run(
        CHILD
        + """
import scipy.linalg.blas
scipy.linalg.blas.dgemm(1.0, np.ones((600, 600)), np.ones((600, 600)))
import fastgelu
def alone_child():
    check()
    assert fastgelu.get_num_threads() == 1
in_child(alone_child)
"""
    )


@needs_fork
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_fork_where_torch_has_threads(run):
    run(
        """
import warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(3)
torch.nn.functional.gelu(torch.ones(1 << 22))
def alone_child():
    import fastgelu
    check()
    assert fastgelu.get_num_threads() == 1
in_child(alone_child)
import fastgelu
check()
in_child(alone_child)
"""
    )


POOL = """
import multiprocessing
def job(i):
    import fastgelu
    signal.alarm(60)
    return fastgelu.get_num_threads(), check(data(1 << 18) + i).sum()
if __name__ == "__main__":
    import fastgelu
    fastgelu.set_num_threads(2)
    want = [check(data(1 << 18) + i).sum() for i in range(4)]
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        counts, got = zip(*pool.map(job, range(4)))
    assert list(got) == want
    print(set(counts))
"""


@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_pools(tmp_path, method):
    script = tmp_path / "pool.py"
    script.write_text(PREAMBLE + POOL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", script, method],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    # forkserver's children are forked too
    of_its_own = min(several(2), default())
    assert done.stdout.strip() == str({of_its_own if method == "spawn" else 1})


# ---- exit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads, n", [(1, 1 << 23), (3, 1 << 16), (3, 1 << 23)])
def test_exit_with_a_call_in_flight(run, threads, n):
    source = f"""
import fastgelu
fastgelu.set_num_threads({threads})
x = data({n}).astype(np.float64)
started = threading.Event()
def work():
    while True:
        started.set()
        fastgelu.gelu_grad(x, out=x)
threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
print(time.time())
"""
    for _ in range(3):
        ended = float(run(source))
        assert time.time() - ended < 10  # not after the call that would last for ever


# ---- the floating-point environment -----------------------------------------------------------


@pytest.mark.parametrize("n", [100, 100_000, 10_000_000])
def test_an_overflow_is_told_for_any_size(n):
    x = np.full(n, 1.5, np.float32)  # the slope is 1.13
    dy = np.ones(n, np.float32)
    with fastgelu.num_threads(3), np.errstate(over="raise"):
        fastgelu.gelu_backward(dy, x)
        for place in np.linspace(0, n - 1, 9).astype(int):
            dy[place] = 3.4e38
            with pytest.raises(FloatingPointError, match="overflow"):
                fastgelu.gelu_backward(dy, x, out=np.empty_like(x))
            dy[place] = 1
        fastgelu.gelu_backward(dy, x)


def test_no_flag_is_made_up(rng):
    x = rng.normal(0, 30, 3_000_000).astype(np.float32)
    x[::1000] = np.inf
    with fastgelu.num_threads(3), np.errstate(over="raise", invalid="raise", divide="raise"):
        fastgelu.gelu(x)


def libm():
    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


GLIBC_X86 = platform.machine() in ("x86_64", "AMD64") and platform.libc_ver()[0] == "glibc"


@pytest.fixture(params=["downward", "flush to zero"])
def odd_environment(request):
    """A function that enters it, in the calling thread."""
    if not GLIBC_X86:
        pytest.skip("the layout of fenv_t is known here for glibc on x86-64 only")
    math = libm()
    default, changed = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
    math.fegetenv(default)
    math.fegetenv(changed)
    bits = 0x2000 if request.param == "downward" else 0x8040
    mxcsr = int.from_bytes(changed.raw[28:32], "little") | bits
    changed[28:32] = mxcsr.to_bytes(4, "little")
    yield lambda: math.fesetenv(changed)
    math.fesetenv(default)


def test_workers_compute_as_the_caller(odd_environment, small_pieces, rng):
    """Rounding mode and flushing are those of the calling thread, for every element."""
    x = np.concatenate([rng.normal(0, 3, 20_000), rng.uniform(0, 1e-38, 20_000)]).astype(np.float32)
    x = rng.permutation(x)
    nearest = fastgelu.gelu(x)
    got = []
    with fastgelu.num_threads(1):
        odd_environment()
        want = fastgelu.gelu(x)
    with fastgelu.num_threads(3):
        for _ in range(20):
            got.append(fastgelu.gelu(x))
    assert not same(want, nearest)
    assert all(same(y, want) for y in got)


# ---- large ------------------------------------------------------------------------------------

WINDOWS = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]

def window_array(windows, window, dtype):
    # windows * window bytes of addresses over window bytes of memory, the last of them on its own
    none, shared, private, fixed, anonymous, noreserve = 0, 1, 2, 0x10, 0x20, 0x4000
    start = libc.mmap(None, windows * window, none, private | anonymous | noreserve, -1, 0)
    assert start not in (None, ctypes.c_void_p(-1).value)
    files = [os.memfd_create("window") for _ in range(2)]
    for file in files:
        os.ftruncate(file, window)
    for i in range(windows):
        got = libc.mmap(start + i * window, window, 3, shared | fixed, files[i == windows - 1], 0)
        assert got == start + i * window
    buffer = (ctypes.c_char * (windows * window)).from_address(start)
    return np.frombuffer(buffer, dtype)
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd_create")
def test_more_than_2_to_the_31_elements(run):
    """Addresses for all of them, memory for a few: every window is the same memory."""
    run(
        WINDOWS
        + """
import fastgelu
dtypes = {function.dtype for function in fastgelu.functions()}
dtype = np.dtype("float16" if "float16" in dtypes else "float32")
bits = f"u{dtype.itemsize}"
window = 16 << 20
m = window // dtype.itemsize
windows = (1 << 31) // m + 2
x = window_array(windows, window, dtype)
y = window_array(windows, window, dtype)
assert len(x) > 2**31 + m
x[:m] = np.random.default_rng(1).normal(0, 3, m)
x[-m:] = np.random.default_rng(2).normal(0, 3, m)

def same(got, x):
    with fastgelu.num_threads(1):
        return np.array_equal(got.view(bits), fastgelu.silu(x.copy()).view(bits))

# a last part that ends within a vector; what follows stays
for threads in (2, 1):
    fastgelu.set_num_threads(threads)
    y[:m] = y[-m:] = 5
    fastgelu.silu(x[:-7], out=y[:-7])
    assert same(y[:m], x[:m]) and same(y[-m:-7], x[-m:-7])
    assert (y[-7:] == 5).all()
# count * stride passes 2**31 several times over
fastgelu.set_num_threads(2)
step = 16
out = fastgelu.silu(x[::step])
few = m // step
assert len(out) * step * dtype.itemsize > 2**32
assert same(out[:few], x[:m:step]) and same(out[-few:], x[-m::step])
out = fastgelu.silu(x[::-step])
assert same(out[:few], x[: -m - 1 : -step]) and same(out[-few:], x[m - 1 :: -step])
"""
    )


def test_memory_maps(tmp_path, run):
    """In and out of files; the pages belong to the files, so that memory does not fill."""
    run(
        """
import fastgelu
n = 1 << 24
x = np.memmap(sys.argv[1], np.float32, "w+", shape=n)
y = np.memmap(sys.argv[2], np.float32, "w+", shape=n)
x[:] = np.resize(data(1 << 20), n)
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    return 0
check(data(1 << 18))
before = anonymous()
got = fastgelu.gelu(x, out=y)
assert anonymous() - before < 8 << 20
assert got is y
y.flush()
del y, got
want = check(data(1 << 20)).view("u4")
assert (np.fromfile(sys.argv[2], "u4").reshape(16, -1) == want).all()
""",
        tmp_path / "x",
        tmp_path / "y",
    )
