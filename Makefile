# Two commands do everything: `make demo` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
# The CPU build of torch installs by this exact pin; a looser one pulls gigabytes of CUDA packages.
TORCH := torch==2.13.0

.PHONY: demo test test-deploy lint clean

demo: .venv/ready
	$(BIN)/coalface demo --out out/demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal

# Federations of real processes on this machine, with kill -9: some minutes.
test-deploy: .venv/ready
	$(BIN)/pip install --quiet --editable '.[dev,flower-sim]'
	$(BIN)/pytest -m deploy

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv out
