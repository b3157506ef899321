#!/bin/sh
# Writes metrics for the textfile collector of node_exporter, for cron or a systemd timer. The collector must never read
# half a file: it is renamed when it is complete. A verification that could not begin leaves the old file, and its age
# (node_textfile_mtime_seconds) shows that.
gpuenv=${GPUENV:-/opt/gpuenv/bin/gpuenv}
folder=${TEXTFILE_FOLDER:-/var/lib/node_exporter/textfile}
"$gpuenv" verify --format openmetrics --target "${GPUENV_TARGET:-/opt/env}" > "$folder/gpuenv.prom.$$"
if [ $? -le 1 ]; then mv "$folder/gpuenv.prom.$$" "$folder/gpuenv.prom"; else rm -f "$folder/gpuenv.prom.$$"; fi
