# Two commands to begin with on a machine with Go: `make run` and `make test`. `.ci/run` is everything that a change must pass.
#
# With gcc the binary has the CUDA backend in it (no CUDA toolkit needed, and it runs without a driver too); without, it
# is pure Go. cuda.mk has what only GPUs need, lab/lab.mk what measures them.

.DEFAULT_GOAL := run
include cuda.mk
include capi/capi.mk
include python/python.mk
include lab/lab.mk
include release.mk

GO        ?= go
DATA      ?= ../shared/data
FUZZTIME  ?= 10s
SHELL     := /bin/bash
comma     := ,

# Commands read pages by io_uring where liburing's static library is installed (Debian's liburing-dev), and by goroutines elsewhere.
URING        := $(if $(CUDA_STUB),$(if $(filter /%,$(shell $(CC) -print-file-name=liburing.a 2>/dev/null)),liburing))
COMMAND_TAGS  = $(CUDA_TAGS)$(if $(URING),$(comma)$(URING))

.PHONY: help run build service test test-long test-overnight race fuzz lint bench lines check clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):[^#=]*##* \(.*\)/\1:\2/p' $(filter-out %.d %/modules.mk,$(MAKEFILE_LIST)) | awk -F: '{ n = $$1; sub(/^[^:]*:/, ""); printf "%-18s%s\n", n, $$0 }'

# Commands are built with the packages in third_party/ in place of the modules that these are of, which would be 75 MB of downloads.
# Not in go.mod: `go install` of a module with replacements fails.
COMMANDS_MOD := build/commands.mod
THIRD_PARTY  := $(patsubst third_party/%/go.mod,%,$(shell find third_party -name go.mod))
BUILD_COMMAND = $(CUDA_ENV) $(GO) build -modfile=$(COMMANDS_MOD) -ldflags="-X $(GPU_COMMIT)"

$(COMMANDS_MOD): go.mod go.sum $(THIRD_PARTY:%=third_party/%/go.mod)
	@mkdir -p build
	@cp go.sum build/commands.sum && cp go.mod $@.new
	@$(GO) mod edit $(foreach m,$(THIRD_PARTY),-replace=$(m)=./third_party/$(m)) $@.new && mv $@.new $@

# The tag noexporters leaves out what sends traces and metrics, with gRPC: half of the packages that cachebench is made of.
run: $(CUDA_STUB) $(COMMANDS_MOD) ## builds cachebench without exporters, and shows what the cache does for three generated tables
	$(BUILD_COMMAND) $(if $(COMMAND_TAGS),$(COMMAND_TAGS)$(comma),-tags )noexporters -o build/cachebench ./cmd/cachebench
	build/cachebench demo

build: $(CUDA_STUB) $(COMMANDS_MOD) service ## the commands, at build/cachebench and build/tensorcached
	$(BUILD_COMMAND) $(COMMAND_TAGS) -o build/cachebench ./cmd/cachebench

service: $(CUDA_STUB) $(COMMANDS_MOD) ## the service, at build/tensorcached
	$(BUILD_COMMAND) $(COMMAND_TAGS) -o build/tensorcached ./cmd/tensorcached

# Everything is tested in one build, so that it is compiled once: the CUDA build where there is a C compiler. Its GPU tests skip where there is no GPU. With
# -short tests take one case of each kind; test-long has all of them. Position-independent code is what the C library consists of, too, which ./capi tests.
TEST_TAGS = -tags $(if $(CUDA_STUB),cuda$(comma))invariants
TEST_ENV  = $(CUDA_ENV) GOFLAGS="$$($(GO) env GOFLAGS)$(if $(CUDA_STUB), -buildmode=pie)"
# One package more than there are processors, because some wait more than they compute.
GO_TEST   = $(TEST_ENV) $(GO) test -vet=off -short -p $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )) -timeout 15m
VET       = $(TEST_ENV) $(GO) vet $(TEST_TAGS)

# Those of the main module, for CI without those that test-emulated and test-capi run whole.
ELSEWHERE ?=
PACKAGES  ?= $(if $(ELSEWHERE),$(or $(filter-out $(shell $(GO) list $(EMULATED_PACKAGES) ./capi),$(shell $(GO) list ./...)),$(error go list names no package)),./...)

test: $(CUDA_STUB) ## the tests, with internal checks on; five to six minutes on two cores, from empty caches
	$(GO_TEST) $(TEST_TAGS) $(PACKAGES)

.PHONY: test-modules
test-modules: $(CUDA_STUB) # those of the modules that nobody imports
	for m in $(INTEROP) lab; do (cd $$m && $(GO_TEST) $(TEST_TAGS) ./...) || exit 1; done

# Tests with the implementations of others (Prometheus, npyio, clients of Redis; test-long: a Collector): a module of its own, so that nobody else depends on those.
INTEROP = internal/interop

# Other people's clients of Redis, for the tests of $(INTEROP)/redis: 27 MB, 15 seconds, mostly of network. What cannot be had is skipped there.
.PHONY: clients clients-java
clients:
	python3 -m venv build/clients/venv
	for v in 4.6.0 8.1.0; do build/clients/venv/bin/pip install -q --disable-pip-version-check --no-compile --upgrade --target build/clients/redis-py-$${v%%.*} redis==$$v || exit 1; done
	npm install --silent --no-audit --no-fund --no-save --prefix build/clients/node ioredis@6.0.0 redis@6.3.1

clients-java: # 13 MB with what mvn itself needs
	mvn -q -B -f $(INTEROP)/redis/testdata/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/clients/jedis

