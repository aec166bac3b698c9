# SPDX-License-Identifier: BSD-3-Clause
"""bfloat16, the dtype of ml_dtypes: registered once and for all at import, promotion, absence."""

import numpy as np
import oracle
import pytest

import fastgelu
from fastgelu import _ufuncs

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

CHECK = """
import numpy as np
x = np.array([-1.5, 0.25, 3], ml_dtypes.bfloat16)
for function in fastgelu.functions():
    f = getattr(fastgelu, function.name)
    y = f(*[x] * f.nin)
    assert y.dtype == ml_dtypes.bfloat16, (function, y.dtype)
assert fastgelu.gelu(x).view(np.uint16).tolist() == [0xbdcd, 0x3e19, 0x4040]
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import ml_dtypes, fastgelu",
        "import fastgelu, ml_dtypes",
        "import numpy as np, fastgelu; fastgelu.gelu(np.float32(1)); import ml_dtypes",
        "import fastgelu, importlib, ml_dtypes; importlib.reload(fastgelu)",
        "import fastgelu, importlib, ml_dtypes; importlib.reload(ml_dtypes)",
        "import sys, fastgelu; del sys.modules['fastgelu']; import fastgelu, ml_dtypes",
    ],
)
def test_orders_of_import(imports, run_python):
    run_python(imports + CHECK)


def test_second_registration(run_python):
    run_python(
        "import fastgelu, ml_dtypes, numpy as np\n"
        "from fastgelu import _ufuncs\n"
        "for i in range(3):\n"
        "    _ufuncs.register_bfloat16(np.dtype(ml_dtypes.bfloat16))\n"
        "    fastgelu.gelu(np.ones(3, ml_dtypes.bfloat16))" + CHECK
    )


def test_without_ml_dtypes(run_python):
    """Everything else works, and nothing speaks of bfloat16 as if it were there."""
    run_python("""
import sys
sys.modules["ml_dtypes"] = None  # importing it fails
import numpy as np, fastgelu
for function in fastgelu.functions():
    x = np.array([-1.5, 0.25, 3], function.dtype)
    f = getattr(fastgelu, function.name)
    assert f(*[x] * f.nin).dtype == x.dtype
assert {f.dtype for f in fastgelu.functions()} == {"float16", "float32", "float64"}
try:
    fastgelu.max_ulp("gelu", "bfloat16")
except ValueError as error:
    assert "float16, " in str(error) or "float16" in str(error)
else:
    raise AssertionError
""")


def test_every_function_has_a_loop(unary, binary):
    for entry in (unary, binary):
        assert fastgelu.max_ulp(entry.name, "bfloat16") == fastgelu.max_ulp(entry.name, BFLOAT16)
        x = np.ones(3, BFLOAT16)
        assert entry.ufunc(*[x] * entry.inputs).dtype == BFLOAT16


def test_promotion(binary_name):
    """By NumPy's casting rules: what bfloat16 and the other can both be cast to safely."""
    f = getattr(fastgelu, binary_name)
    one = np.ones(3, BFLOAT16)
    for other, want in [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (ml_dtypes.float8_e4m3fn, np.float32),
    ]:
        assert f(one, np.ones(3, other)).dtype == want, other
        assert f(np.ones(3, other), one).dtype == want, other


def test_float8_goes_to_float32(unary_name):
    f = getattr(fastgelu, unary_name)
    x = np.array([-1.5, 0.25, 3], ml_dtypes.float8_e5m2)
    got, want = f(x), f(x.astype(np.float32))
    assert got.dtype == np.float32 and np.array_equal(got, want)


def test_machinery(unary_name):
    """Strides, out=, where=, byte order of a real ufunc loop."""
    f = getattr(fastgelu, unary_name)
    x = np.linspace(-4, 4, 600).astype(BFLOAT16)
    want = oracle.bits_of(f(x))
    assert np.array_equal(oracle.bits_of(f(x[::-3])), want[::-3])
    out = np.zeros(600, BFLOAT16)
    assert f(x, out=out) is out and np.array_equal(oracle.bits_of(out), want)
    where = np.arange(600) % 2 == 0
    out[:] = 7
    f(x, out=out, where=where)
    assert np.array_equal(oracle.bits_of(out)[where], want[where])
    assert (out[~where] == BFLOAT16.type(7)).all()
    y = x.copy()
    f(y[:-1], out=y[1:])
    assert np.array_equal(oracle.bits_of(y[1:]), want[:-1])


def test_registered_for_the_dtype_of_the_process():
    assert _ufuncs.bfloat16() == BFLOAT16
