# zincchat: `make chat` prepares everything on the first run and opens the chat; `make test` checks and tests.
# Arguments go in ARGS, for example: make bench ARGS="--json". DEBUG=1 shows the raw output of a step that fails.

PYTHON := .venv/bin/python
# Runs a module or script on the Vulkan driver that the setup chose.
LAUNCH := $(PYTHON) -m zincchat.launcher --exec
DEBUG_OPTION := $(if $(DEBUG),--debug)
ARGS ?=

.PHONY: setup chat test check bench soak screenshot rdna4 lock clean

setup:
	@found=; for python in python3 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "zincchat: Python 3.11 or later is needed and was not found: install it and try again" >&2; exit 1; \
	fi; \
	"$$found" -m zincchat.setup.environment $(DEBUG_OPTION)
	@$(PYTHON) -m zincchat.setup $(DEBUG_OPTION)

chat: setup
	@.venv/bin/zincchat $(ARGS)

# Two workers, a file's tests in one of them; -n0 in ARGS for none, as --pdb needs it.
test: setup check
	@$(LAUNCH) -m pytest -n 2 --dist loadfile $(ARGS)

check: setup
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

bench: setup
	@.venv/bin/zincchat bench $(ARGS)

soak: setup
	@$(LAUNCH) -m pytest -m soak --timeout 0 $(ARGS)

screenshot: setup
	@$(LAUNCH) -m zincchat.screenshot $(or $(ARGS),docs/screenshot.svg)

# What the kernels and recordings come to on a Radeon RX 9070 XT, without one: docs/rdna4.md. Brings a driver first.
rdna4: setup
	@$(PYTHON) -m zincchat.setup --rdna4 $(DEBUG_OPTION)
	@$(PYTHON) -m zincchat.launcher --rdna4 -m zincchat.rdna4 $(ARGS)

# Renews requirements.lock to the newest releases that pyproject.toml allows; needs uv, which nothing else here does.
lock:
	@command -v uv >/dev/null || { echo "zincchat: make lock needs uv: install it with 'pip install uv'" >&2; exit 1; }
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --upgrade \
	  --no-header --no-emit-index-url --quiet --output-file requirements.lock

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find engine zincchat tests -name __pycache__ -type d -prune -exec rm -rf {} +
