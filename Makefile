# Every target makes and uses the project's own .venv: nothing has to be activated or installed before.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.NOTPARALLEL:
# Whatever the caller's environment says: without kept bytecode each process takes twice its time to start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
SECONDS_OF_FUZZING ?= 900
SECONDS_OF_SOAK ?= 3600
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Installed anew when what is installed changes, or the place, or the recipe; else reused.
HASH := $(shell { pwd; cat pyproject.toml setup.py tools/venv.sh tools/build_backend.py tools/compilation.py; } | sha256sum | cut -c1-16)
STAMP := $(VENV)/.installed-$(HASH)
# The page's tests drive Chromium: a driver of 45 MB that nothing else needs.
BROWSER = $(VENV)/.browser-$(HASH)
# The demo runs on a part of it, which is there in half the time.
RUNTIME := $(or $(wildcard $(STAMP)),$(VENV)/.runtime-$(HASH))
# Compiled code for the tests, apart from the sources: the editable installation stays pure.
COMPILED := build/compiled
# Processes that share the unit tests: with two for two cores a fifth of the time nobody worked, as tests wait too.
WORKERS ?= 3
# Tests run on what users run: compiled code where a C compiler with Python's headers is, else the sources.
AS_USERS_RUN = if $(BIN)/python tools/compilation.py; then \
	  tools/compile.sh $(BIN)/python $(COMPILED); export PYTHONPATH=$(CURDIR)/$(COMPILED); \
	else echo "Tests run on pure Python: no C compiler with Python's headers here." >&2; fi

.PHONY: help demo quick test test-all check types quick-unit unit spine contracts docs bench bench-agent fuzz soak breakages record compiled dist installs sbom record-version generated clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 24

$(STAMP):
	@tools/venv.sh $(VENV) dev
	@touch $@

$(BROWSER): $(STAMP)
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --disable-pip-version-check -e ".[browser]"
	@touch $@

$(VENV)/.runtime-$(HASH):
	@tools/venv.sh $(VENV) spark,java
	@touch $@

demo: $(RUNTIME) ## Real Cassandra, Kafka and Spark here, a database follows (ARGS="--keep")
	@$(BIN)/tailrace demo $(ARGS)

quick: $(STAMP) ## While you work: style, types, fast unit tests; not what is marked slow, layers, words, compiled code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(call together,types quick-unit)

# Recipes side by side: the last one has the terminal, what the others print follows when they have ended.
define together
	mkdir -p build; jobs=; for target in $(1); do \
	  { status=0; $(MAKE) --no-print-directory $$target > build/$$target.log 2>&1 || status=$$?; \
	    printf '\n%s\n' "$$(cat build/$$target.log)"; exit $$status; } & jobs="$$jobs $$!"; \
	done; \
	status=0; $(if $(2),$(MAKE) --no-print-directory $(2) || status=$$?;) \
	for job in $$jobs; do wait "$$job" || status=$$?; done; exit "$$status"
endef

test: $(STAMP) ## Everything that a change must pass: check, unit tests, a spine of integration tests
	@$(call together,check unit,spine)

test-all: $(BROWSER) ## All tests there are, in parts, with a table at the end; hours (PARTS="kills page": these alone)
	@$(AS_USERS_RUN); $(BIN)/python -m tests.parts $(PARTS)

check: $(STAMP) ## Style, types, layers, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/words.py

types: $(STAMP)
	$(BIN)/mypy

quick-unit: $(STAMP)
	TAILRACE_TEST_PROPERTIES=quick $(PYTEST) -q -n $(WORKERS) --dist worksteal --part unit -m "not slow" $(ARGS)

unit: $(STAMP) ## The unit tests
	@$(AS_USERS_RUN); $(PYTEST) -q -n $(WORKERS) --dist worksteal --part unit $(ARGS)

spine: $(STAMP) ## The integration tests of the gate, against real Cassandra, Kafka, PostgreSQL and Spark
	@$(AS_USERS_RUN); $(PYTEST) -q --part spine $(ARGS)

contracts: $(STAMP) ## Every sink held to its contract and to the oracle, on its real server; a table at the end
	nice -n 5 $(PYTEST) -q -m contract $(ARGS)

docs: $(STAMP) ## The site of docs/ and of pages made from the code, into build/site: links and anchors checked, nothing loaded from elsewhere
	$(BIN)/python tools/docs_site.py
	@echo "Read it with: $(BIN)/python -m http.server -b 127.0.0.1 -d build/site"

