# `make` lists the targets. Modules are never listed here, because go.work is their list, and
# scripts/modules reads it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# The linter is built by the compiler at hand, because a linter built by an older Go refuses newer
# language versions.
GOLANGCI_VERSION := v2.15.0
GOLANGCI         := $(CURDIR)/.tools/golangci-lint-$(GOLANGCI_VERSION)

GOTESTSUM_VERSION := v1.13.0
export GOTESTSUM  := $(CURDIR)/.tools/gotestsum-$(GOTESTSUM_VERSION)

# Of make test and its like: see scripts/test.
PACKAGES   ?= work
export TESTFLAGS ?=
export AT_ONCE   ?=
# One of ten parts of test-all, test-peers, mutants and model, such as 3/10.
SHARE      ?= 1/1
MOST       ?= 50
# A folder with archives of the ORMs' suites, for test-peers. PEERS=none leaves the ORMs out.
PEERS      ?=
SUITE      ?=
DATABASE   ?=
BENCHFLAGS ?=
MODEL      ?= small
BENCH      ?= .
BENCHTIME  ?= 1s
COUNT      ?= 1
COMMIT     ?= HEAD
ROUNDS     ?= 7
MUTANTS    ?=
CHANGED    ?=
PROVE      ?= full
STEPS      ?=

MODULES    = $(shell scripts/modules)

.PHONY: help
help: ## list the targets
	@echo 'ormoutbox: make TARGET [VARIABLE=value]'; echo
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---- see it work ----

# ORDERS and KILLS, when given, reach the program through the environment.
.PHONY: demo
demo: ## run the demonstration (ORDERS=, KILLS=)
	@CGO_ENABLED=0 go run ./examples/demo # without cgo, as in make test: no C compiler, and a quick build

.PHONY: demo-ui
demo-ui: ## the operators' page of a shop that is killed again and again: open the address that it prints
	@CGO_ENABLED=0 go run ./examples/demo-ui

.PHONY: screenshots
screenshots: ## take the pictures of the operators' page for the documentation from demo-ui, a minute and a half (needs Chromium)
	@CGO_ENABLED=0 go run ./examples/demo-ui -listen 127.0.0.1:0 -screenshots docs/assets

.PHONY: quote-to-order
quote-to-order: ## run the exercise of two services in twelve steps, on PostgreSQL and Kafka (PAUSE=-pause waits after each)
	@eval "$$(scripts/services up postgres kafka)"; \
	DATABASE_URL="$$OUTBOX_TEST_POSTGRES" KAFKA_BROKERS="$$OUTBOX_TEST_KAFKA" go run ./examples/quote-to-order $(PAUSE)

# ---- test ----

.PHONY: test
test: gotestsum promtool chromium ## the tests that people run all day, against real servers (PACKAGES=, TESTFLAGS=)
	@echo 'make test: about 7 minutes on two idle cores, 12 if everything has to be compiled; packages are printed as they end'
	@scripts/test short $(PACKAGES); status=$$?; \
	echo "'make test-all' runs every test whole; the servers are still up: 'make services-down' stops them"; \
	exit $$status

.PHONY: test-all
test-all: gotestsum promtool chromium ## every test whole, with the race detector, then on the newest Go and databases, then test-peers (SHARE=3/10, PACKAGES=)
	@echo 'make test-all: about an hour on two idle cores, SHARE=3/10 a tenth of it; packages are printed as they end'
	@status=0; export SHARE=$(SHARE); \
	scripts/test whole $(PACKAGES) || status=$$?; scripts/test newest $(PACKAGES) || status=$$?; \
	[[ '$(PACKAGES)' != work ]] || $(MAKE) test-peers || status=$$?; exit $$status

peers = CGO_ENABLED=0 go run ./integration/peers -archives '$(PEERS)' -suite '$(SUITE)' -database '$(DATABASE)' -share $(SHARE)

