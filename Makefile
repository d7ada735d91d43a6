# eltrain: build, try, test, measure. `make help` lists the targets.

GO      ?= go
BIN     := bin/eltrain
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

# The testbed and e2e/policy are modules of their own, with the root module's staticcheck.
STATICCHECK = $$($(GO) tool -n staticcheck)

# Each of these brings up control planes of its own, which take a small machine whole: one package at a time.
CLUSTERED := $(addprefix github.com/eltrain/eltrain/,deploy e2e/faults e2e/kubernetes e2e/volcano providers/kubernetes providers/volcano state/kubernetes)

.PHONY: help build demo test testbed check bench fuzz deps clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

build: ## bin/eltrain, and bin/eltrain-agent beside it
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.commit=$(VERSION)" -o bin/ ./cmd/eltrain ./cmd/eltrain-agent

demo: build ## a real elastic job on this machine: plan, train, heal, grow, end
	./examples/demo.sh $(CURDIR)/$(BIN)

check: ## format, vet, staticcheck, layering, fast tests
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -short ./...
	staticcheck=$(STATICCHECK) && cd testbed && $(GO) vet ./... && $$staticcheck ./... && $(GO) test -short ./...

testbed: ## etcd, Kubernetes, KWOK and Volcano for the tests: built once, kept in the user's cache
	cd testbed && $(GO) run ./build

test: deps build testbed ## everything, with the race detector, real PyTorch and real Kubernetes; does its own set-up
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	staticcheck=$(STATICCHECK) && cd testbed && $(GO) vet ./... && $$staticcheck ./... && $(GO) test -race -timeout 20m ./...
	staticcheck=$(STATICCHECK) && cd e2e/policy && $(GO) vet ./... && $$staticcheck ./... && $(GO) test -race ./...
	WITH_TORCH=1 WITH_SHELLS=1 WITH_PTRACE=1 $(GO) test -race -timeout 45m $(filter-out $(CLUSTERED),$(shell $(GO) list ./...))
	WITH_TORCH=1 $(GO) test -race -timeout 45m -p 1 $(CLUSTERED)

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
