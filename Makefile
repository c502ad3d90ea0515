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

# Tests wait for servers and for time to pass more than they compute. So more of them run at once
# than there are cores.
AT_ONCE    ?= -p 3 -parallel 4

# The race detector watches everything except SQLite and its libc. They are C that was translated
# into Go, and would take most of the time of all tests. A test program that ends does not wait a
# second for reports of other threads.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false
export GORACE ?= atexit_sleep_ms=0
# Test programs are short. A larger heap costs them less than collecting garbage more often.
export GOGC ?= 200

TESTFLAGS  ?=
TIMEOUT    ?= 15m
LONGTIMEOUT ?= 25m
BENCHFLAGS ?=
MODEL      ?= small
BENCH      ?= .
BENCHTIME  ?= 1s
COUNT      ?= 1
COMMIT     ?= HEAD
ROUNDS     ?= 7
MUTANTS    ?=

MODULES    = $(shell scripts/modules)
SERVERLESS = $(shell scripts/modules --serverless)

.PHONY: help
help: ## list the targets
	@echo 'ormoutbox: make TARGET [VARIABLE=value]'; echo
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---- see it work ----

# ORDERS and KILLS, when given, reach the program through the environment.
.PHONY: demo
demo: ## run the demonstration (ORDERS=, KILLS=)
	@CGO_ENABLED=0 go run ./examples/demo # without cgo: no C compiler, and a quick build

.PHONY: quote-to-order
quote-to-order: ## run the exercise of two services in twelve steps, on PostgreSQL and Kafka (PAUSE=-pause waits after each)
	@eval "$$(scripts/services up postgres kafka)"; \
	DATABASE_URL="$$OUTBOX_TEST_POSTGRES" KAFKA_BROKERS="$$OUTBOX_TEST_KAFKA" go run ./examples/quote-to-order $(PAUSE)

# ---- test ----

# `make test` leaves these tests out, and `make test-long` runs them: hundreds of kills, query plans
# on big tables, a cluster of Kafka.
LONG := TestCrashAtEachPoint|TestCrashAtRandomMoments|TestCrashAtEachPointOfSQLiteInGo|TestCrashAtEachPointOfPGX|TestCrashThroughBrokers|TestCrashWithManyInFlight|TestCrashThroughKafkaCluster|TestInboxCrash
LONG := $(LONG)|TestAdapterSuitePgBouncer|TestPartitionedRepositorySuite|TestRepositorySuitePostgresModes|TestBenchRun|TestPlans|TestPartitionedPlans|TestPlansOfTableThatGrew|TestKilledPlan|TestOperatorsAtOnce|TestInboxPlans|TestOncePlans|TestEffectPlans|TestKafkaClusterKeepsWhatItAcknowledged|TestFlyway|TestDebezium|TestOldSnapshot.*|TestVersionBeforeOnThePresentTables
LONG := $(LONG)|TestRepositorySuite(PGX|Connector)|TestExampleQuoteToOrder|TestKilled|TestChaos|TestFailover|TestSlowDestination|TestTransactions|TestKilledDatabaseIsBack|TestSlotLost|TestBacklogLimitUnderLoad|TestKilledArchive
# `make test` runs these tests in part, because of -short: with fewer schedules and random programs,
# and with one way to open an ORM. `make test-long` runs all of them.
WHOLE := TestAdapterSuite.*|TestCaptureSuite.*|TestBun.*|TestGORM.*|TestDeadWebhookSubscriber|TestFeaturesOfBrokers|TestBrokersAway|TestBrokerKilled|TestWatermillUniversalSuite
WHOLE := $(WHOLE)|TestPgx(Flight|FirstStatement)IsCutAtEachByte|TestPgxClaimIsCut|TestPgBouncerFlightIsCut|TestPgxServerStallsInCommit|TestPgxDifferentialPrograms|TestOneProcessForManyDatabases|TestListSelects|TestOperatorOfAPoisonedDeploy|TestUnknownCommit|TestZombieOrder|TestFastPathShareOfOrderedEvents
# The packages that take longest come first, so that none of them is left to run alone at the end.
LONG_PACKAGES := $(addprefix ./integration/,pgxoutbox gorm ent bun repository crash bench debezium walrelay cli sql relay brokers endtoend ops command upgrade inbox once workspace)
# `make test` begins with these, for the same reason.
LONGEST := ./core $(addprefix ./integration/,repository gorm ent bun pgxoutbox endtoend sql workspace brokers) ./cmd/outbox/internal/cli
# `make test` runs 300 schedules of the simulation with the race detector. `make test-long` runs all
# of them without it, and each takes an eighth of the time.
SIMULATION := TestSimulation.*
# If it is set, `make test` leaves out all tests that a later `make test-long` runs in full.
LONG_FOLLOWS ?=
# `make test-newer` runs these packages a second time, on MySQL and PostgreSQL 18: all that depend
# on how a database works.
NEWER ?= bun command crash ent gorm inbox once ops repository sql walrelay
NEWER_PACKAGES = $(addprefix ./integration/,$(NEWER))
NEWER_NOT := TestCrashAtRandomMoments|SQLiteInGo|ThroughBrokers|ManyInFlight|Kafka|Redis