.PHONY: test-peers
test-peers: ## test suites of ORMs, drivers and sqlx on our adapters and pools, as without them (PEERS=archives, SHARE=3/10, SUITE=GORM, DATABASE=mysql)
	@eval "$$(scripts/services up postgres mariadb mysql)"; $(peers)

.PHONY: peers-sources
peers-sources: ## get the sources of the ORMs' test suites by git, for test-peers (PEERS=, SHARE=)
	@$(peers) -get

$(GOTESTSUM):
	@echo "building gotestsum $(GOTESTSUM_VERSION), once"; mkdir -p $(@D)/tmp
	@GOBIN=$(@D)/tmp GOWORK=off GOFLAGS= go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv $(@D)/tmp/gotestsum $@; rmdir $(@D)/tmp 2>/dev/null || true

# A failed download is no failure of the tests, because scripts/gotest does without gotestsum.
.PHONY: gotestsum
gotestsum:
	@$(MAKE) $(GOTESTSUM) || echo "gotestsum could not be built here"

# Without promtool the tests of the alert rules fail, and their message names this target.
.PHONY: promtool
promtool: ## get promtool, which tests the alert rules, from Debian's package prometheus
	@scripts/promtool >/dev/null || echo "promtool could not be had here"

# Without a browser the tests of the operators' page fail, and their message names this target.
.PHONY: chromium
chromium: ## get the browser in which the operators' page is tested, from Debian's package chromium-headless-shell
	@scripts/chromium >/dev/null || echo "Chromium could not be had here"

AXE_VERSION := 4.14.1
.PHONY: axe
axe: chromium ## have axe-core look at every page of the operators' page (needs npm)
	@mkdir -p .tools; cd .tools; test -f axe-core-$(AXE_VERSION).tgz || npm pack --silent axe-core@$(AXE_VERSION); \
	tar xzf axe-core-$(AXE_VERSION).tgz package/axe.min.js
	@cd integration && CGO_ENABLED=0 go test -tags axe -count 1 -run Axe ./ui

# The tests start clusters of their own, but for Vitess. Then the suites of inbox, keys and effects run
# on one node of a Galera cluster.
.PHONY: test-clusters
test-clusters: ## kill, stop and cut off nodes of clusters of databases under load, 40 minutes (TESTFLAGS=, e.g. '-run Galera')
	@status=0; ( eval "$$(scripts/services up)"; eval "$$(scripts/services up vitess)"; export CGO_ENABLED=0; cd integration; \
	go test -tags clusters -count 1 -v -timeout 2h $(TESTFLAGS) ./clusters || status=$$?; \
	go test -tags clusters -count 1 -timeout 30m -run Vitess ./cli || status=$$?; \
	eval "$$(../scripts/services up galera)"; \
	OUTBOX_TEST_DATABASES=mariadb OUTBOX_TEST_MARIADB="$$OUTBOX_TEST_GALERA1" \
		go test -count 1 -p 1 -timeout 2h ./inbox ./once || status=$$?; exit $$status ) || status=$$?; \
	scripts/services down galera1 galera2 galera3 vitess; exit $$status

.PHONY: test-languages
test-languages: ## consumers in Python, Node and Java, with CloudEvents' SDKs and a schema registry (needs npm, Maven, a JDK)
	@eval "$$(scripts/services up kafka rabbitmq)"; export OUTBOX_TEST_LANGUAGES="$$(scripts/libraries integration/languages)"; \
	cd integration && CGO_ENABLED=0 go test -tags languages -count 1 ./languages

.PHONY: test-emulators
test-emulators: ## the suite of brokers against emulators of AWS, ElasticMQ and moto (needs Python, Maven, a JDK)
	@export OUTBOX_TEST_AWS="$$(scripts/libraries scripts/aws)"; \
	cd integration && CGO_ENABLED=0 go test -tags emulators -count 1 -run Emulators ./brokers

.PHONY: standalone
standalone: ## each module as its users get it, without the workspace: vet and build
	@export GOWORK=off GOFLAGS="$${GOFLAGS:-} -mod=readonly" CGO_ENABLED=0; \
	for module in $(MODULES); do \
		echo "== $$module (GOWORK=off)"; cd "$(CURDIR)/$$module"; go vet ./...; go build -o /dev/null ./...; \
	done; echo "standalone: $(words $(MODULES)) modules are sound without the workspace"

