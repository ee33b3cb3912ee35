#!/bin/bash
# Arena on the nodes of a SLURM job: a Ray head on the first node, a worker on each other, the command on the first.
#
#   sbatch slurm.sh arena run selfplay --config my.yaml --out runs/mine --scale trainers=8,engines=8,address=auto \
#       --set scale.resources.trainer.gpus=1 --set scale.resources.engine.gpus=1
#   sbatch slurm.sh arena resume runs/mine
#   sbatch slurm.sh arena study negotiation-nano --seeds 20 --on-ray auto
#
# The folder of the run is on files that all nodes share, and every node has the same Python with Arena in it.
#SBATCH --job-name=arena
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
# Two minutes before its time is up the run is asked to end; what is committed is kept, and `arena resume` goes on.
#SBATCH --signal=B:TERM@120
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch slurm.sh arena ..." >&2
    exit 2
fi

# Who knows the token may run code on these nodes: it is new for every job, and nobody but this job's steps has it.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000))
resources=(--num-cpus="${SLURM_CPUS_PER_TASK:-1}" --num-gpus="${SLURM_GPUS_ON_NODE:-0}")

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    ray start --head --node-ip-address="$ip" --port="$port" --include-dashboard=false "${resources[@]}" --block &
export RAY_ADDRESS="$ip:$port"

ready() { # so many nodes are up
    python -c "import ray, sys; ray.init('auto', log_to_driver=False, logging_level='ERROR')
sys.exit(sum(node['Alive'] for node in ray.nodes()) < $1)" 2>/dev/null
}

wait_for() {
    for _ in $(seq 150); do
        if ready "$1"; then return; fi
        sleep 2
    done
    echo "slurm.sh: $1 of ${#nodes[@]} Ray nodes are not up after five minutes or more" >&2
    exit 1
}

wait_for 1
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --nodelist="$node" --overlap \
        ray start --address="$RAY_ADDRESS" "${resources[@]}" --block &
done
wait_for "${#nodes[@]}"

# Not by srun, which would count it as one process of several. TERM reaches it from here; the nodes end with it.
"$@" &
command=$!
trap 'kill -TERM $command 2>/dev/null || true' INT TERM
status=0
wait $command || status=$?
while kill -0 $command 2>/dev/null; do # a signal ended the wait, not the command
    status=0
    wait $command || status=$?
done
trap - INT TERM
jobs=$(jobs -p)
kill $jobs 2>/dev/null || true # ray on all nodes
exit $status