# These come before the servers, which may take a minute to start.
.PHONY: time-of-test time-of-test-long
time-of-test:
	@echo 'make test: about 8 minutes on two idle cores, and longer the first time, when everything is compiled;' \
		'packages are printed as they end'
time-of-test-long:
	@echo 'make test-long: about 17 minutes on two idle cores; packages are printed as they end'

.PHONY: test
test: time-of-test services-up gotestsum promtool ## the tests of every module against real servers, with the race detector (TESTFLAGS=, TIMEOUT=, LONG_FOLLOWS=yes)
	@eval "$$(scripts/services env)"; status=0; \
	scripts/gotest -short $(RACE) -shuffle=on -timeout=$(TIMEOUT) $(AT_ONCE) -skip '^($(LONG)$(if $(LONG_FOLLOWS),|$(WHOLE)))$$' $(TESTFLAGS) $(LONGEST) work || status=$$?; \
	echo "ran with $$(go env GOVERSION), over $$(scripts/modules | wc -l) modules: $$(scripts/modules | xargs)"; \
	echo "'make test-long' runs the tests that take long; the servers are still up: 'make services-down' stops them"; \
	exit $$status

.PHONY: test-long
test-long: time-of-test-long services-up gotestsum ## the tests that take long: kills, ten thousand schedules, every way to open an ORM, big tables
	@eval "$$(scripts/services env)"; status=0; \
	scripts/gotest -timeout=$(LONGTIMEOUT) -run '^($(SIMULATION))$$' $(TESTFLAGS) ./core ./pgxoutbox/walrelay || status=$$?; \
	scripts/gotest $(RACE) -shuffle=on -timeout=$(LONGTIMEOUT) $(AT_ONCE) -run '^($(LONG)|$(WHOLE))$$' $(TESTFLAGS) $(LONG_PACKAGES) || status=$$?; \
	exit $$status

.PHONY: test-newer
test-newer: services-up gotestsum ## the tests of databases once more, on MySQL 9.7 and PostgreSQL 18 (NEWER=packages)
	@echo 'make test-newer: about 10 minutes on two idle cores; packages are printed as they end'
	@eval "$$(scripts/services env)"; OUTBOX_TEST_DATABASES='mysql postgres18' \
		scripts/gotest -short $(RACE) -shuffle=on -timeout=$(TIMEOUT) $(AT_ONCE) -skip '$(NEWER_NOT)' $(TESTFLAGS) $(NEWER_PACKAGES)

.PHONY: test-unit
test-unit: gotestsum ## the tests of the modules that need no server
	@scripts/gotest $(RACE) -shuffle=on -timeout=$(TIMEOUT) $(TESTFLAGS) $(SERVERLESS:%=%/...); \
	echo "ran: $(SERVERLESS)"

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

.PHONY: standalone
standalone: ## each module as its users get it, without the workspace: vet, build, tests that need no server
	@serverless=" $(SERVERLESS) "; export GOWORK=off GOFLAGS="$${GOFLAGS:-} -mod=readonly"; \
	for module in $(MODULES); do \
		echo "== $$module (GOWORK=off)"; cd "$(CURDIR)/$$module"; \
		go vet ./...; go build -o /dev/null ./...; \
		if [[ $$serverless == *" $$module "* ]]; then go test ./...; else echo "tests need servers: left to 'make test'"; fi; \
	done; echo "standalone: $(words $(MODULES)) modules are sound without the workspace"

