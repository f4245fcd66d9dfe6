# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help run demo chaos lab bench guards test check lock clean

PYTHON ?=
export PYTHON
ARGS ?=

help: ## list the targets
	@echo 'make TARGET [ARGS="…"] [PYTHON=/path/to/python3]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

run: ## start everything; ARGS go to `notifier run`
	@scripts/venv
	@.venv/bin/python -m notifier run $(ARGS)

demo: ## the whole story in about 20 seconds, with a count at the end; ARGS go to `notifier demo`
	@scripts/venv
	@.venv/bin/python -m notifier demo $(ARGS)

chaos: ## prove it: two minutes of load under kill -9 and worse; ARGS go to scripts/kill_pod_mid_send.py
	@scripts/venv
	@.venv/bin/python scripts/kill_pod_mid_send.py $(ARGS)

lab: ## how the usual ways lose and double mails, beside ours; ARGS go to scripts/strategy_lab.py
	@scripts/venv dev
	@.venv/bin/python scripts/strategy_lab.py $(ARGS)

bench: ## how fast, beside other queues and the floor; ARGS go to scripts/bench.py
	@scripts/venv dev
	@.venv/bin/python scripts/bench.py $(ARGS)

guards: ## take each guard out of a scratch copy and see a test fail; ARGS go to scripts/take_guards_out.py
	@scripts/venv dev
	@.venv/bin/python scripts/take_guards_out.py $(ARGS)

test: ## all tests; ARGS go to pytest, e.g. ARGS="-n 0 -x tests/integration"
	@scripts/venv dev
	@PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 2 --dist worksteal $(ARGS) # hundreds of starts: compile once

check: ## format, lint, types, import rules, unit tests
	@scripts/check

lock: ## write the lock files anew; ARGS go to uv, e.g. ARGS=--upgrade
	@scripts/lock $(ARGS)

clean: ## remove .venv and caches, keep data
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