.PHONY: test-plain
test-plain: $(CUDA_STUB) # what builds without CUDA, or with io_uring, have of their own
	$(GO_TEST) -tags invariants ./transfer ./device/... ./bench/rates
	$(GO_TEST) -tags invariants,noexporters -run 'CudaNotBuilt|AutoSaysWhyHost|GPU|Device|Options|Exporters' ./cache ./cmd/...
	$(if $(URING),$(TEST_ENV) $(GO) vet -tags $(URING) ./pages && $(GO_TEST) -tags $(URING)$(comma)invariants -run Files ./pages)

# Packages whose values are used by several goroutines at once; the host execution of kernels runs below cache and transfer. Codecs are not changed once they are
# made; they read rows by unsafe pointers, which checkptr looks at, as the race detector does.
CONCURRENT = ./cache/... ./pages/... ./serve/... ./device/... ./hashmap ./transfer ./bench/workload
UNSAFE     = ./codec/...

race: $(CUDA_STUB) ## the concurrent packages under the race detector
	$(CUDA_ENV) $(GO) test -vet=off -race -buildmode=default -short -timeout 20m $(CONCURRENT)
	$(CUDA_ENV) $(GO) test -vet=off -gcflags=-d=checkptr -short -timeout 20m $(UNSAFE)

# FUZZ_TAGS=cuda,invariants takes the build of make test, without counts of coverage. FUZZ_SHARE=3 takes one of three targets.
FUZZ_TAGS  ?=
FUZZ_SHARE ?= 1

fuzz: $(CUDA_STUB) ## every fuzz target for FUZZTIME
	$(CUDA_ENV) .ci/fuzz $(FUZZTIME) "$(FUZZ_TAGS)" $(FUZZ_SHARE)

# Folders with files that only builds without these tags have.
PLAIN_ONLY = $(addprefix ./,$(sort $(dir $(shell grep -rlE --include='*.go' '^//go:build .*!$(1)' bench cache codec device slab transfer))))

# The build of the tests, which has nearly every file, is vetted and checked by staticcheck (tools/lint), whose first run takes minutes. Without CUDA every package
# must compile, with its tests, and packages with files of their own there are vetted.
LINT = $(TEST_ENV) GOGC=300 $(CURDIR)/build/lint $(TEST_TAGS),long ./...

lint: $(CUDA_STUB) ## gofmt, vet, staticcheck (its version is pinned in tools/go.mod)
	@test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard "*.go") </dev/null | tee /dev/stderr)"
	$(VET),long ./...
	$(TEST_ENV) $(GO) vet -tags invariants -buildtag ./...
	$(TEST_ENV) $(GO) vet -tags invariants $(call PLAIN_ONLY,cuda)
	$(TEST_ENV) $(GO) vet $(call PLAIN_ONLY,invariants)
	$(TEST_ENV) $(GO) -C tools build -o ../build/lint ./lint
	$(LINT)
	cd $(INTEROP) && $(VET),long ./...
	cd lab && $(VET),long ./... && $(LINT)

# The packages with such tests. TestLong_AutoIsFast compares speeds, so nothing runs beside it.
LONG = $(sort $(dir $(shell grep -rl --include=*_test.go --exclude-dir=lab --exclude-dir=interop '^func TestLong_' .)))

test-long: $(CUDA_STUB) ## all tests with all of their cases, and the exhaustive runs: an hour on two idle cores; the last result is docs/results/test-long.txt
	@mkdir -p docs/results
	@set -o pipefail; { echo "make test-long: $$($(GO) env GOVERSION GOOS GOARCH | xargs)"; \
	   { $(MAKE) --no-print-directory check-kernels && \
	     $(CUDA_ENV) GOGC=300 $(GO) tool -modfile=tools/go.mod staticcheck $(TEST_TAGS),long ./... && \
	     $(CUDA_ENV) $(GO) test -vet=off $(TEST_TAGS) -timeout 60m ./... && \
	     $(CUDA_ENV) $(GO) -C $(INTEROP) test -vet=off $(TEST_TAGS),long -timeout 60m -run '^TestLong_' -v ./... && \
	     $(GO) test -tags long -timeout 60m -run '^TestLong_' -skip '^TestLong_AutoIsFast$$' -v $(LONG) && \
	     $(GO) test -tags long -timeout 60m -run '^TestLong_AutoIsFast$$' -v ./bench/experiment && \
	     $(GO) test -race -tags long,invariants -timeout 4h -run '^TestLong_EqualsVersionedMap$$' -v ./cache; } 2>&1 | grep -vE '^(=== |PASS$$)|no test'; } | tee docs/results/test-long.txt

test-overnight: ## test-long with ten million operations under the race detector: hours
	TENSORCACHE_OPERATIONS=10000000 $(MAKE) --no-print-directory test-long

bench: ## benchmarks of the codecs, the hashmap, the workloads and the simulations
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./codec/registry
	$(GO) test -run '^$$' -bench . -benchtime 1s ./hashmap ./slab ./bench/workload ./bench/trace ./bench/sim/demand ./cache/mrc

.PHONY: bench-resp
bench-resp: service ## tensorcached beside redis-server, with the same rows and the same client
	python3 lab/python/resp.py

.PHONY: check-vega
check-vega: ## whether the scripts in pages of cachebench report are those that npm publishes
	tools/vega

lines: ## the hand-written lines of each folder
	@tools/lines

check: ## everything that CI checks
	.ci/run

clean:
	rm -rf build dist
