# The menu. Each recipe is a few plain commands out of .venv; `make setup` fills it.
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
COMPILE = uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
  --generate-hashes --no-header --no-annotate --quiet $(LOCK_FLAGS)
UNUSED = $(addprefix --no-emit-package=,torchvision torchaudio torchcodec triton)

.PHONY: menu setup run book test check toc lock
.DEFAULT_GOAL := menu

menu: ## print this menu
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

setup: ## fill .venv; ASSAY_ENGINE=none|cpu|gpu names the engine (default: the CPU build where it exists)
	@$(PYTHON) requirements/setup.py

run: setup ## execute the notebooks that changed
	assay run

book: setup ## execute, judge, and build the book at _build/html/index.html
	assay run && assay judge && assay book

test: check ## check, then run every test that needs neither a GPU nor minutes
	rm -rf _build/nbmake && ASSAY_STAGING=$(CURDIR)/_build/nbmake pytest -q --nbmake notebooks
	pytest -m "not gpu and not slow" tests src/assay $(PYTEST_FLAGS)

check: setup ## linters, types, layers, workflows, and the ledger's own checker
	ruff check && ruff format --check && mypy && lint-imports && codespell
	nbstripout --verify --keep-id notebooks/*.ipynb && check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	zizmor --offline --strict-collection --quiet .github/workflows && assay check data/

toc: setup ## print _toc.yml, the pages and the README's score from the ledger; build no HTML
	assay book --print-only

lock: setup ## renew the hashed locks; LOCK_FLAGS may name a folder of wheels
	$(COMPILE) --extra cpu $(UNUSED) -o requirements/cpu.txt
	$(COMPILE) -c requirements/cpu.txt -o requirements/dev.txt
	$(COMPILE) --extra gpu -c requirements/dev.txt -o requirements/gpu.txt
