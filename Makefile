# The way in: every target does its own set-up (packages, configure, compile) and is quiet when nothing is to do.
#   make build python test demo bench format lint asan tsan install clean help
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# Arguments passed on: make test TESTS=Softmax, make demo DEMO="--net tutorial", make bench BENCH="--quick --filter gemm"
TESTS ?=
DEMO ?= --ranks 2 --net conv --optimizer adadelta --lr 1 --epochs 1 --log-interval 100
BENCH ?=
export CCACHE_MAXSIZE ?= 5G

configured = build/build.ninja
# Says nothing when nothing is to do.
ninja = ninja -j $(JOBS) -C $(1) | sed -u '/^ninja: no work to do\|^ninja: Entering directory\|Re-checking globbed/d'
# Many tests wait for each other's processes: one and a half at a time for each processor keep it busy.
run_tests = python3 tools/run_tests.py --jobs $$(( ($(JOBS) * 3 + 1) / 2 )) $(if $(TESTS),--filter '$(TESTS)') $(1)
# The programs that ops are compared with PyTorch by, where one may be there.
parity = $(shell [[ -n "$$ATHANOR_PEER_PYTHON" ]] || python3 -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' && echo parity)

.PHONY: build python build-times test thorough docs demo benchmarks bench format format-check lint check asan tsan debug install clean help dependencies

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

dependencies:
	@[[ -n "$$ATHANOR_SKIP_DEPENDENCIES" ]] || tools/install_dependencies.sh

build/build.ninja: CMakePresets.json | dependencies build/python-env
	@cmake --preset release >/dev/null && touch $@
build-debug/build.ninja: CMakePresets.json | dependencies
	@cmake --preset debug >/dev/null && touch $@
build-asan/build.ninja: CMakePresets.json | dependencies
	@cmake --preset asan >/dev/null && touch $@
build-tsan/build.ninja: CMakePresets.json | dependencies
	@cmake --preset tsan >/dev/null && touch $@

# The Python package's tools; where they cannot be had, the package is skipped by name (remove the folder to try again).
build/python-env: tools/python_environment.sh | dependencies
	@tools/python_environment.sh build/python-env && touch $@

build: build/build.ninja ## compile all but tests and benchmarks into build/ (programs in build/bin, the library in build/lib)
	@$(call ninja,build product)

python: build/build.ninja ## build the Python package alone, into build/python
	@tools/python_environment.sh build/python-env
	@[[ -e build/python-env/complete ]] || { echo "make python: $$(cat build/python-env/unavailable)" >&2; exit 1; }
	@[[ -e build/python/athanor/_C.pyi ]] || cmake --preset release >/dev/null
	@ninja -C build -j $(JOBS) athanor_python athanor_cli | sed -u '/^ninja: /d'

build-times: ## the slowest steps of the last build
	@python3 tools/build_times.py build

test: build/build.ninja ## build with the tests, then run every test; TESTS=regex for some
	@$(call ninja,build all $(parity))
	@$(call run_tests,build)

thorough: build/build.ninja ## 200 random faults of each kind, and every case of the conformance suite with large tensors
	@$(call ninja,build product test_distributed test_parallel)
	@for program in test_distributed test_parallel; do \
	  ATHANOR_FAULT_RUNS=200 build/bin/$$program --gtest_brief=1 --gtest_filter='Faults.*' || exit 1; done
	@ATHANOR_CONFORMANCE_FULL=1 build/bin/test_distributed --gtest_brief=1 --gtest_filter='*Conformance*:*Mpi*'

demo: build/build.ninja ## build what it takes, then train a network on MNIST on two ranks; DEMO="flags" for build/bin/mnist
	@$(call ninja,build mnist)
	@build/bin/mnist $(if $(or $(ATHANOR_DATA),$(findstring --data,$(DEMO))),,$(addprefix --data ,$(wildcard ../shared/data/mnist))) $(DEMO)

benchmarks: build/build.ninja ## compile what benchmarks run
	@$(call ninja,build product benchmarks)

bench: benchmarks ## build, then compare with PyTorch side by side; BENCH="--quick --filter gemm"
	@python3 benchmarks/run.py $(BENCH)

docs: build/build.ninja ## the API reference as HTML in build/docs (needs doxygen)
	@command -v doxygen >/dev/null || { echo "make docs: doxygen is not installed" >&2; exit 1; }
	@ninja -C build athanor_generated >/dev/null
	@mkdir -p build/docs && ATHANOR_DOCS=build/docs ATHANOR_GENERATED=build/generated doxygen docs/Doxyfile
	@echo build/docs/html/index.html

debug: build-debug/build.ninja ## unoptimized build with assertions in build-debug/
	@$(call ninja,build-debug)

asan: build-asan/build.ninja ## build with the address and undefined-behaviour sanitizers and run every test
	@$(call ninja,build-asan)
	@$(call run_tests,build-asan --sanitizer address)

tsan: build-tsan/build.ninja ## build with the thread sanitizer and run every test
	@$(call ninja,build-tsan)
	@$(call run_tests,build-tsan --sanitizer thread)

format: dependencies ## format all C++ files in place
	@python3 tools/format.py --fix

format-check: dependencies ## fail when a C++ file is not formatted
	@python3 tools/format.py

lint: build/build.ninja ## format check, then clang-tidy on what changed since main; LINT=--all for everything
	@python3 tools/format.py
	@ninja --quiet -C build athanor_generated
	@python3 tools/lint.py --jobs $(JOBS) $(LINT)

install: build ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@cmake --install build --prefix $(PREFIX) | tail -n 1

clean: ## remove every build folder
	@rm -rf build build-debug build-asan build-tsan
