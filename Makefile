# eltrain: build, try, test, measure. `make help` lists the targets.

GO      ?= go
BIN     := bin/eltrain
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

.PHONY: help build nvml demo test soak testbed check bench fuzz deps clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

build: ## bin/eltrain, and bin/eltrain-agent beside it
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.commit=$(VERSION)" -o bin/ ./cmd/eltrain ./cmd/eltrain-agent

nvml: ## bin/eltrain-nvml, which prints figures of NVIDIA devices; needs a C compiler
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" $(GO) -C nvml build -trimpath -ldflags "-s -w" -o ../bin/eltrain-nvml .

demo: build ## a real elastic job on this machine: plan, train, heal, grow, end
	./examples/demo.sh $(CURDIR)/$(BIN)

check: ## format, vet, staticcheck, layering, fast tests
	@./scripts/gate.sh static
	$(GO) test -short ./...
	cd testbed && $(GO) test -short ./...

testbed: ## etcd, Kubernetes, KWOK and Volcano for the tests: built once, kept in the user's cache
	cd testbed && $(GO) run ./build

test: ## the gate: set-up, static checks, tiers 1 to 4 with real PyTorch and real Kubernetes; says what each took
	@./scripts/gate.sh

soak: ## what is too long for the gate: servers that die, kills at every step, shells; SOAK=2h goes on for so long
	@./scripts/gate.sh soak

deps: # what the tests need besides Go: python3, curl, zsh, fish, and Debian's PyTorch
	@./scripts/test-deps.sh

bench: build testbed ## measures; writes bench/results.md
	./bench/run.sh

fuzz: ## every fuzz target for a minute
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s $$pkg || exit 1; \
	  done; done

clean: ## remove what was built
	rm -rf bin
