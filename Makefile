# make setup     the environment in .venv: placelang (editable), torch and the tools of development
# make demo      the main job on real input, from text to a verified run
# make test      lint, format, types and tests
# make package   build wheel and sdist, and try each in a clean environment without torch
# make clean     remove builds and caches, but not .venv
#
# PYTHON=... chooses the interpreter for .venv, PIP_FLAGS=... adds flags to pip: for instance
# PIP_FLAGS='--extra-index-url https://download.pytorch.org/whl/cpu' for a torch without CUDA.

PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin/python

# The name holds the path, since an environment that was copied with its checkout still imports from the old place.
STAMP := .venv/.setup$(subst /,-,$(subst $() ,_,$(CURDIR)))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USER := 0

.PHONY: setup demo test format package clean

setup: $(STAMP)

$(STAMP): pyproject.toml CMakeLists.txt constraints.txt $(wildcard placelang/backend/offload/src/*)
	@echo "Setting up .venv: torch and the tools of development (minutes the first time)"
	@$(BIN) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@rm -f .venv/.setup*
	@PIP_CONSTRAINT=constraints.txt $(BIN) -m pip install --quiet $(PIP_FLAGS) --editable '.[torch,dev]'
	@touch '$@'

demo: setup
	@$(BIN) -m placelang.tools.demo

test: setup
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -m mypy
	$(BIN) -m pytest -n 2 -q

format: setup
	$(BIN) -m ruff check --fix .
	$(BIN) -m ruff format .

package: setup
	rm -rf dist
	$(BIN) -m build --outdir dist .
	$(BIN) .ci/check_package.py dist

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
