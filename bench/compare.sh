#!/usr/bin/env bash
# Compares this checkout with another one, such as a worktree of an earlier commit, and writes benchstat's table to the
# standard output. Both are measured by the programs of this checkout, in turn and each as often first as the other, so what
# else the machine does meets both alike.
#
#   bench/compare.sh ../before >bench/FILE.txt
#
#   N=6        rounds
#   FIGURES=…  of: planner recovery kubernetes; all by default, some 8 minutes a round
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(cd "$1" && pwd) after=$PWD
rounds=${N:-6} figures=${FIGURES:-planner recovery kubernetes}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

go build -o "$tmp" ./bench/recovery ./bench/kubernetes
for side in before after; do
	make --no-print-directory -C "${!side}" build >&2
	go test -C "${!side}" -c -o "$tmp/plan-$side" ./plan
done

planner() { (cd "${!1}/plan" && "$tmp/plan-$1" -test.run '^$' -test.bench 'Make(Noop|AllNew)' -test.benchmem) | grep ^Benchmark >>"$tmp/$1"; }
recovery() {
	"$tmp/recovery" -eltrain="${!1}/bin/eltrain" -launchers=eltrain -n=1 -samples="$tmp/$1" -out=/dev/null \
		-scenarios=cold-start,worker-killed,node-lost,node-added,drain
}
kubernetes() {
	"$tmp/kubernetes" -eltrain="${!1}/bin/eltrain" -roles="${!1}/deploy/base/rbac.yaml" -figures=decide,create \
		-events=100 -writers=64 -sizes=1000,5000 -n=1 -samples="$tmp/$1" -out=/dev/null
}

sides="before after"
for round in $(seq "$rounds"); do
	for figure in $figures; do
		for side in $sides; do
			echo "round $round: $figure, $side" >&2
			$figure $side >&2
		done
	done
	sides=$(echo $sides | awk '{ print $2, $1 }')
done
echo "$(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg) at the end; before is $(git -C "$before" describe --always), after $(git describe --always --dirty)"
cd "$tmp" && go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da before after
