# One command per job. PYTHON names the interpreter of the environment to use: make check PYTHON=.venv/bin/python
PYTHON ?= python

# tests work on tiny tensors, where a second thread only gets in the way
export OMP_NUM_THREADS ?= 1

.PHONY: install test coverage lint check

install:
	$(PYTHON) -m pip install -c constraints.txt -e '.[dev]'

# -rs: say why a test was skipped; -n auto: a process per core
test:
	$(PYTHON) -m pytest -rs -n auto

coverage:
	$(PYTHON) -m pytest -rs -n auto --cov --cov-report=term-missing:skip-covered

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

check: lint test
