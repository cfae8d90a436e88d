# `make help` lists the verbs. Needs Python 3.11 or newer, make and git; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
# Each of many processes would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
READ_BY_PEOPLE := *.md Makefile docs config gateway providers holeshot migrations tools

.DEFAULT_GOAL := help
.PHONY: help run install test checks suite browser quick bench profile docs fmt lock release clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@awk '/^# /{said=substr($$0, 3)} /^(define )?(bench|test)_/{sub(/^define /, ""); split($$1, name, "_"); \
	  printf "make %-6sWHAT=%-14s%s\n", name[1], name[2], said}' $(MAKEFILE_LIST)

run: install  ## from nothing to a running gateway on port 4000
	@echo "Starting Holeshot; the first start takes some seconds longer ..."
	@$(BIN)/python tools/requirements/install.py --needed
	@$(BIN)/holeshot serve

install: $(VENV)/.runtime  ## install into .venv: .venv/bin/holeshot (make run adds litellm for providers that need it)

test: $(VENV)/.dev  ## everything that must pass; brings its own Postgres and Redis. WHAT=clients: what takes longer (below)
ifdef WHAT
	@$(call known,$(WHAT),$(TESTS))
	$(test_$(WHAT))
else
	@$(BIN)/python tests/browser/run.py install
	@$(BIN)/python -m tests.costs $(MAKE) --no-print-directory --jobs 3 checks browser suite
endif

checks: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.darwin
	$(BIN)/lint-imports
	$(BIN)/codespell -D - -D tools/requirements/words.txt $(READ_BY_PEOPLE)

suite: $(VENV)/.dev
	$(BIN)/python -m tests.costs $(BIN)/python -m tests.suite $(ROOMS)

browser: $(VENV)/.dev
	$(BIN)/python tests/browser/run.py

quick: $(VENV)/.dev  ## what a change needs first, within a minute: linters, types, the unit tests of what you changed
	@$(BIN)/python tests/quick.py

bench: $(VENV)/.dev  ## measure beside a plain proxy and nginx (twelve minutes; QUICK=1: four). WHAT=truth: other things (below)
	@$(call known,$(or $(WHAT),speed),$(BENCHES))
	$(bench_$(or $(WHAT),speed))

# make test WHAT=…
TESTS := all search defects wall real monitoring servers clients programs voice oidc stores fuzz clickhouse hostile
# all of what `make test` runs a part of: schedules, defects, snippets, patterns, examples (half an hour)
test_all = WHOLE=1 $(MAKE) --no-print-directory test
# search with new seeds what `make test` runs a fixed part of, for SECONDS=600; SEED=7 begins with that one
test_search = SECONDS=$(SECONDS) SEED=$(SEED) $(BIN)/python -m tests.search
# put defects into a copy of the product, one at a time: the tests find each (five minutes); NAMES="limit key" narrows it
test_defects = $(BIN)/python tests/defects/run.py $(NAMES)
# tests that wait for time to pass, as nothing tells when it has (half a minute)
test_wall = $(BIN)/python -m pytest -m wall --numprocesses $(or $(JOBS),3)
# race two real LLM servers on loopback (compiles llama.cpp, once: up to twenty minutes)
test_real = $(BIN)/python tests/real/run.py
# run every query of the dashboards, and the alert rules, in a real Prometheus (one minute)
test_monitoring = $(BIN)/python tests/monitoring/run.py
# our HTTP client against real servers: nginx, HAProxy, Envoy and what else is installed (six minutes)
test_servers = $(BIN)/python tests/real_servers/run.py $(SERVERS)
# real clients (SDKs, frameworks, agents) against the gateway; CLIENTS="openai-python curl" narrows it
test_clients = $(BIN)/python tests/clients/run.py $(CLIENTS) $(if $(JSON),--json)
# programs in their defaults, ten turns at each vendor's strict stand-in, directly and through the gateway;
# PROGRAMS="ai-sdk codex" and VENDORS="openai anthropic" narrow it (all of it: hours); PAGE=1 writes the page
test_programs = $(BIN)/python tests/clients/run.py $(PROGRAMS) $(addprefix --vendor ,$(or $(VENDORS),all)) \
	$(if $(JSON),--json) $(if $(PAGE),--page)
