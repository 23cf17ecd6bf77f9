#!/bin/bash
# A recipe on several machines without a scheduler. Give the same command on each of them:
#   HEAD=node0 NODES=2 NODE=0 examples/torchrun/train.sh recipes/llava-1.5/sft-7b.yaml    # on node0
#   HEAD=node0 NODES=2 NODE=1 examples/torchrun/train.sh recipes/llava-1.5/sft-7b.yaml    # on node1
# On one machine: examples/torchrun/train.sh RECIPE

set -euo pipefail
if [[ $# -lt 1 ]]; then
    echo "usage: [HEAD=HOST NODES=N NODE=I] $0 RECIPE [OPTIONS OF omniloom train]" >&2
    exit 2
fi

HEAD=${HEAD:-localhost}
NODES=${NODES:-1}
NODE=${NODE:-0}
PORT=${PORT:-29500}
DEVICES=${DEVICES:-$(nvidia-smi --list-gpus 2>/dev/null | wc -l)}
if [[ $DEVICES -eq 0 ]]; then
    DEVICES=1
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# The machines meet at the first one. RESTARTS=N starts the ranks of all of them anew when one dies, N times at most;
# they go on from the newest complete checkpoint.
exec torchrun \
    --nnodes "$NODES" --nproc-per-node "$DEVICES" --max-restarts "${RESTARTS:-0}" \
    --rdzv-backend c10d --rdzv-endpoint "$HEAD:$PORT" --rdzv-id "${JOB:-omniloom}" \
    --rdzv-conf "is_host=$((NODE == 0))" \
    -m omniloom train "$@"
