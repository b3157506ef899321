#!/usr/bin/env bash
# Sets up what the tests need in .venv, then runs the linters and the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv
.venv/bin/python -m pip install --quiet '.[test,lint]'
.venv/bin/ruff check resolver scripts tests
.venv/bin/mypy -p gpuenv
exec .venv/bin/python -m pytest "$@"