bench: $(STAMP) ## Measure compiled code, beside others that do the same where there are any
	MYPYC_OPT_LEVEL=3 tools/compile.sh $(BIN)/python build/optimised
	PYTHONPATH=$(CURDIR)/build/optimised $(BIN)/python -m benchmarks

bench-agent: $(STAMP) ## Measure the agent, compiled, beside Debezium's connector (ARGS="--mutations 1000000")
	MYPYC_OPT_LEVEL=3 tools/compile.sh $(BIN)/python build/optimised
	PYTHONPATH=$(CURDIR)/build/optimised $(BIN)/python -m benchmarks.agent $(ARGS)

fuzz: $(STAMP) ## Fuzz the decoder, guided by coverage (SECONDS_OF_FUZZING=900); failures are left in build/fuzz
	$(BIN)/pip install -q --disable-pip-version-check '$(shell sed -nE 's/^fuzz = \["([^"]+)"\].*/\1/p' pyproject.toml)'
	mkdir -p build/fuzz
	nice -n 10 $(BIN)/python -m tests.fuzz.run build/fuzz/corpus -artifact_prefix=build/fuzz/ -max_len=70000 \
	    -rss_limit_mb=2048 -timeout=10 -max_total_time=$(SECONDS_OF_FUZZING)

breakages: $(STAMP) ## Break the code in small plausible ways, each time the tests must go red (ARGS="--list", or names)
	nice -n 5 $(BIN)/python -m tests.breakages $(ARGS)

soak: $(STAMP) ## Random programs through node, agent, stream and sinks, against SELECT (SECONDS_OF_SOAK=3600 SEED=7)
	nice -n 10 $(BIN)/python -m tests.oracle.soak --seconds $(SECONDS_OF_SOAK) $(if $(SEED),--seed $(SEED)) $(ARGS)

record: $(STAMP) ## Record a corpus with a real node (ARGS="--seed 7 FOLDER", and --release, --statements)
	nice -n 10 $(BIN)/python -m tests.corpus.record $(ARGS)

compiled: $(STAMP) ## Compile the hot path into .venv's installation (make clean goes back to pure)
	TAILRACE_COMPILE=1 $(BIN)/pip install -q --no-build-isolation --no-deps -e .
	@$(BIN)/tailrace --version

dist: $(STAMP) ## Source distribution and wheel in dist/; TAILRACE_COMPILE=0 for the pure wheel, 1 for a compiled one
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

installs: $(STAMP) ## The pure wheel with each extra alone, on each Python there is, and by pipx and uv (ARGS="--only delta")
	TAILRACE_COMPILE=0 $(MAKE) --no-print-directory dist
	$(BIN)/python tools/installs.py dist/*.whl $(ARGS)

# What a stream's and a server's environment has with every sink. The tool has an environment of its own.
sbom: $(STAMP) ## A software bill of materials of everything that is installed at run time: build/sbom.json (CycloneDX)
	$(BIN)/uv venv -q --clear --python $(BIN)/python build/sbom
	TAILRACE_COMPILE=0 $(BIN)/uv pip install -q --python build/sbom/bin/python '.[server,registry,delta,iceberg,files,http,opensearch,mysql,rabbitmq]'
	$(BIN)/uv tool run --from 'cyclonedx-bom>=7,<8' cyclonedx-py environment build/sbom/bin/python \
	    --pyproject pyproject.toml --output-reproducible --output-format JSON --output-file build/sbom.json

record-version: $(STAMP) ## Keep a record of each kind as this version writes it, and its commit, before a release; later versions must go on
	$(BIN)/python -m tests.upgrades.records tests/fixtures/versions
	git rev-parse HEAD > tests/fixtures/versions/$$($(BIN)/python -c "from importlib.metadata import version; print(version('tailrace'))").commit

generated: $(STAMP) ## Write tailrace.toml anew, from the settings
	$(BIN)/python -c "from tailrace_common.settings import sample; open('tailrace.toml', 'w', encoding='utf-8').write(sample.render_sample())"

clean: ## Remove compiled code and what was built; .venv and caches stay
	rm -rf build dist *.egg-info schemas/tailrace_schemas/_compiled_sources.py
	find . -name '*.so' -not -path './$(VENV)/*' -not -path './.git/*' -delete
