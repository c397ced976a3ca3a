# Any target may be the first command in a fresh clone: each makes what it needs.

VENV     := .venv
BIN      := $(VENV)/bin
PY       := $(BIN)/python
# Written once everything is installed, in the versions of constraints.txt.
STAMP    := $(VENV)/.installed
# And this one once the peers that only benchmarks need are.
PEERS    := $(VENV)/.installed-peers
# Generates the code of the wire format. An old release, apart from the environment: generated code
# asks for a protobuf at least as new as itself, so whoever uses distvec may have 6.30 or later.
PROTOC   := $(VENV)/protoc-1.72.2
# And this one once PyTorch is, which tests and the pages of distvec.torch need.
TORCH    := $(VENV)/.installed-torch
# And this one once what builds the site is.
SITE     := $(VENV)/.installed-docs
# And this one once the programs that build and check releases are.
RELEASE  := $(VENV)/.installed-release
# What the array API's conformance suite imports besides.
SUITE    := $(VENV)/array-api-suite
# Spark's Java classes as Java maps them, for tests: each driver starts in half the time. Named in
# tests/quick_start.py; without Java there is none.
CLASSES  := $(VENV)/spark-classes.jsa

# PySpark starts its workers with PYSPARK_PYTHON; they need what the driver has.
export PYSPARK_PYTHON        := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)
export SPARK_LOCAL_IP        ?= 127.0.0.1
# Tests start some hundred Pythons: without it each compiles our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env java demo test gate long cluster array-api mllib sklearn-suite stress dist oldest lint bench pages pictures docstrings docs proto clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

env: $(STAMP)  ## Make .venv with everything, in the tested versions

$(STAMP): pyproject.toml constraints.txt
	@set -e; found=; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "distvec needs Python 3.11 or newer, and none was found:" \
	       "install one, or name it: make $(or $(MAKECMDGOALS),env) PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	[ -x $(PY) ] || $$found -m venv $(VENV) || { \
	  echo "$$found could not make a virtual environment; on Debian and Ubuntu:" \
	       "apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@echo "Installing distvec and its dependencies into $(VENV), which takes some minutes ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[spark,plot,test]'
	@touch $@

$(PEERS): EXTRA := bench
$(TORCH): EXTRA := torch
$(SITE): EXTRA := docs
$(RELEASE): EXTRA := release
$(PEERS) $(TORCH) $(SITE) $(RELEASE): $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[$(EXTRA)]'
	@touch $@

java:
	@set -e; java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -1); \
	if [ "$${version:-0}" -lt 17 ]; then \
	  echo "Spark needs Java 17 or newer, and '$$java' is $${version:-missing}:" \
	       "install a JDK or set JAVA_HOME" >&2; exit 1; \
	fi

demo: java env  ## Train the example on Spark with two parameter servers
	@$(PY) -m examples.logistic_regression --output build/demo

test: lint docs $(CLASSES)  ## Lint, build the site, then all the tests, by four processes (without Java, those that need it are skipped)
	$(PY) -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --junit-xml build/test.xml $(PYTEST)

long: $(TORCH) $(CLASSES)  ## The tests that take longer than `make test` may
	$(PY) -m pytest -m long $(PYTEST)

cluster: env java $(CLASSES)  ## Tests over hosts made of network namespaces (Linux, as root; else skipped)
	$(PY) -m pytest -m 'cluster or not cluster' tests/cluster $(PYTEST)

$(CLASSES): $(STAMP)
	$(PY) -m tests.spark.class_archive $@

$(SUITE): | $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --target $@ \
	  ndindex pytest-json-report pytest-metadata

array-api: env $(SUITE)  ## The conformance suite that ARRAY_API_TESTS=/path names; ARRAY_API='--max-examples 200'
	@[ -d "$(ARRAY_API_TESTS)/array_api_tests" ] || { \
	  echo "ARRAY_API_TESTS=/path must name a checkout of data-apis/array-api-tests, with its submodule" >&2; \
	  exit 1; }
	cd $(ARRAY_API_TESTS) && PYTHONPATH=$(CURDIR):$(CURDIR)/$(SUITE) \
	  ARRAY_API_TESTS_MODULE="exec('from tests.array_api.plugin import namespace; xp = namespace()')" \
	  $(CURDIR)/$(PY) -m pytest -p tests.array_api.plugin -p no:cacheprovider --numprocesses 2 \
	  -c pytest.ini --rootdir=. --disable-warnings --xfails-file=$(CURDIR)/tests/array_api/xfails.txt $(ARRAY_API) array_api_tests

