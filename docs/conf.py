# SPDX-License-Identifier: BSD-3-Clause
"""How Sphinx builds the documentation (make docs), from the installed package and this checkout."""

import os
import sys
from pathlib import Path

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

html_theme = "furo"
html_title = f"fastgelu {version}"
html_show_sphinx = False
html_copy_source = False


def setup(app):
    app.connect("source-read", lambda app, page, source: inserted.fill(source))
