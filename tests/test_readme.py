# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say is so: the files that they name exist, tables are of the registry.

Their code is run by test_docs.py.
"""

import re
from pathlib import Path

import pytest

import fastgelu

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "examples/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_exist(document):
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", prose) if ":" not in link]
    for link in links:
        assert (path.parent / link).exists(), link
    folders = "native|fastgelu|tests|benchmarks|examples"
    named = re.findall(rf"\b((?:{folders})/[\w./<>*]+\w)", text)
    for name in named:  # target_<name>.c stands for all
        assert any(ROOT.glob(re.sub("<.*?>", "*", name))), name
    assert links or named or document == "CHANGELOG.md" or document.startswith("docs/")


def test_tables_name_every_function():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for entry in fastgelu.functions():
        assert f"`{entry.name}`" in text
        for table in ("accuracy", "speed") if entry.compiled else ("accuracy",):
            generated = text.partition(f"<!-- begin: {table} -->")[2].partition("<!-- end")[0]
            row = rf"^\| {entry.name} +\| {entry.dtype} +\|"
            assert re.search(row, generated, re.MULTILINE), (table, entry)


def test_the_accuracy_table_states_the_registry_bounds():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) +\| (\w+) +\| +([\d.]+) \| +([\d.]+) \|", text, re.MULTILINE)
    found = {
        (name, dtype): (float(bound), float(measured)) for name, dtype, bound, measured in rows
    }
    for entry in fastgelu.functions():
        bound, measured = found[entry.name, entry.dtype]
        assert bound == entry.max_ulp and measured <= bound, entry
