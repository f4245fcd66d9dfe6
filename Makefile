# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help run demo test check lock clean

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

test: ## all tests; ARGS go to pytest, e.g. ARGS="-n 0 -x tests/integration"
	@scripts/venv dev
	@.venv/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

check: ## format, lint, types, import rules, unit tests
	@scripts/check

lock: ## write the lock files anew; ARGS go to uv, e.g. ARGS=--upgrade
	@scripts/lock $(ARGS)

clean: ## remove .venv and caches, keep data
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