# pipecat and LiveKit Agents on a Racer, at stand-ins that dribble, stall, break and are cold (a minute, once installed)
test_voice = $(BIN)/python -m tests.clients.voice
# sign in to the page, and use tokens as keys, at a certified OpenID provider (needs node; half a minute)
test_oidc = $(BIN)/python tests/oidc/run.py
# the ledger's tests on a Postgres that is set to German and to Kolkata's time, and behind PgBouncer (ten minutes)
test_stores = STORES="german pooled" $(BIN)/python -m pytest tests/services/ledger -k "german or pooled" \
	--numprocesses $(or $(JOBS),3) --dist loadfile
# a fair client beside each of seventy attacks, in 512 MiB, and random shapes (twelve minutes); NAMES="blocks" narrows it
test_hostile = $(BIN)/python tests/hostile/run.py $(NAMES)
# fuzz both HTTP parsers, for SECONDS=60 each (Linux, Python before 3.14)
define test_fuzz
$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/fuzz/requirements.lock
	$(BIN)/python tests/fuzz/run.py $(or $(SECONDS),60)
endef

# ClickHouse as the ledger's second store: answers beside Postgres's, over CALLS=20000 calls (downloads its engine)
define test_clickhouse
$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r tests/clickhouse/requirements.lock
	CALLS=$(or $(CALLS),20000) HANGS_S=0 $(BIN)/python -m pytest -s tests/clickhouse/test_answers.py tests/clickhouse/test_crash.py
endef

# make bench WHAT=…
BENCHES := speed peers instructions path overload limits edge ledger truth fleet failover short voice steering soak
# added TTFT, CPU a call and tokens/s of a call beside a pass-through proxy and nginx
bench_speed = $(BIN)/python -m benchmarks.speed $(if $(QUICK),--quick)
# beside other gateways, installed under var/; writes the table in the documentation (half an hour; QUICK=1: ten minutes, writes nothing)
bench_peers = $(BIN)/python -m benchmarks.peers $(if $(QUICK),--quick,--write)
# count the instructions of a call; fails when they grew since the commit before (needs valgrind, three minutes)
bench_instructions = $(BIN)/python -m benchmarks.micro.instructions
# the files and functions that one race passes, in order, and the Python calls in each
bench_path = $(BIN)/python -m tools.path
# offer it up to 2.5 times what it can serve, with overload control and without (ten minutes; QUICK=1: four)
bench_overload = $(BIN)/python -m benchmarks.overload $(if $(QUICK),--quick)
# four replicas under 500 calls/s, killed, without Redis, flushed: used beside allowed (four minutes; QUICK=1: two)
bench_limits = $(BIN)/python -m benchmarks.limits $(if $(QUICK),--quick) $(if $(JSON),--json)
# attack the gateway's edge, and time it; NAMES="stalled" narrows it, AGAINST=DIR measures that checkout too
bench_edge = $(BIN)/python -m benchmarks.edge $(NAMES) $(if $(AGAINST),--against $(AGAINST))
# ask a ledger of two million calls, and see what a call takes on disk (five minutes; QUICK=1: half)
bench_ledger = $(BIN)/python -m benchmarks.ledger $(if $(QUICK),--quick)
# hold the ledger against a fleet that logs its draws (five minutes; QUICK=1: one; FAULTS=1: bend each column)
bench_truth = $(BIN)/python -m benchmarks.truth $(if $(QUICK),--quick) $(if $(FAULTS),--faults)
# four gateways, six providers, one Redis, real sockets, faults (four minutes)
bench_fleet = $(BIN)/python -m benchmarks.fleet
# sixteen ways in which a provider fails, before five setups; writes the table in the documentation (two minutes)
bench_failover = $(BIN)/python -m benchmarks.failover $(if $(JSON),--json,--write)
# embeddings alone, hedged and raced where one request in a hundred takes 17 s (13 minutes; CALLS=1000: one)
bench_short = $(BIN)/python -m benchmarks.short $(if $(CALLS),--calls $(CALLS)) $(if $(JSON),--json)
# when the voice begins and falls silent at providers that are late, dribble, crawl and reset (five minutes; CALLS=60: one; SEED=7: other draws)
bench_voice = $(BIN)/python -m benchmarks.voice $(if $(CALLS),--calls $(CALLS)) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)
# simulate the steering policy against others (twenty minutes of one core; see benchmarks/steering)
bench_steering = $(BIN)/python -m benchmarks.steering
# 100,000 calls, one in twenty with a fault: does the gateway keep anything of them? (five minutes; COUNT=20000)
bench_soak = $(BIN)/python -m benchmarks.soak $(if $(COUNT),--calls $(COUNT)) $(if $(JSON),--json)

