# make demo   converts a small Llama and shows what happened, in ./out/demo; installs only what this needs
# make check  checks style and types and runs the tests that changed files touch
# make test   checks style and types and runs the tests, those of the HTML report in Chromium, which root installs with apt
# make models runs the tests of other people's models alone (tests/models), make compiler all others
# make release builds wheel and sdist in ./dist, checks them, and runs the demo from the installed wheel
# make docs   builds the site of the documentation, in ./site
# make docs-serve   shows the site on http://127.0.0.1:8000, with its search
#
# All need Python 3.11 to 3.13 with pip, and make their own environment in .venv first.

PYTHON ?= python3

.PHONY: demo check test models compiler browser docs docs-serve style release clean

demo: .venv/demo
	.venv/bin/patcomp demo

check: style
	.venv/bin/pytest -n 2 --changed

test:
	$(MAKE) --jobs 2 style browser
	@echo "tests: half a minute until the first dot, then 15 to 20 minutes on two cores"
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
	@echo "types: about a minute"
	.venv/bin/mypy

release:
	.ci/release

.venv/demo: pyproject.toml constraints.txt
	@echo "installing what the demo needs, PyTorch, transformers and coreai-core, in .venv: a minute or two, 1.3 GB"
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --no-compile -c constraints.txt -e '.[demo]'
	touch .venv/demo

.venv/installed: pyproject.toml constraints.txt
	@echo "installing all that the tests need in .venv: two or three minutes, 2 GB"
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --no-compile -c constraints.txt -e '.[dev]'
	@echo "compiling what was installed to bytecode, on all cores: half a minute, and more on a busy machine"
	-.venv/bin/python -m compileall -qq -j 0 .venv/lib  # pip uses one core; some files are for later Pythons
	touch .venv/demo .venv/installed

clean:
	rm -rf .venv out site build dist *.egg-info
