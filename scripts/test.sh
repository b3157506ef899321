#!/usr/bin/env bash
# Sets up what the tests need in .venv, then runs the linters and the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv
# The tests import a part of what is installed: it is compiled when it is imported.
.venv/bin/python -m pip install --quiet --no-compile '.[test,lint]'
# The type checker takes one core for a while; the tests wait for no result of it.
.venv/bin/mypy -p gpuenv &
types=$!
status=0
# The usual run takes every third case of the longest tests (tests/conftest.py).
if [ $# -eq 0 ]; then
    export GPUENV_TEST_SAMPLE="${GPUENV_TEST_SAMPLE-1}"
fi
.venv/bin/ruff check resolver scripts tests || status=$?
# Many tests wait for a child process, so two workers for each core keep the cores busy. worksteal
# gives each worker neighboring tests, which share the fixtures of their module.
.venv/bin/python -m pytest -n "$((2 * $(nproc)))" --dist worksteal "$@" || status=$?
wait "$types" || status=$?
exit "$status"
