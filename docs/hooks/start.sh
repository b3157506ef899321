#!/bin/sh
# The entry point of an image: the devices of this machine are proved, then the command takes this process's place.
set -e
/opt/gpuenv/bin/gpuenv verify /app/pylock.toml --target /app/env --hook --timeout 60
exec /opt/gpuenv/bin/gpuenv run --target /app/env -- "$@"
