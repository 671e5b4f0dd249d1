# make demo   converts a small Llama and shows what happened, in ./out/demo
# make check  checks style and types and runs the tests that changed files touch
# make test   checks style and types and runs the tests, those of the HTML report in Chromium, which root installs with apt
# make models runs the tests of other people's models alone (tests/models), make compiler all others
# make docs   builds the site of the documentation, in ./site
# make docs-serve   shows the site on http://127.0.0.1:8000, with its search
#
# All need Python 3.11 to 3.13 with pip, and make their own environment in .venv first.

PYTHON ?= python3

.PHONY: demo check test models compiler browser docs docs-serve style clean

demo: .venv/installed
	.venv/bin/patcomp demo

check: style
	.venv/bin/pytest -n 2 --changed

test:
	$(MAKE) --jobs 2 style browser
	.venv/bin/pytest -n 2

models: .venv/installed
	.venv/bin/pytest -n 2 tests/models

compiler: style browser
	.venv/bin/pytest -n 2 --ignore tests/models

browser:
	.ci/browser

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

docs-serve: docs
	.venv/bin/python -m http.server --directory site --bind 127.0.0.1 8000

style: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/python -m patcomp_lab.commands.stubs
	.venv/bin/mypy

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --no-compile -c constraints.txt -e '.[dev]'
	-.venv/bin/python -m compileall -qq -j 0 .venv/lib  # pip uses one core; some files are for later Pythons
	touch .venv/installed

clean:
	rm -rf .venv out site build *.egg-info
