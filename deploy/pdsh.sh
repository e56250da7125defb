#!/usr/bin/env bash
# A program on several hosts by pdsh, or ClusterShell's clush where that is what there is: the same line on every host.
#
#   deploy/pdsh.sh node-a,node-b mnist --epochs 10
#
# Program and folder have the same paths on all hosts. WORKERS per host (1), the port of the first host (MASTER_PORT,
# 29400), PDSH="pdsh -R ssh". `athanor run --hosts node-a,node-b` does the same with ssh alone, and leaves nothing behind
# when it is interrupted, which pdsh cannot promise.
set -euo pipefail

hosts="${1:-}"
if [[ -z "$hosts" || $# -lt 2 ]]; then
  printf 'usage: deploy/pdsh.sh HOST[,HOST...] PROGRAM [its arguments]\n' >&2
  exit 2
fi
shift
IFS=, read -ra list <<<"$hosts"
if [[ "$hosts" == *"["* ]]; then
  printf 'deploy/pdsh.sh: write the hosts one by one, not as %s: their number has to be known\n' "$hosts" >&2
  exit 2
fi
# Agents find each other at the first host; who comes first is node 0.
line="cd $(printf %q "$PWD") && exec $(printf %q "$(command -v "${ATHANOR:-athanor}")") run"
line+=" --nnodes ${#list[@]} --rdzv-backend c10d --rdzv-endpoint ${list[0]}:${MASTER_PORT:-29400}"
line+=" --nproc-per-node ${WORKERS:-1} --"
for word in "$@"; do
  line+=" $(printf %q "$word")"
done
if [[ -z "${PDSH:-}" ]]; then
  PDSH="pdsh -R ssh"
  command -v pdsh >/dev/null || PDSH=clush
fi
read -ra pdsh <<<"$PDSH"
exec "${pdsh[@]}" -S -w "$hosts" "$line"
