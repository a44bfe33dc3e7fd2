# Everything a fresh clone needs: each target does its own set-up, in .venv, once.
# Wanted on the machine: Python 3.11 to 3.13 with venv, make, gcc.
#   make demo      make test      make help

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV  ?= .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
OUT   ?= demo_out
SITE  ?= site
TESTS ?=
WORKERS ?= 2

# The first interpreter that really starts, is of a supported version, and can make environments.
# 3.11 comes first because it is the one constraints.txt was made with.  PYTHON=... overrides.
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13 python3 python)
SUITABLE   := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))

.PHONY: help venv demo test test-slow test-browser test-gpu test-matrix sanitize lint format report bench threads tsan zoo browser packages release docs pictures clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

venv: $(READY)  ## the environment in .venv (every other target makes it by itself)

$(BIN)/python:
	@found=; \
	for name in $(CANDIDATES); do \
	  if "$$name" -c '$(SUITABLE)' >/dev/null 2>&1; then found="$$name"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: no Python 3.11 to 3.13 with venv and ensurepip among: $(CANDIDATES)" >&2; \
	  echo "make: install one (Debian: apt-get install python3 python3-venv)," \
	    "or name it: make PYTHON=/path/to/python" >&2; \
	  exit 1; \
	fi; \
	echo "make: setting up $(VENV) with $$("$$found" --version); a minute or two, once"; \
	"$$found" -m venv --clear $(VENV)

# A source archive, and a clone on a system without symbolic links, lack those of tc/.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@for package in compiler trace tlparse tui minifier; do \
	  test -d tc/$$package || { rm -f tc/$$package; ln -s ../$$package tc/$$package; }; \
	done
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[torch,dev]' --constraint constraints.txt
	@touch $@

demo: $(READY)  ## a small GPT under tc.compile: checked, traced, reported
	@$(BIN)/python examples/demo.py --out $(OUT)

test: $(READY)  ## all tests but the slow ones, in two processes (TESTS=tests/trace narrows)
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --timeout 300 -m 'not slow' $(TESTS)

test-slow: $(READY)  ## the slow tests, and all cases of tables that `make test` samples
	@$(BIN)/pytest --every-case -m 'slow or sample' $(TESTS)

# AddressSanitizer has to be there before all else, and finds C++'s exceptions only where they are
# loaded with it; Python's own memory is not what is looked at.
PROGRAMS ?= 400
sanitize: $(READY)  ## random layouts with kernels that check their memory (PROGRAMS=400)
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 TC_SANITIZE=1 PYTHONMALLOC=malloc \
	  $(BIN)/python bench/layouts.py --programs $(PROGRAMS)

test-browser: $(READY)  ## only the tests that drive Chromium
	@$(BIN)/pytest -m browser $(TESTS)

test-gpu: $(if $(PYTHON),,$(READY))  ## tests that need a GPU (PYTHON=... whose torch sees it)
	@TRITON_INTERPRET=0 $(or $(PYTHON),$(BIN)/python) -m pytest -m gpu $(or $(TESTS),tests/gpu)

# Another Python with the newest torch: the capture tests, then PyTorch's own, side by side with $(VENV).
MATRIX_VENV   ?= .venv-matrix
MATRIX_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12*/bin/python) python3.12)
HARNESS       ?= ../shared/conformance
PT_SRC        ?= /tmp/pytorch-2.6

test-matrix: $(READY)  ## tests under Python 3.12 and the newest torch; takes long
	@test -d $(MATRIX_VENV) || "$(MATRIX_PYTHON)" -m venv $(MATRIX_VENV)
	@for env in $(VENV) $(MATRIX_VENV); do \
	  $$env/bin/python -m pip install -qq --disable-pip-version-check -e '.[torch,dev]' expecttest; \
	done
	@$(MATRIX_VENV)/bin/python -m pytest -q -m 'not slow' tests/compiler/capture
	@test -d $(PT_SRC)/test || bash $(HARNESS)/get_pytorch_tests.sh $(PT_SRC)
	@$(BIN)/python bench/matrix.py --harness $(HARNESS) --sources $(PT_SRC) \
	  --python $(CURDIR)/$(BIN)/python --python $(CURDIR)/$(MATRIX_VENV)/bin/python

lint: $(READY)  ## ruff, mypy --strict, and the rules of the codebase
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -q tests/test_house.py

format: $(READY)  ## let ruff format and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

report: $(READY)  ## the report of the demo's trace (TRACE=dir for another)
	@$(BIN)/tc-report $(or $(TRACE),$(OUT)/trace)

bench: $(READY)  ## cold start to the first compiled result, against torch.compile
	@$(BIN)/python bench/coldstart.py

threads: $(READY)  ## 16 threads, a million calls against eager, during compiles; takes long
	@$(BIN)/python bench/threads.py

tsan: $(READY)  ## calls from many threads under ThreadSanitizer, all C built with it
	@$(BIN)/python bench/tsan.py

ZOO ?= --sample 60
zoo: $(READY)  ## public models, tiny, against eager (ZOO="--family timm --sample 20 --seed 7")
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[torch,zoo]' --constraint constraints.txt
	@nice -n 5 $(BIN)/python bench/zoo.py $(ZOO)

browser:  ## Chromium and its driver, by apt; the browser tests skip without them
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	  echo "make: Chromium is there"; \
	else \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium chromium-driver; \
	fi

# Extras for the two targets below, installed once; setuptools is there, so nothing is fetched for it.
$(VENV)/.with-%: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation \
	  --editable '.[$*]' --constraint constraints.txt
	@touch $@

PACKAGES ?=
packages: $(VENV)/.with-release  ## wheel and source archive in dist/: built, checked, installed (PACKAGES=--with-torch)
	@nice -n 5 $(BIN)/python bench/packages.py $(PACKAGES)

release: packages  ## the checks of a release; TAG=yes also sets the tag
	@$(BIN)/python bench/release.py $(if $(filter yes,$(TAG)),--tag)

docs: $(VENV)/.with-docs  ## the site, into site/; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 nice -n 5 $(BIN)/python -m mkdocs build --strict --site-dir $(SITE) 2>&1 \
	  | { grep -v '^INFO' || true; }
	@echo "make: the site is in $(SITE)/index.html"

pictures: $(VENV)/.with-docs browser  ## the pictures of README and site, from runs of examples/
	@$(BIN)/python bench/pictures.py

clean:  ## remove what the targets made, the environment included
	rm -rf $(VENV) $(OUT) snapshot_report.html build dist $(SITE) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
