# Everything that a fresh machine with Python (3.10 or newer) and make needs: `make quickstart`, `make test`.
# A Python of your choice: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
# The old end of the supported window (docs/design/supported-versions.md), and the tests that `make test` runs there.
OLD_VENV := .venv-old-end
OLD_END := 'tensorflow==2.18.*' 'keras==3.8.*'
OLD_END_TESTS := tests/tensorflow tests/recipes \
	--ignore tests/tensorflow/test_random_models.py --ignore tests/tensorflow/test_tf_keras_oracle.py
# A part by itself, so that the parts that run side by side take about as long.
EXACTNESS_TESTS := tests/tensorflow tests/verification
# TensorFlow 2.18 is built for Python 3.10 to 3.12: the first of these that is one of them.
OLD_PYTHON := $(shell for python in $(PYTHON) python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$python && break; \
	done)
QUICKSTART_LOGS := .quickstart
# The files of the public names, whose docstrings are the reference: their arguments are held to the signatures.
PUBLIC := $(addprefix tfdist/,running/run.py recording/verify.py environment.py errors.py cluster/config.py testing \
	keras_compat/losses.py) \
	$(addprefix tfdist/strategies/,auto.py mirrored.py multi_worker_mirrored.py parameter_server.py) \
	$(addprefix tfdist/callbacks/,fault_tolerant_checkpoint.py load_balance_monitor.py distributed_tensorboard.py \
	progress_bar.py)
DOCS := .docs

export TF_CPP_MIN_LOG_LEVEL ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help quickstart test test-matrix test-newest test-exactness test-old-end check lint docs campaign benchmark clean

help:
	@echo 'make quickstart   make an environment in $(VENV) and train the digits recipe on two workers'
	@echo 'make test         run the whole test suite, and a part of it on the oldest supported versions; with -j2 side by side'
	@echo 'make check        lint, types, layers and unit tests: what to run before a commit'
	@echo 'make docs         build the documentation into $(DOCS); warnings are errors'
	@echo 'make campaign     what takes longer: the whole matrix, on both ends, and recipes with more seeds'
	@echo 'make benchmark    measure tfdist beside its peers, for hours; ARGS=--middle for half an hour, --quick for a first look (docs/benchmarks.md)'
	@echo 'make clean        remove the environments and logs that make made'

quickstart: $(VENV)/.recipes
	@mkdir -p $(QUICKSTART_LOGS)
	$(VENV)/bin/tfdist run --workers 2 --log-dir $(QUICKSTART_LOGS) recipes/digits.py
	@echo
	@echo "Trained on two workers: $$(grep -h '^test_accuracy=' $(QUICKSTART_LOGS)/*.log)"
	@echo "The output of each worker: $$(ls $(QUICKSTART_LOGS)/*.log | tr '\n' ' ')"

test: test-matrix test-newest test-exactness test-old-end

test-matrix: $(VENV)/.test
	$(VENV)/bin/python -m pytest --durations 10 tests/matrix

test-newest: $(VENV)/.test
	$(VENV)/bin/python -m pytest --durations 40 --ignore tests/matrix $(addprefix --ignore ,$(EXACTNESS_TESTS))

test-exactness: $(VENV)/.test
	$(VENV)/bin/python -m pytest --durations 20 $(EXACTNESS_TESTS)

ifneq ($(OLD_PYTHON),)
test-old-end: $(OLD_VENV)/.test
	$(OLD_VENV)/bin/python -m pytest $(OLD_END_TESTS)
else
test-old-end:
	@echo 'NOT RUN: the tests of the oldest supported versions. They need Python 3.10, 3.11 or 3.12.'
endif

check: lint
	$(VENV)/bin/python -m pytest tests/unit

lint: $(VENV)/.check
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell
	$(VENV)/bin/pydoclint --quiet $(PUBLIC)

docs: $(VENV)/.docs
	$(VENV)/bin/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env docs $(DOCS)
	@echo 'See $(DOCS)/index.html'

campaign: export TFDIST_TEST_SEEDS := 0 1 2 3 4
campaign: export TFDIST_MATRIX := full
campaign: export TFDIST_RANDOM_MODELS := 200
campaign: $(VENV)/.test $(OLD_VENV)/.test
	$(VENV)/bin/python -m pytest -m '' tests/recipes tests/matrix tests/verification tests/tensorflow tests/multiprocess \
		tests/checkpoints tests/callbacks tests/faults
	$(OLD_VENV)/bin/python -m pytest -m ''

benchmark: $(VENV)/.benchmark
	$(VENV)/bin/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) $(OLD_VENV) $(QUICKSTART_LOGS) $(DOCS)

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit("tfdist needs Python 3.10 or newer; name one: make PYTHON=python3.12" \
		if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.recipes: $(VENV)/.python pyproject.toml
	$(VENV)/bin/python -m pip install --editable '.[recipes]'
	@touch $@

$(VENV)/.test: $(VENV)/.recipes
	$(VENV)/bin/python -m pip install --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(VENV)/bin/python -m pip install --group check
	@touch $@

$(VENV)/.docs: $(VENV)/.recipes
	$(VENV)/bin/python -m pip install --group docs
	@touch $@

$(VENV)/.benchmark: $(VENV)/.recipes
	$(VENV)/bin/python -m pip install --group benchmark
	@touch $@

$(OLD_VENV)/.test: pyproject.toml
	$(OLD_PYTHON) -m venv --clear $(OLD_VENV)
	$(OLD_VENV)/bin/python -m pip install --upgrade 'pip>=25.1'
	$(OLD_VENV)/bin/python -m pip install --editable '.[recipes]' --group test $(OLD_END)
	@touch $@
