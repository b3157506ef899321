#!/bin/sh
# Prolog of Slurm (slurm.conf: Prolog=, PrologFlags=Alloc): it runs as root on each node of a job. A
# node whose environment is not verified is drained, and Slurm requeues the job, because the status
# is not 0. Slurm drains such a node with the reason "Prolog error", unless it has a reason already.
gpuenv=${GPUENV:-/opt/gpuenv/bin/gpuenv}
line=$("$gpuenv" verify --hook --timeout 50 --target "${GPUENV_TARGET:-/opt/env}" 2>&1) && exit 0
scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="$line"
exit 1