.PHONY: mutants
mutants: services-up ## break the code in one place at a time and require that the tests notice (MUTANTS=regexp, SHARE=3/10, CHANGED=commit, MOST=50)
	@echo 'make mutants: about 12 minutes on two idle cores; each mutant is printed as it is tried'
	@eval "$$(scripts/services env)"; go run ./integration/mutants -run '$(MUTANTS)' -share $(SHARE) -changed '$(CHANGED)' -most $(MOST)

.PHONY: model
model: ## check the models of the protocol with spin, two or three minutes (MODEL=large: ten; SHARE=3/10)
	@SHARE=$(SHARE) scripts/model $(MODEL)

# SEED, SCHEDULES, PROGRAMS, SOAK, MODEL and MUTANTS, when given, reach the script through the
# environment.
.PHONY: prove
prove: services-up ## every proof in full with a report, hours (PROVE=quick: ten minutes, STEPS=, SEED=, SOAK=)
	@eval "$$(scripts/services env)"; PROVE=$(PROVE) scripts/prove $(STEPS)

.PHONY: docs
docs: ## build the documentation as a site in .site (needs Python 3)
	@test -x .tools/docs/bin/mkdocs || { python3 -m venv .tools/docs && .tools/docs/bin/pip -q install 'mkdocs-material==9.8.1'; }
	@NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs -q build --strict -f scripts/docs/mkdocs.yml; echo "the site is in .site/index.html"

.PHONY: bench
bench: ## measure against what people would use instead, on databases that sync every commit, half an hour (BENCHFLAGS=, e.g. -h)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up postgres mariadb kafka)"; status=0; \
	OUTBOX_BENCH_DEBEZIUM="$$(scripts/debezium/fetch)" go run ./integration/bench $(BENCHFLAGS) || status=$$?; \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"; \
	exit $$status

.PHONY: bench-docs
bench-docs: ## make bench, and write its tables into docs/benchmarks.md (BENCHFLAGS=)
	@$(MAKE) bench BENCHFLAGS='-page docs/benchmarks.md $(BENCHFLAGS)'

.PHONY: bench-before
bench-before: ## measure producers and drains against another commit, in turns (COMMIT=, ROUNDS=7, BENCHFLAGS=)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up postgres)"; scripts/bench-before '$(COMMIT)' $(ROUNDS) $(BENCHFLAGS); \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"

# The server is private: other databases and other settings would change the figures.
.PHONY: torture
torture: ## four relays beside long reports, an hour, into torture.svg and torture.csv (BENCHFLAGS=, e.g. '-minutes 1')
	@unset OUTBOX_TEST_POSTGRES18; export SERVICES_LIB="$${SERVICES_LIB:-$${SERVICES_DIR:-$(CURDIR)/.services}/lib}" SERVICES_DIR="$(CURDIR)/.services/torture" \
	SERVICES_PORT_SHIFT=400 SERVICES_DURABLE=1; trap 'unset OUTBOX_TEST_POSTGRES18; scripts/services wipe postgres18' EXIT; \
	eval "$$(scripts/services up postgres18)"; \
	OUTBOX_TEST_POSTGRES="$$OUTBOX_TEST_POSTGRES18" go run ./integration/bench -sections torture -samples torture.csv -picture torture.svg $(BENCHFLAGS)

.PHONY: bench-go
bench-go: ## the Go benchmarks of all modules, on databases that sync every commit (BENCH=regexp, BENCHTIME=, COUNT=)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up)"; \
	go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m work | grep -v 'no test files'; \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"

.PHONY: cover
cover: services-up gotestsum promtool chromium ## coverage of the whole workspace by all tests: coverage.out, coverage.html
	@eval "$$(scripts/services env)"; \
	scripts/gotest -short -timeout=15m -p 3 -coverprofile=coverage.out -coverpkg=github.com/ormoutbox/ormoutbox/... work; \
	go tool cover -html=coverage.out -o coverage.html; \
	go tool cover -func=coverage.out | tail -1

