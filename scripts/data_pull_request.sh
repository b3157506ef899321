#!/usr/bin/env bash
# usage: data_pull_request.sh FOLDER
# Makes a pull request of what data_changes.sh wrote, with gh. Nothing changed: no pull request.
set -euo pipefail
folder=$1
if [ ! -s "$folder/rows.patch" ]; then
    echo "the data has every release that it asks for"
    exit 0
fi
branch=data-$(date -u +%Y-%m-%d)
git switch --quiet --create "$branch"
git apply --index "$folder/rows.patch"
git -c user.name=github-actions -c user.email=github-actions@users.noreply.github.com \
    commit --quiet --message "Add the releases that the index has to the data"
gh auth setup-git
git push --quiet origin "$branch"
# GitHub takes at most 65,536 characters.
head --bytes 60000 "$folder/report.txt" > "$folder/body.txt"
gh pr create --head "$branch" --title "Data of $(date -u +%Y-%m-%d)" --body-file "$folder/body.txt"
