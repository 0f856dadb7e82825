# Each target is one command; `make` alone lists them.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
PYTHON ?= python3
ARGS ?=

python := .venv/bin/python
bootstrap := $(PYTHON) deploy/bootstrap.py
embedded := --try embedded
# mysqlclient needs a compiler, so it is installed only where a MySQL or MariaDB is named.
mysql := $(filter mysql:% mariadb:%,$(DATABASE_URL) $(COLD_DATABASE_URL) $(ARGS))$(DATABASE_URL_FILE)
platform := platform $(if $(mysql),mysql)

.PHONY: help demo up test test-full test-mysql test-matrix times test-scale chaos check bench storm docs clients lock tools

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

demo:  ## show every flow at work, accounted for (ARGS="--exit --json")
	@$(bootstrap) $(platform) $(embedded)
	@$(python) manage.py demo $(ARGS)

up:  ## run the whole platform on this machine (ARGS="--port 8000")
	@$(bootstrap) $(platform) $(embedded)
	@$(python) manage.py up $(ARGS)

test: tools  ## a proof of every promise, with a reduced load
	@scripts/run_tests.py

test-full: tools  ## every case there is, on SQLite and on MariaDB, with the full load
	@scripts/packages.sh $(PYTHON) full
	@MSGPLATFORM_FULL_LOAD=1 scripts/run_tests.py

test-mysql: tools  ## engines, integration, crashes and a round of chaos on a MySQL server (MYSQL_ROOT, TESTS)
	@scripts/run_tests.py mysql

test-matrix:  ## units, engines, each flow and the demo in systems with other Pythons and servers (root; ARGS="trixie")
	@scripts/test_matrix.sh $(ARGS)

times: ## let the tests that took longest in the last `make test` begin first
	@scripts/run_tests.py times

test-scale: tools  ## clusters: kill, freeze and cut off databases, Redis and proxies (SCALE_RUNS, SCALE_SHARE=yes)
	@scripts/packages.sh $(PYTHON) scale
	@scripts/run_tests.py scale

chaos: tools  ## kill, freeze, empty and fill everything at once (CHAOS_ROUNDS, CHAOS_SECONDS, CHAOS_SEED)
	@CHAOS_ROUNDS=$${CHAOS_ROUNDS:-5} CHAOS_SECONDS=$${CHAOS_SECONDS:-150} \
	  CHAOS_MAX_GAP=$${CHAOS_MAX_GAP:-15} CHAOS_SEED=$${CHAOS_SEED:-$$(date +%s)} \
	  .venv/bin/python -m pytest -n 0 -s tests/chaos

check: tools  ## style, types, size, translations, imports, migrations
	@scripts/check.sh

bench: tools  ## the benchmarks, into docs/benchmarks.md (ARGS="intake --json")
	@$(python) manage.py bench $(or $(ARGS),--all --seconds 8 --write docs/benchmarks.md)

storm: tools  ## what a killed worker, a hung and a killed server and a full disk cost a peer and ours (PEER=bullmq|dlt|kannel|stream-framework)
	@$(python) -m bench.storm $(PEER) $(ARGS)

docs: tools  ## write the pages of docs/ that come from the code
	@$(python) -m scripts.reference

clients: tools  ## client libraries, into clients/dist: Python, TypeScript, Go, Java, PHP
	@scripts/clients.sh

lock: tools  ## resolve pyproject.toml into requirements.lock (ARGS="--upgrade")
	@$(python) scripts/lock.py $(ARGS)
	@scripts/npm_packages.sh --lock

# What tests, checks and benchmarks need beside the platform: servers, a compiler, pytest.
tools:
	@scripts/packages.sh $(PYTHON)
	@$(bootstrap) platform mysql dev $(embedded)
	@scripts/npm_packages.sh .venv
	@scripts/tryton.sh .venv
	@timeout 300 scripts/mysql.sh || echo "MySQL was not fetched: no test runs on it." >&2