# ---- servers ----

.PHONY: services-up
services-up: ## start the test servers (Docker, else packages) and wait until they answer
	@scripts/services up >/dev/null

.PHONY: services-down
services-down: ## stop the test servers; their data on the disk stays
	@scripts/services down

.PHONY: services-status
services-status: ## show where the test servers are and whether they answer
	@scripts/services status

.PHONY: services-wipe
services-wipe: ## stop the test servers and delete their data
	@scripts/services wipe

# ---- releases and platforms ----

GORELEASE_VERSION := v0.0.0-20261113113407-e3970619a1a4
PLATFORMS ?= linux/arm64 darwin/arm64 windows/amd64

.PHONY: release
release: ## write VERSION=v0.1.0 into every module, and print the commands that come next
	@scripts/release '$(VERSION)'

.PHONY: use
use: ## point a module of yours to this clone, until there is a tag (MODULE=../shop)
	@scripts/use '$(MODULE)'

.PHONY: api-check
api-check: ## compare the exported API with the last tag, by gorelease
	@GORELEASE=golang.org/x/exp/cmd/gorelease@$(GORELEASE_VERSION) scripts/api-check

# Without integration: its tests use processes and sockets as Linux has them. The compiler does not
# optimize, because nothing is run, and most of the time goes to SQLite.
.PHONY: platforms
platforms: ## build and vet every module with its tests for the platforms where no tests run (PLATFORMS=)
	@modules="$$(scripts/modules | grep -v integration | sed 's|$$|/...|' | xargs)"; \
	for platform in $(PLATFORMS); do echo "== $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go vet -gcflags='all=-N -l' $$modules; done

# ---- source ----

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (two minutes or so)"; mkdir -p $(@D)/tmp
	@GOBIN=$(@D)/tmp GOWORK=off GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(@D)/tmp/golangci-lint $@; rmdir $(@D)/tmp

.PHONY: lint-tool
lint-tool: $(GOLANGCI)

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint over every module, in one run
	@$(GOLANGCI) run $(MODULES:%=%/...)

.PHONY: fmt
fmt: $(GOLANGCI) ## format the source (gofumpt, import groups), and wrap the pages (needs Python 3)
	@for module in $(MODULES); do (cd "$$module" && $(GOLANGCI) fmt ./...); done
	@scripts/docs/wrap.py $$(git ls-files '*.md')

.PHONY: fmt-check
fmt-check: ## fail when gofmt would change a file
	@files=$$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -l); \
	[[ ! $$files ]] || { echo "not formatted (make fmt):"; echo "$$files"; exit 1; }

.PHONY: generate
generate: ## generate the Ent clients of tests and examples again
	@go generate work

.PHONY: generate-check
generate-check: generate ## fail when `make generate` changes a file that is committed
	@changed=$$(git status --porcelain -- '*/ent*/*.go'); [[ ! $$changed ]] || \
		{ echo 'not what make generate writes:'; echo "$$changed"; exit 1; }

.PHONY: vet
vet: ## go vet over the workspace, with the tests that have build tags
	@go vet -tags axe,clusters,emulators,languages work

.PHONY: tidy
tidy: ## go mod tidy in every module, then go work sync
	@for module in $(MODULES); do (cd "$$module" && GOWORK=off go mod tidy); done; go work sync

.PHONY: tidy-check
tidy-check: ## fail when go mod tidy would change a module
	@status=0; for module in $(MODULES); do (cd "$$module" && GOWORK=off go mod tidy -diff) || status=1; done; exit $$status

.PHONY: shellcheck
shellcheck: ## check the scripts
	@git ls-files -z | xargs -0 grep -lE '^(#!/usr/bin/env|# shellcheck shell=)\s?bash' -- | xargs shellcheck

.PHONY: ci
ci: ## run every check that CI runs
	@bash .ci/run
