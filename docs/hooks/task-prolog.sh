#!/bin/sh
# A TaskProlog of Slurm (slurm.conf), or one for a step: srun --task-prolog=task-prolog.sh. It proves the environment
# that GPUENV_TARGET names, once a node, with the GPUs of the job. slurmstepd reads what is written to stdout: "print"
# brings the line into the task's output. The task is not started if the status is not 0; releases of Slurm that
# pass over the status of a TaskProlog only show the line.
[ -n "$GPUENV_TARGET" ] && [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
line=$(/opt/gpuenv/bin/gpuenv verify --hook --strict --timeout 60 --target "$GPUENV_TARGET" 2>&1)
status=$?
echo "print $line"
exit $status
