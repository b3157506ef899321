#!/bin/sh
# HealthCheckProgram of Slurm (slurm.conf: HealthCheckInterval=600, HealthCheckNodeState=IDLE). It drains a node whose
# environment is not verified; the reason is the line of gpuenv, and sinfo -R shows it. It returns a node to service
# only if it drained it. Slurm ends the program after 60 seconds, so that the checks must end before.
gpuenv=${GPUENV:-/opt/gpuenv/bin/gpuenv}
node=${SLURMD_NODENAME:-$(hostname -s)}
reason=$(scontrol --oneliner show node "$node" | sed -n 's/.* Reason=\(.*\) \[.*/\1/p')
if line=$("$gpuenv" verify --hook --timeout 50 --target "${GPUENV_TARGET:-/opt/env}" 2>&1); then
  case $reason in gpuenv:*) scontrol update NodeName="$node" State=RESUME;; esac
elif [ -z "$reason" ]; then
  scontrol update NodeName="$node" State=DRAIN Reason="$line"
fi
