# SPDX-License-Identifier: BSD-3-Clause
"""How Sphinx builds the documentation (make docs), from the installed package and this checkout."""

import os
import re
import sys
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))
# Without a device fastgelu.cuda is imported for its docstrings only.
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import inserted

import fastgelu

project = "fastgelu"
author = "fastgelu contributors"
copyright = author
version = release = fastgelu.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # links such as page.md#heading, which viewers of repositories know too
autosummary_generate = False  # numpydoc loads it
numpydoc_show_class_members = False
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
inserted.pretend_cuda()

smartquotes = False  # a derivative's ' is none

html_theme = "furo"
html_title = f"fastgelu {version}"
html_show_sphinx = False
html_copy_source = False


def number_references(app, document):
    """Make [1] of the marks that numpydoc has made unique; its own way misses them in markdown."""
    for text in list(document.findall(nodes.Text)):
        plain = re.sub(r"\[R[0-9a-f]{12}-(\d+)\]", r"[\1]", text)
        if plain != text:
            text.parent.replace(text, nodes.Text(plain))


def setup(app):
    app.connect("source-read", lambda app, page, source: inserted.fill(source))
    app.connect("doctree-read", number_references)