mllib: env java $(CLASSES)  ## pyspark's own tests with our classes; MLLIB='--sources /path/to/spark doctests' for others or a part
	$(PY) -m tests.mllib $(MLLIB)

sklearn-suite: env  ## scikit-learn's own tests with our classes; SKLEARN='test_huber test_ridge' for some files
	$(PY) -m tests.sklearn_suite $(SKLEARN)

gate: env java  ## Plans, cost, digests, public names and sizes beside the kept ones; GATE=--renew writes them
	$(PY) -m tests.gate $(GATE)

stress: env  ## Long repetitions of faults, as a table; STRESS='interrupts --scale 0.1' for a part
	@mkdir -p build
	$(PY) -m tests.stress --json build/stress.json $(STRESS)

dist: env $(RELEASE)  ## Build the sdist and the wheel in dist/, check them, and test them in an empty environment
	rm -rf dist
	$(PY) -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(PY) -m tests.release dist

oldest: env $(RELEASE)  ## The same tests with the oldest versions that pyproject.toml allows
	rm -rf build/dist
	$(PY) -m build --outdir build/dist .
	$(PY) -m tests.release --oldest build/dist

$(PROTOC): | $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --target $@ \
	  grpcio-tools==$(lastword $(subst -, ,$@))

lint: env $(PROTOC) $(TORCH)  ## Style, types, layers, and whether the generated code is up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PY) -m docs.check_docstrings
	@rm -rf build/proto && mkdir -p build/proto
	@$(call protoc,build/proto)
	@for file in ps_backend/wire/ps_pb2.py ps_backend/wire/ps_pb2.pyi; do \
	  cmp build/proto/$$file $$file || { echo "the generated code is old: make proto" >&2; exit 1; }; \
	done

bench: env $(PEERS) java  ## All benchmarks, each beside its peer; JSON in build/bench/
	@mkdir -p build/bench
	@set -e; for name in $(BENCHMARKS); do \
	  $(PY) -m benchmarks.$$name --json build/bench/$$name.json $(BENCH); \
	done
	@set -e; for name in $(LARGER); do \
	  $(PY) -m benchmarks.$$name --features 10000000 --repeat 1 \
	    --json build/bench/$$name-1e7.json $(BENCH); \
	done

BENCHMARKS := nodes dispatch latency fused engines functions tables slices movement chains textbook direction growth minimisation solvers stochastic minibatches transfer tls resident losses \
              evaluation iteration logistic estimators spark_estimators plain_pyspark staleness wide derivatives save checkpoints keyed_kernels keyed click_stream cluster
# Those that are also run over 1e7 features.
LARGER     := logistic plain_pyspark

pages: env $(TORCH)  ## Write the pages of docs/ that are made from the code
	$(PY) -m docs.make_inventories
	$(PY) -m docs.make_cli
	$(PY) -m docs.make_configuration
	$(PY) -m docs.make_operations
	$(PY) -m docs.make_numpy
	$(PY) -m docs.make_losses

pictures: env  ## Draw docs/pictures/*.svg; PICTURES=--measure runs the solvers again
	$(PY) -m docs.make_pictures $(PICTURES)

docstrings: env $(TORCH)  ## Validate the docstrings of everything that users import
	$(PY) -m docs.check_docstrings

docs: env $(SITE) $(TORCH)  ## Build the documentation site in build/site, offline; each warning is an error
	$(PY) -m sphinx --quiet --fail-on-warning --keep-going --jobs 2 -d build/doctrees docs build/site

proto: env $(PROTOC)  ## Generate ps_backend/wire/*_pb2.py from its .proto
	$(call protoc,.)

define protoc
PYTHONPATH=$(PROTOC) $(PY) -m grpc_tools.protoc --proto_path=. --python_out=$(1) --pyi_out=$(1) ps_backend/wire/ps.proto
endef

clean:  ## Remove what was built and the caches, not .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf docs/reference/api/generated spark-warehouse metastore_db artifacts .coverage
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