.PHONY: mutants
mutants: services-up ## break the code in one place at a time and require that the tests notice (MUTANTS=regexp)
	@echo 'make mutants: about 12 minutes on two idle cores; each mutant is printed as it is tried'
	@eval "$$(scripts/services env)"; go run ./integration/mutants -run '$(MUTANTS)'

.PHONY: model
model: ## check the models of the protocol with spin, two or three minutes (MODEL=large: ten)
	@scripts/model $(MODEL)

.PHONY: docs
docs: ## build the documentation as a site in .site (needs Python 3)
	@test -x .tools/docs/bin/mkdocs || { python3 -m venv .tools/docs && .tools/docs/bin/pip -q install 'mkdocs-material==9.8.1'; }
	@NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs -q build --strict -f scripts/docs/mkdocs.yml; echo "the site is in .site/index.html"

.PHONY: bench
bench: ## measure against what people would use instead, on databases that sync every commit, half an hour (BENCHFLAGS=, e.g. -h)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up postgres mariadb kafka rabbitmq)"; status=0; \
	OUTBOX_BENCH_DEBEZIUM="$$(scripts/debezium/fetch)" go run ./integration/bench $(BENCHFLAGS) || status=$$?; \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"; \
	exit $$status

.PHONY: bench-docs
bench-docs: ## make bench, and write its tables into docs/benchmarks.md (BENCHFLAGS=)
	@$(MAKE) bench BENCHFLAGS='-update docs/benchmarks.md $(BENCHFLAGS)'

.PHONY: bench-before
bench-before: ## measure producers and drains against another commit, in turns (COMMIT=, ROUNDS=7, BENCHFLAGS=)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up postgres)"; scripts/bench-before '$(COMMIT)' $(ROUNDS) $(BENCHFLAGS); \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"

.PHONY: bench-go
bench-go: ## the Go benchmarks of all modules, on databases that sync every commit (BENCH=regexp, BENCHTIME=, COUNT=)
	@eval "$$(SERVICES_DURABLE=1 scripts/services up)"; \
	go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m work | grep -v 'no test files'; \
	echo "the databases still run durably: SERVICES_DURABLE=0 make services-up speeds tests up again"

.PHONY: cover
cover: services-up gotestsum promtool ## coverage of the whole workspace by all tests: coverage.out, coverage.html
	@eval "$$(scripts/services env)"; \
	scripts/gotest -timeout=$(TIMEOUT) $(AT_ONCE) -coverprofile=coverage.out -coverpkg=github.com/ormoutbox/ormoutbox/... work; \
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

# ---- source ----

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (two minutes or so)"; mkdir -p $(@D)/tmp
	@GOBIN=$(@D)/tmp GOWORK=off GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(@D)/tmp/golangci-lint $@; rmdir $(@D)/tmp

.PHONY: lint-tool
lint-tool: $(GOLANGCI)

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint over every module
	@status=0; for module in $(MODULES); do \
		echo "== $$module"; (cd "$$module" && $(GOLANGCI) run ./...) || status=1; \
	done; exit $$status

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
vet: ## go vet over the workspace
	@go vet work

.PHONY: tidy
tidy: ## go mod tidy in every module, then go work sync
	@for module in $(MODULES); do (cd "$$module" && GOWORK=off go mod tidy); done; go work sync

.PHONY: tidy-check
tidy-check: ## fail when go mod tidy would change a module
	@status=0; for module in $(MODULES); do (cd "$$module" && GOWORK=off go mod tidy -diff) || status=1; done; exit $$status

.PHONY: shellcheck
shellcheck: ## check the scripts
	@shellcheck scripts/before scripts/bench-before docs/debezium/build scripts/debezium/fetch scripts/flyway/fetch scripts/modules scripts/gotest scripts/model scripts/promtool scripts/services .ci/run

.PHONY: ci
ci: ## run every check that CI runs
	@bash .ci/run
