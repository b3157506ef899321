#!/usr/bin/env bash
# usage: data_changes.sh FOLDER [ARGUMENTS of tools.py data refresh]
# Scans new releases, and writes what changed into the folder: rows.patch, and report.txt for a reviewer. A release that
# cannot be read, or that contradicts the data, is part of the report: a person decides.
set -euo pipefail
folder=$1
shift
cd "$(dirname "$0")/.."
mkdir -p "$folder"
status=0
python scripts/tools.py data refresh "$@" > "$folder/report.txt" || status=$?
[ "$status" -le 1 ] || exit "$status"
git diff --binary -- matrix_data > "$folder/rows.patch"
wc -l "$folder/report.txt" "$folder/rows.patch"
