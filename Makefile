# One command per job. PYTHON names the interpreter of the environment to use: make check PYTHON=.venv/bin/python
PYTHON ?= python

# tests work on tiny tensors, where a second thread only gets in the way
export OMP_NUM_THREADS ?= 1

.PHONY: schema install test coverage lint docs check campaigns

install:
	$(PYTHON) -m pip install -c constraints.txt -e '.[dev,docs]'

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

# the site, in build/site; a dead link or a page without a place in the navigation is an error
docs:
	$(PYTHON) -m mkdocs build --strict

# JSON schemas of recipes, for editors; a test says when they are out of date
schema:
	for kind in search retrain compare run; do \
	  $(PYTHON) -m archloom list schema $$kind > recipes/schema/$$kind.new || exit 1; \
	  mv recipes/schema/$$kind.new recipes/schema/$$kind.json; done

# hours of kills, bad inputs, flipped bits, sanitizers and budgets: by hand, or every night
campaigns:
	$(PYTHON) tests/campaigns/inputs.py --tries 100000 --seconds 600
	$(PYTHON) tests/campaigns/flips.py --tries 1000
	$(PYTHON) tests/campaigns/sanitize.py
	$(PYTHON) tests/campaigns/kills.py --tries 10
	$(PYTHON) tests/campaigns/budgets.py --budget 1m

check: lint docs test
