# One command for each thing a developer does. `make help` lists them; CI runs `make test` and nothing else. `make run` and `make test`
# install what this machine lacks (tools/setup says what); SETUP=no leaves it alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

export CARGO_TARGET_DIR ?= $(HOME)/.cache/headwater/target
# Where tools/setup puts what no package of a distribution has.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headwater/tools/bin:$(HOME)/.cargo/bin:$(PATH)
# Each test that could not be run appends a line to it.
export TEST_SKIPS := $(CARGO_TARGET_DIR)/skipped
export CARGO_TERM_COLOR ?= auto

CARGO ?= cargo
# Seconds each fuzz target runs by `make fuzz`; `make test` counts inputs instead.
SECONDS ?= 60
# Requests made from each operation of the OpenAPI page by `make http-fuzz`, beside those that its examples and bounds ask for.
HTTP_EXAMPLES ?= 10
# Where set, `make http-fuzz` ends by the clock instead, after so many seconds.
HTTP_SECONDS ?=
# Begins the fuzzing of `make fuzz` and `make http-fuzz`; empty = another each time.
SEED ?=
# The fuzz targets to run; empty = all.
TARGETS ?=
# Lives of `make soak`, and the seed of the first.
LIVES ?= 2000
FIRST ?= 1000
# Arguments of `make bench`, `make go-bench` and `make python-bench`.
ARGS ?=
# Rounds of each benchmark of `make go-bench`.
ROUNDS ?= 21
TIMES ?= 100
# Seconds for which `make vmagent` cuts the link.
CUT ?= 60
# The demo's database: made anew by every `make demo`.
DEMO_DB := demo.db
# The served database: made of sample data by the first `make run`, and kept.
SAMPLE_DB := sample.db
# The databases of `make cluster`: made anew each time.
CLUSTER_DIR := cluster.demo
# The stores and databases of `make lake`: made anew each time.
LAKE_DIR := lake.demo
# Where more recordings may lie; data/import-samples takes those it knows.
MORE_DATA ?= ../shared/data
# What the compiler calls the kind of processor that `make edge` builds for.
EDGE_TARGET ?= aarch64-unknown-linux-musl
# Runs a program of that kind here; empty where this machine does so itself.
EDGE_RUNNER ?= $(if $(filter $(HOST),$(EDGE_TARGET)),,$(if $(filter aarch64-%,$(EDGE_TARGET)),qemu-aarch64-static,qemu-arm-static))
# Where `make run` listens.
ADDR ?= 127.0.0.1:7373

