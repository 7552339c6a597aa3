# Two commands set everything up on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
LLM ?= default
# Installed by itself before the rest, so that what needs torch takes this one.
TORCH ?= 2.13.0

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help serve test lint clean .test-peers .test-rest

help:
	@echo "make serve   install, fetch the embedded voice, start the server on 127.0.0.1:8099 (ARGS='--port 9000', LLM=light)"
	@echo "make test    install and run every check: lint, types, import contracts, tests"
	@echo "make lint    lint, types and import contracts alone"
	@echo "make clean   remove the environment"

serve: $(VENV)/.serve
	$(BIN)/python -m duplex_engine.model_plugins.cascade fetch --llm $(LLM)
	exec $(BIN)/python -m duplex_engine.server --llm $(LLM) $(ARGS)

# Foreign clients converse at the pace of speech and mostly wait: they run beside everything else. With ARGS one run of those.
test: lint $(VENV)/.peers $(VENV)/.moshi
	$(BIN)/python -m duplex_engine.model_plugins.cascade fetch --llm light
ifeq ($(strip $(ARGS)),)
	$(MAKE) --no-print-directory --jobs=2 --keep-going .test-peers .test-rest
else
	$(BIN)/python -m pytest $(ARGS)
endif

.test-peers:
	$(BIN)/python -m pytest tests/peers

.test-rest:
	$(BIN)/python -m pytest --ignore=tests/peers

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"duplex-engine needs Python 3.11 to 3.13, this is {v.major}.{v.minor}; call make PYTHON=python3.12" if not (3, 11) <= v[:2] <= (3, 13) else 0)'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.serve: $(VENV)/.python pyproject.toml
	$(PIP) install --progress-bar on -e '.[cascade]'
	touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml
	$(PIP) install --progress-bar on 'torch==$(TORCH)'
	$(PIP) install --progress-bar on -e '.[cascade,personaplex,parity,test,lint]'
	touch $@

# Clients that others wrote, to test against: of one only its client files, the others in environments of their own.
$(VENV)/.peers: $(VENV)/.test $(wildcard tests/peers/*install*.py) tests/peers/environments.py tests/peers/javascript/package.json
	$(BIN)/python tests/peers/install.py $(VENV)/peers
	$(BIN)/python tests/peers/environments.py $(VENV)
	$(BIN)/python tests/peers/install_javascript.py $(VENV)/peers-javascript
	touch $@

# The model's first implementation, to compare with. It asks for an older torch than anything else here, and runs with ours.
$(VENV)/.moshi: $(VENV)/.test
	$(PIP) install -q --no-deps --upgrade --target $(VENV)/peers-moshi moshi==0.2.13 einops==0.8.2 sphn==0.2.1 tqdm
	touch $@

clean:
	rm -rf $(VENV)
