#!/usr/bin/env bash
# Sets up what the tests need in .venv, then runs the linters and the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
# An environment that is there stays, unless it does not work.
python3 -m venv .venv
.venv/bin/python -m pip --version > /dev/null || python3 -m venv --clear .venv
# Nothing is compiled here: the tests import a part of what is installed.
.venv/bin/python scripts/install_tests.py '.[test,lint]'
# The type checker takes one core for a while; the tests wait for no result of it.
.venv/bin/mypy -p gpuenv -p gpuenv_explorer -p gpuenv_fleet &
types=$!
status=0
# The usual run takes every fifth case of the longest tests (tests/conftest.py).
if [ $# -eq 0 ]; then
    export GPUENV_TEST_SAMPLE="${GPUENV_TEST_SAMPLE-1}"
fi
.venv/bin/ruff check . || status=$?
.venv/bin/ruff format --check . || status=$?
# Each worker collects all tests. The first collection compiles them, which is most of its time.
.venv/bin/python -m pytest --collect-only -qq "$@" > .venv/collected.txt || true
# Many tests wait for a child process, so two workers for each core keep the cores busy. worksteal
# gives each worker neighboring tests, which share the fixtures of their module.
.venv/bin/python -m pytest -n "$((2 * $(nproc)))" --dist worksteal "$@" || status=$?
wait "$types" || status=$?
exit "$status"
