# Two commands do everything on a fresh machine: `make demo` and `make test`; `make test-all` has the slow tests too.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= digits

.PHONY: demo test test-all check browser bench docs clean
.DEFAULT_GOAL := demo

# torch comes first and pinned: a plain `torch` would pull gigabytes of CUDA
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch .venv/ready

demo: .venv/ready
	@rm -rf demo demo.lab demo.html demo.runs demo.site
	$(BIN)/sfumato plan $(DATA) --epsilon 1
	$(BIN)/sfumato release $(DATA) --epsilon 1 --out demo
	$(BIN)/sfumato verify demo
	$(BIN)/sfumato evaluate demo --real $(DATA)
	$(BIN)/sfumato attack demo --real $(DATA)
	$(BIN)/sfumato report demo --public --out demo.html
	$(BIN)/sfumato run recipes/demo.toml --out demo.runs --workers 2
	$(BIN)/sfumato report demo.runs --out demo.site
	@echo
	@echo "Open these files:"
	@echo "  demo.html                           the release's page for everyone: what was protected, how to use it"
	@echo "  demo.site/index.html                three methods compared, with figures and every cell (private)"
	@echo "  demo/preview.png                    what would be published"
	@echo "  demo/README.md                      its data card"
	@echo "  demo/certificate.json               the guarantee, for machines"
	@echo "  demo.lab/scores.html                what it is worth, with charts and pictures (private)"
	@echo "  demo.lab/scores.parquet             the same as a table (private)"

test: .venv/ready check browser
	$(BIN)/python -m pytest -n 2 -rs -m "not slow"

test-all: .venv/ready check browser
	$(BIN)/python -m pytest -n 2 -rs

# Some tests open pages in Debian's Chromium. CI installs it; elsewhere they are skipped, and the last lines say so.
browser:
	@if [ -n "$$CI" ] && [ ! -e /usr/bin/chromium ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing Chromium for the browser tests"; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null \
		|| echo "Chromium could not be installed: the browser tests will be skipped"; \
	fi

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python checks/boundary.py
	$(BIN)/python checks/modules.py
	$(BIN)/python checks/trusted_lines.py
	$(BIN)/python checks/documents.py
	$(BIN)/python docs/build.py --check

bench: .venv/ready
	$(BIN)/python benchmarks/dp_merf.py
	$(BIN)/python benchmarks/dpsgd.py
	$(BIN)/python benchmarks/judge.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/threads.py

docs: .venv/ready
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv demo demo.lab demo.html demo.runs demo.site build dist
