# Two commands do everything: `make tune` and `make test`. Both create the environment on first use.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

WORKLOAD ?= examples/workloads/mixtral_8x22B_v0.1-BF16-pretrain.yaml
CLUSTER  ?= examples/clusters/mi355x_4nodes.yaml
OUT      ?= tuning_runs/mixtral_8x22B-mi355x_4nodes

.PHONY: tune test lint types unit docs origami bench clean wheel

tune: $(STAMP)
	$(BIN)/primus-mcp tune --workload $(WORKLOAD) --target-cluster $(CLUSTER) --out-dir $(OUT) --seed-only --resume --reprice

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -m alone -r s
	$(BIN)/python -m pytest -m 'not alone' -n auto --dist worksteal -r s

docs: $(STAMP)
	for room in space server validation; do $(BIN)/python -m primus_mcp.$$room.docs || exit 1; done
	$(BIN)/python -m primus_mcp.tools.prompt_blocks
	$(BIN)/python -m primus_mcp.reports.schemas
	$(BIN)/python scripts/readme_example.py
	$(BIN)/python scripts/report_picture.py

# Optional GEMM backend: needs Debian's rocm-cmake, libamdhip64-dev and hipcc (no GPU).
origami: $(STAMP)
	sh scripts/build_origami.sh $(BIN)/python

# Builds the wheel, installs it into an empty environment and uses it from an empty folder (half a minute of CPU, and the downloads).
wheel: $(STAMP)
	$(BIN)/python scripts/check_wheel.py

bench: $(STAMP)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; set PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)