known = case " $(2) " in *" $(1) "*) ;; *) echo "WHAT=$(1) is unknown; there are: $(2)" >&2; exit 2 ;; esac

bench-%:
	@$(MAKE) --no-print-directory bench WHAT=$*

test-%:
	@$(MAKE) --no-print-directory test WHAT=$*

profile: $(VENV)/.dev  ## record flame graphs of the gateway at work into var/profile
	$(BIN)/python -m tools.flames

docs: $(VENV)/.runtime  ## make the site of the documentation in var/site: offline, with a search, its links checked
	@$(BIN)/python tools/requirements/install.py docs
	@$(BIN)/python -m tools.documentation
	@PYTHONPATH=. $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky -c tools/documentation docs var/site
	@echo "open var/site/index.html"

fmt: $(VENV)/.dev  ## format, and mend what can be mended
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: $(VENV)/.made  ## pin and hash the dependencies again, and take the newest table of prices
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) pyproject.toml --group build --extra otel -o tools/requirements/runtime.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) pyproject.toml --group build --extra otel --extra oidc --extra litellm \
	  -c tools/requirements/runtime.lock -o tools/requirements/litellm.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) pyproject.toml --group build --extra bench -c tools/requirements/runtime.lock -o tools/requirements/bench.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) pyproject.toml --group build --group dev --extra otel --extra oidc --extra litellm --extra bedrock --extra vertex --extra bench --extra login \
	  -c tools/requirements/litellm.lock -o tools/requirements/dev.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) --group browser -c tools/requirements/dev.lock -o tools/requirements/browser.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) --group docs -c tools/requirements/dev.lock -o tools/requirements/docs.lock
	$(BIN)/uv pip compile --quiet --upgrade $(LOCK_OPTIONS) --group build --group release \
	  -c tools/requirements/dev.lock -o tools/requirements/release.lock
	@$(BIN)/python tools/requirements/install.py litellm
	PYTHONPATH=. $(BIN)/python tools/requirements/extract_datasheets.py

release: $(VENV)/.made  ## build sdist, wheel and SBOM into dist/, check them, and race with pip, pipx and uv on each Python here
	@$(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/requirements/release.lock
	PYTHONPATH=. $(VENV)/release/bin/python tools/requirements/release.py

clean:  ## remove what was installed and cached, never your data in var/
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build

# 3.11.0 and not later: redis needs async-timeout before 3.11.3, which a lock made on a newer Python would miss.
LOCK_OPTIONS := --universal --python-version 3.11.0 --generate-hashes --no-emit-index-url --no-header --no-annotate

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Holeshot needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.runtime: tools/requirements/runtime.lock pyproject.toml | $(VENV)/.made
	@$(BIN)/python tools/requirements/install.py runtime
	@echo "Installing Holeshot itself, from this checkout ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.dev: tools/requirements/dev.lock $(VENV)/.runtime
	@$(BIN)/python tools/requirements/install.py dev
	@touch $@
