#!/usr/bin/env bash
# A program on several hosts by mpirun (Open MPI, or MPICH's): each slot is a rank.
#
#   deploy/mpirun.sh node-a:4,node-b:4 mnist --epochs 10
#   deploy/mpirun.sh node-a:1,node-b:1 athanor run --nproc-per-node 4 mnist --epochs 10
#
# On one host no script is needed: mpirun -n 4 mnist --epochs 10. Flags for mpirun itself: MPIRUN="mpirun --oversubscribe".
set -euo pipefail

hosts="${1:-}"
if [[ -z "$hosts" || $# -lt 2 ]]; then
  printf 'usage: deploy/mpirun.sh HOST:SLOTS[,HOST:SLOTS...] PROGRAM [its arguments]\n' >&2
  exit 2
fi
shift
ranks=0
IFS=, read -ra list <<<"$hosts"
for host in "${list[@]}"; do
  slots="${host##*:}"
  if [[ "$host" != *:* ]]; then slots=1; fi
  ranks=$((ranks + slots))
done

# Rank 0 is on the first host, and the others have to be told; ports follow the job's if none is given.
export MASTER_ADDR="${MASTER_ADDR:-${list[0]%%:*}}" MASTER_PORT="${MASTER_PORT:-29500}"
read -ra mpirun <<<"${MPIRUN:-mpirun}"
version=$("${mpirun[0]}" --version 2>&1) || true
if [[ "$version" == *"Open MPI"* || "$version" == *OpenRTE* ]]; then
  [[ -z "${ATHANOR_JOB_SECRET:-}" ]] || mpirun+=(-x ATHANOR_JOB_SECRET)
  exec "${mpirun[@]}" -H "$hosts" -np "$ranks" -x MASTER_ADDR -x MASTER_PORT "$@"
fi
exec "${mpirun[@]}" -hosts "$hosts" -np "$ranks" -genv MASTER_ADDR "$MASTER_ADDR" -genv MASTER_PORT "$MASTER_PORT" "$@"