# The profile of `make run` optimises what handles every value, and SQL's planner only a little: Cargo.toml says why.
HEADWATER := $(CARGO_TARGET_DIR)/quick/headwater
# Everything that is tested, the command among it, built once with one set of features: SQL takes minutes to build.
BUILD_TESTED = $(CARGO) test --workspace --locked --no-run --quiet
# The page is built when a file of it changed; its packages are installed when their list did.
WEB_DIST := web/dist/index.html
WEB_PACKAGES := web/node_modules/.package-lock.json
WEB_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*' -not -path 'web/dist/*' -not -name '*.test.ts' -not -path 'web/e2e/*')
# The library for C: what a program that is compiled against it needs, in one folder.
FFI_DIR := $(CARGO_TARGET_DIR)/ffi
# The version of all crates, and what this machine is called by the compiler.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
WEATHER := data/weather_nyc_2013.csv.gz
# Not written out below, because a comma ends an argument of `call`.
JFK := weather,origin=JFK

bold := $(shell [ -t 1 ] && tput bold 2>/dev/null)
plain := $(shell [ -t 1 ] && tput sgr0 2>/dev/null)
section = @printf '\n%s== %s%s\n' '$(bold)' $(1) '$(plain)'
# Prints a command as a user would type it, then runs it.
define show
@printf '\n%s$$ headwater %s%s\n' '$(bold)' $(call quote,$(1)) '$(plain)'
@$(HEADWATER) $(1)
endef
quote = '$(subst ','\'',$(1))'

.PHONY: setup-run setup-test room cold-test help run demo cluster lake quick release build go go-test go-bench test fmt fmt-check lint unit doc tidy soak timing fuzz bench web web-test browser page-bench http-fuzz clean python python-wheel python-bench deb static edge edge-test sql-compare vmagent

help: ## This list
	@printf 'Headwater: an embedded time-series database. Targets:\n\n'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@printf '\nBuild output goes to %s (set CARGO_TARGET_DIR to change it).\n' '$(CARGO_TARGET_DIR)'

setup-run setup-test: setup-%:
	@tools/setup $*

run: setup-run quick ## Install what is missing, build, serve the sample data and print the link; ADDR=127.0.0.1:7374 takes another port
	@if [ ! -d $(SAMPLE_DB) ]; then \
	  rm -rf -- $(SAMPLE_DB).new; \
	  data/import-samples $(HEADWATER) $(SAMPLE_DB).new $(MORE_DATA); \
	  mv -- $(SAMPLE_DB).new $(SAMPLE_DB); \
	fi
	$(call section,'The server. Open the link below in a browser; Ctrl-C stops it and closes $(SAMPLE_DB)')
	@printf '%s\n' \
	  'In another terminal:' \
	  '' \
	  "  curl http://$(ADDR)/write --data-binary 'pumps,id=p1 pressure=4.2'     # send a value" \
	  '  $(HEADWATER) demo --live --url http://$(ADDR)     # simulated sensors, some of them late' \
	  ''
	@$(HEADWATER) serve --db $(SAMPLE_DB) --http-addr $(ADDR) --log-level warn || { \
	  printf '\nIs the port taken? `make run ADDR=127.0.0.1:7374` takes another one.\n' >&2; exit 1; }

cluster: setup-run quick ## A fleet on this machine: a dispatcher, two clouds, eight edges with simulated sensors; ADDR=… as with run
	$(call section,'A dispatcher before two clouds and eight edges. Ctrl-C stops them all; $(CLUSTER_DIR) is made anew each time')
	@data/cluster $(HEADWATER) $(CLUSTER_DIR) $(ADDR)

quick: web ## Build the headwater command as `make run` does, SQL's planner optimised less
	$(call section,'Building the headwater command (some minutes the first time)')
	@$(CARGO) build --profile quick --locked --package headwater-cli

release: web ## Build the headwater command with everything optimised: half an hour on two cores
	$(call section,'Building the headwater command')
	@$(CARGO) build --release --locked --package headwater-cli
	@printf 'The command is %s\n' '$(CARGO_TARGET_DIR)/release/headwater'

lake: setup-test quick ## Lakes in a bucket on this machine: a store of S3's protocol, two clouds, eight edges, and DuckDB asking over all of them
	$(call section,'Two clouds and eight edges. Ctrl-C stops them all; $(LAKE_DIR) is made anew each time')
	@python=$$(tools/environment python duckdb==1.5.5 duckdb-extensions==1.5.5 duckdb-extension-{avro,httpfs,iceberg,parquet}==1.5.5) && \
	  data/lake $(HEADWATER) $(LAKE_DIR) "$$(command -v versitygw)" "$$python/bin/python"

deb: release ## Build a Debian package of the command, with its service
	$(call section,'The Debian package')
	@packaging/deb $(CARGO_TARGET_DIR)/release/headwater '$(VERSION)' $(CARGO_TARGET_DIR)/packages

static: web ## Build the command as one file that needs no library: for other Linuxes of this kind of processor
	$(call section,'The command without libraries')
	@RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --release --locked --package headwater-cli --target $(HOST)
	@! ldd '$(CARGO_TARGET_DIR)/$(HOST)/release/headwater' 2>/dev/null | grep '=>' || { echo 'it needs these libraries all the same' >&2; exit 1; }
	@printf 'The command is %s\n' '$(CARGO_TARGET_DIR)/$(HOST)/release/headwater'

edge: ## Build the command for a small gateway, without SQL and page, as one file: EDGE_TARGET=armv7-unknown-linux-gnueabihf for another
	$(call section,'The command for $(EDGE_TARGET)')
	@rustup target add $(EDGE_TARGET)
	@packaging/edge $(EDGE_TARGET)

edge-test: edge ## Try that command, in an emulator where it needs one: it joins, takes a thousand values a second, is killed, and is proven
	@$(BUILD_TESTED)
	@packaging/edge-test $(CARGO_TARGET_DIR)/debug/headwater $(CARGO_TARGET_DIR)/$(EDGE_TARGET)/edge/headwater $(EDGE_RUNNER)

demo: setup-run quick ## A tour in the terminal: import a year of weather, look at it at several zooms
	$(call section,'A year of hourly weather at three New York airports')
	@rm -rf -- $(DEMO_DB)
	$(call show,import --db $(DEMO_DB) --table weather --time epoch_ms:ms --tag origin --null NA \
	  --field temp:f64 --field dewp:f64 --field humid:f64 --field wind_dir:f64 --field wind_speed:f64 \
	  --field wind_gust:f64 --field precip:f64 --field pressure:f64 --field visib:f64 $(WEATHER))
	$(call section,'What is stored')
	$(call show,stat --db $(DEMO_DB))
	$(call section,'Temperature at JFK: the whole year')
	$(call show,plot --db $(DEMO_DB) '$(JFK).temp')
	$(call section,'The same stream: one day in July')
	$(call show,plot --db $(DEMO_DB) '$(JFK).temp' --from 2013-07-18 --to 2013-07-19)
	$(call section,'What to try next')
	@printf '%s\n' \
	  '' \
	  'alias headwater=$(HEADWATER)' \
	  '' \
	  "headwater aggregate --db $(DEMO_DB) 'weather,origin=LGA.temp' --every 7d       # a mean, least and most for each week" \
	  "headwater last      --db $(DEMO_DB) 'weather,origin=EWR'                       # the newest value of each field" \
	  "headwater tile      --db $(DEMO_DB) 'weather,origin=JFK.temp' 12 655           # 512 buckets of 4,096 s as JSON" \
	  "headwater export    --db $(DEMO_DB) --table weather --where origin=JFK --format csv | head" \
	  'headwater check     --db $(DEMO_DB)                                            # reads every byte back' \
	  'headwater import    --db my.db --table car --time epoch_ms:ms my.csv           # your own CSV; also .gz, .zst and line protocol' \
	  'headwater help' \
	  '' \
	  'To use it inside a program, see README.md. The demo is in $(DEMO_DB); remove it when you like.'

ffi: ## Build the library for C, optimised: header, static and shared library, pkg-config file
	$(call section,'The library for C')
	@$(CARGO) build --release --locked --package headwater-ffi
	@mkdir -p $(FFI_DIR)/include $(FFI_DIR)/lib/pkgconfig
	@cp crates/ffi/include/headwater.h $(FFI_DIR)/include/
	@cp $(CARGO_TARGET_DIR)/release/libheadwater_ffi.a $(FFI_DIR)/lib/libheadwater.a
	@cp $(CARGO_TARGET_DIR)/release/libheadwater_ffi.so $(FFI_DIR)/lib/libheadwater.so
	@sed 's/@VERSION@/'"$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"'/' crates/ffi/headwater.pc.in > $(FFI_DIR)/lib/pkgconfig/headwater.pc
	@printf 'header and libraries are in %s\n' '$(FFI_DIR)'

ffi-dir: # Where `make ffi` puts them
	@printf '%s\n' '$(FFI_DIR)'

build: web ## Build everything, unoptimised
	$(CARGO) build --workspace --all-targets --locked

go: ## Build the library and the Go package on it (bindings/go), and run its tests
	$(call section,'The library with optimisation')
	@CARGO='$(CARGO)' bindings/go/build release
	$(call section,'The Go package')
	cd bindings/go && go build ./... && go test -count=1 ./...

# After `unit`, whose tests of the C interface leave the library there.
go-test:
	$(call section,'Tests of the Go package')
	@LIBRARY='$(abspath $(CARGO_TARGET_DIR))/debug/deps/libheadwater_ffi.a' bindings/go/test

go-bench: ## Measure the Go package beside bbolt and two SQLites: ROUNDS=21, ARGS='-bench Read/anywhere' for some
	$(call section,'The library with optimisation')
	@CARGO='$(CARGO)' bindings/go/build release
	$(call section,'The Go package beside bbolt and SQLite')
	cd bindings/go && go test -run '^$$' -bench . -benchtime 1s .
	cd bindings/go/bench && go test -tags rivals -run '^$$' -timeout 3600s -benchtime $(ROUNDS)x $(if $(ARGS),$(ARGS),-bench .) .

# What `make test` does, in this order; the same change is judged by the same inputs and requests, as many on every machine.
TEST_PARTS := web fmt-check web-test lint unit go-test python doc browser http-fuzz fuzz-inputs
test: export SEED ?= 1
test: setup-test room ## Install what is missing, and everything a change must pass; what CI runs. SEED=2 for other inputs
	@rm -f -- '$(TEST_SKIPS)'; mkdir -p '$(CARGO_TARGET_DIR)'; times=; \
	for part in $(TEST_PARTS); do \
	  begin=$$SECONDS; $(MAKE) --no-print-directory $$part; times+="$$part $$((SECONDS - begin)) s, "; \
	done; \
	printf '\n== %sAll checks passed%s\nTime: %s\n' '$(bold)' '$(plain)' "$${times%, }"; \
	if [ -s '$(TEST_SKIPS)' ]; then \
	  printf 'Skipped, %s in all:\n' "$$(wc -l <'$(TEST_SKIPS)')"; sed 's/^/  /' '$(TEST_SKIPS)'; \
	else echo 'Skipped: nothing'; fi

room:
	@tools/room

# The processes beside it that keep the machine busy.
BUSY ?= 0
cold-test: ## What CI runs, in a fresh clone with an empty home, cache and target: BUSY=4 for busy processes beside it
	@tools/cold-test $(BUSY)

fuzz-inputs:
	$(call section,'Fuzzing: the inputs of fuzz/inputs')
	@fuzz/run --seed $(or $(SEED),1)

fmt: $(WEB_PACKAGES) ## Format the sources
	$(CARGO) fmt --all
	cd web && npm run --silent format
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml

fmt-check:
	$(call section,'Format')
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

lint: ## Clippy, every warning an error
	$(call section,'Lints')
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package headwater-cli --package headwater-server --no-default-features --all-targets --locked -- -D warnings

unit:
	$(call section,'Tests of code and pages')
	@log='$(CARGO_TARGET_DIR)/unit.log'; mkdir -p '$(CARGO_TARGET_DIR)'; \
	$(CARGO) test --workspace --locked --no-fail-fast 2>&1 | tee "$$log" || { \
	  printf '\n== Failed\n'; grep -aE -A 2 "^thread .* panicked at " "$$log" | cut -c 1-300 | tail -n 40 || :; \
	  grep -aE '^test .* FAILED$$' "$$log" || :; exit 1; \
	}

web: $(WEB_DIST) ## Build the page into web/dist, which the server embeds; does nothing when nothing changed

$(WEB_PACKAGES): web/package.json web/package-lock.json
	$(call section,'Packages of the page')
	@command -v npm >/dev/null || { echo 'npm is missing: tools/setup run installs it, and Node.js 20.19 or later' >&2; exit 1; }
	cd web && npm ci --no-audit --no-fund
	@touch $@

# The server's build script is touched so that cargo embeds the new page.
$(WEB_DIST): $(WEB_PACKAGES) $(WEB_SOURCES)
	$(call section,'The page')
	cd web && npm run --silent build
	@[ ! -e crates/server/build.rs ] || touch crates/server/build.rs

web-test: web ## Format, types and unit tests of the page, and its size
	$(call section,'Tests of the page')
	cd web && npm run --silent check && npm run --silent test

browser: web ## Tests of the page in Chromium, against made-up data and against the real server
	$(call section,'Tests in a browser')
	$(BUILD_TESTED)
	cd web && npm run --silent browser

page-bench: quick ## Time the page in Chromium with the server of `make run`: its first plot, and the steps of a zoom
	$(call section,'Timing the page')
	cd web && TESTED_BINARY='$(abspath $(HEADWATER))' npm run --silent browser -- server -t 'first plot|by wheel'

http-fuzz: web ## Send the server requests made from its OpenAPI page: HTTP_EXAMPLES=100 for more, HTTP_SECONDS=600 by the clock
	$(call section,'Requests from the OpenAPI page')
	$(BUILD_TESTED)
	@fuzz/http $(CARGO_TARGET_DIR)/debug/headwater $(if $(HTTP_SECONDS),--seconds $(HTTP_SECONDS),--examples $(HTTP_EXAMPLES)) $(if $(SEED),--seed $(SEED))

sql-compare: ## Random SQL statements beside DuckDB: STATEMENTS=10000, SEED=14, WIDE=yes for more constructs
	@HEADWATER_SQL_STATEMENTS=$(or $(STATEMENTS),10000) HEADWATER_SQL_SEED=$(or $(SEED),14) HEADWATER_SQL_WIDE=$(WIDE) TEST_CLIENTS=required \
		$(CARGO) test --workspace --locked --test it random_statements -- --nocapture

python: ## Build the Python package unoptimised, run its tests and mypy; PYTEST='-k frames' for some
	$(call section,'Python package')
	@bindings/python/test $(PYTEST)

python-wheel: ## Build an optimised wheel of the Python package and test it
	$(call section,'Python wheel')
	@bindings/python/test --release
	@ls $(CARGO_TARGET_DIR)/wheels/release/*.whl

python-bench: ## Ten million points from and to numpy, beside the Rust calls: ARGS='--rounds 7'
	@bindings/python/test --bench $(ARGS)

tidy: ## Only the checks of layers, crate arrows, licences, links and sources
	$(CARGO) test --package tidy --locked

doc: ## Build the API documentation, every warning an error
	$(call section,'Documentation')
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

soak: ## Random lives of databases, and power cuts at every operation, for hours: LIVES=2000 from seed FIRST=1000 on
	$(call section,'Random lives: $(LIVES) from seed $(FIRST) on')
	HEADWATER_MODEL_FIRST_SEED=$(FIRST) HEADWATER_MODEL_SEEDS=$(LIVES) HEADWATER_MODEL_AGREE_EVERY=3 \
	  $(CARGO) test --locked --package headwater-engine --test it -- --nocapture random_lives
	$(call section,'A power cut at every operation')
	HEADWATER_CRASH_EVERY=1 HEADWATER_CRASH_FIRST_SEED=$(FIRST) HEADWATER_CRASH_SEEDS=100 \
	  $(CARGO) test --locked --package headwater-engine --test it -- crash power_cut

timing: ## Compare times of refused requests, whether a name exists or not, over all roles of a fleet: TIMES=100
	$(call section,'Times of refused requests')
	HEADWATER_TIMING=$(TIMES) $(CARGO) test --locked --package headwater-server --test it -- --nocapture --test-threads 1 matrix::timing

fuzz: ## Run the fuzz targets by the clock, from fresh seeds: SECONDS=600 for each, TARGETS='leaf csv' for some
	$(call section,'Fuzzing: $(SECONDS) s for each target')
	@fuzz/run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(TARGETS)

bench: ## Run the measurements of crates/lab: ARGS='--help' says which
	$(CARGO) run --release --locked --package lab -- $(ARGS)

# For comparison only: Apache-2.0, built from its source, not part of anything shipped.
vmagent: ## Measure an edge beside vmagent through a cut link: CUT=60
	$(call section,'vmagent')
	@mkdir -p '$(CARGO_TARGET_DIR)'
	cd crates/lab/vmagent && go build -o '$(abspath $(CARGO_TARGET_DIR))/vmagent' github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent
	$(call section,'An edge beside vmagent')
	$(CARGO) run --release --locked --package lab -- fleet --part buffer --vmagent '$(abspath $(CARGO_TARGET_DIR))/vmagent' --seconds $(CUT)

clean: ## Remove the databases made here and everything built
	rm -rf -- $(DEMO_DB) $(SAMPLE_DB) $(SAMPLE_DB).new web/dist web/node_modules
	$(CARGO) clean
