# One word each; every word does its own set-up on a fresh machine (Python >= 3.11).
PYTHON ?= python3
VENV ?= .venv
# The release the tests were last run with. Any torch >= 2.6 works; on Linux pip's default build brings CUDA along.
TORCH ?= torch==2.13.0
SEED ?= 0
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test cluster faults leaks lint types contracts check gpu clean

demo: $(INSTALLED)  ## find the largest safe batch of a small GPT under 512 MiB; leaves autotune.json
	$(BIN)/autotune search examples/tiny_gpt.py --memory-limit 512MiB --device cpu

test: $(INSTALLED)  ## all tests that need no GPU
	$(BIN)/python -m compileall -q autotune storage  # some 400 processes import it, and may be told to write no bytecode
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n 2 -m "not gpu and not cluster"  # probes share the cores: idle threads must not spin

cluster: $(INSTALLED)  ## real workers lost in all ways: of this host, of Ray, and of Slurm where it is installed; minutes
	$(BIN)/python -m pip install --quiet -e ".[slurm,ray]"
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n 0 -m cluster tests/process

faults: $(INSTALLED)  ## 150 deaths and troubles in real searches, 20,000 malformed inputs: ten minutes; SEED=7 for others
	OMP_WAIT_POLICY=passive $(BIN)/python -m tests.faults --seed $(SEED)
	MALFORMED_TIMES=10 $(BIN)/python -m pytest -q -n 2 --hypothesis-seed=$(SEED) tests/malformed

leaks: $(INSTALLED)  ## all planted leaks, of which the tests run one in three
	ALL_LEAKS=1 $(BIN)/python -m pytest -q tests/process/test_diagnose_leaks.py

gpu: $(INSTALLED)  ## the tests that need a CUDA device
	$(BIN)/python -m pytest -q -m gpu

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

contracts: $(INSTALLED)
	$(BIN)/lint-imports

check: lint types contracts test

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache autotune.json
