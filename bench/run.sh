#!/usr/bin/env bash
# Measures everything and writes bench/results.md. README.md beside it says what and how.
#
#   N=5            rounds of each recovery scenario under each launcher
#   UNNOTICED=2    rounds of those that torchrun does not notice by itself: each lasts until the bound
#   BOUND=60s      longest wait for a world to step
#   LAUNCHERS='*'  which launchers; torch 2 is downloaded (3 GB) if its name matches and it is not there
#   CLUSTER=2      rounds of the measurements on a Kubernetes control plane, which take half an hour each
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${N:-5} unnoticed=${UNNOTICED:-2} bound=${BOUND:-60s} launchers=${LAUNCHERS:-*} cluster=${CLUSTER:-2}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sed -n '/^## The gate/,$p' bench/results.md > "$tmp/gate.md" # runs of `make test` that were noted: they stay

echo "the planner, the loop, the service, the stores"
go test -run '^$' -bench 'Make(Noop|AllNew)' -count 3 ./plan | grep ^Benchmark > "$tmp/go.txt"
go test -run '^$' -bench UnchangedTurn -count 3 ./apply | grep ^Benchmark >> "$tmp/go.txt"
go test -run '^$' -bench 'RendezvousHTTP|Beats10000' -benchtime 1x -count 3 -timeout 30m ./elastic | grep ^Benchmark >> "$tmp/go.txt"
go test -run '^$' -bench 'Write10000Slots|AppendNotice' ./state/... | grep ^Benchmark >> "$tmp/go.txt"
cat "$tmp/go.txt"

recovery() {
  go run ./bench/recovery -eltrain="$PWD/bin/eltrain" -install-torch -bound="$bound" -launchers="$launchers" "$@"
}
echo "recoveries: $rounds rounds, then $unnoticed of what torchrun does not notice"
recovery -n="$rounds" -scenarios=cold-start,worker-killed,node-lost,node-added,drain -out="$tmp/recovery.md"
recovery -n="$unnoticed" -scenarios=agent-killed,silent-host -out="$tmp/unnoticed.md"
echo "a control plane: $cluster rounds"
go run ./bench/kubernetes -eltrain="$PWD/bin/eltrain" -n="$cluster" -out="$tmp/kubernetes.md"
echo "the command line, beside terraform's"
go run ./bench/terraform -eltrain="$PWD/bin/eltrain" -n="$rounds" -out="$tmp/terraform.md"
go run ./bench/kubernetes -provider=volcano -eltrain="$PWD/bin/eltrain" -n="$cluster" -out="$tmp/volcano.md"

{
  echo "# Results"
  echo
  echo "Made by \`make bench\` on $(date -u +%Y-%m-%d), commit $(git describe --always --dirty)." \
    "[README.md](README.md) says what is measured and how. The machine is shared: compare within this page only."
  echo
  echo "## Planner, loop, service, stores"
  echo
  echo "Wanted: planning 10,000 slots under 50 ms for a no-op and 200 ms for all new; rendezvous of 1,000 agents under"
  echo "1 s and of 10,000 under 10 s (real HTTP on loopback); steady beats of 10,000 agents at 5 s on less than half a core;"
  echo "a turn in which nothing has changed at the same cost for 1 slot and 100,000."
  echo
  echo '```'
  cat "$tmp/go.txt"
  echo '```'
  echo
  sed 's/^#/##/' "$tmp/recovery.md"
  echo
  sed 's/^# Recovery times/## What torchrun does not notice by itself/; s/^## /### /' "$tmp/unnoticed.md"
  echo
  sed 's/^#/##/' "$tmp/kubernetes.md"
  echo
  sed 's/^#/##/' "$tmp/terraform.md"
  echo
  sed 's/^#/##/' "$tmp/volcano.md"
  echo
  cat "$tmp/gate.md"
} > bench/results.md
echo "wrote bench/results.md"
