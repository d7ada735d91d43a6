#!/usr/bin/env bash
# Runs the tests by tiers, and at the end prints how long each took, even if one failed.
#
#   gate.sh          set-up, static checks, tiers 1 to 4
#   gate.sh soak     set-up and tier 5: once, or repeatedly for $SOAK (90m, 2h)
#   gate.sh tier3    a single tier
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -Wno-deprecated-declarations" # of NVML's header, in nvml
unset CI # where it is set eltrain distrusts its files, and the tests of that set it themselves

# A package that is not named here is in tier 3.
pure=(. ./job/... ./lang/... ./plan/... ./incident ./detect ./checkpoint ./goodput ./scaling/... ./signature ./history ./kube/... ./cmd/view ./cmd/planfile ./bench/internal/... ./faults ./outcome ./internal/virtual)
deterministic=(./providers/sim/... ./simulate/...)
# Packages in tier 3 whose values, with their scenarios, are in tier 1 as well.
mixed=(./agent ./apply ./elastic)
values='^Test(Scenarios|Life|Rendezvous|Topology|Ranks)'
# These limit a process to less memory than the race detector takes.
limited=(./internal/confine)
contract=(./deploy ./e2e/faults ./e2e/heal ./e2e/kubernetes ./e2e/podsite ./e2e/volcano ./providers/kubernetes ./providers/volcano ./state/kubernetes)
modules=(testbed e2e/policy e2e/alerts nvml) # of their own

adapters() {
	comm -23 <($go list ./... | sort) <($go list "${pure[@]}" "${deterministic[@]}" "${contract[@]}" | sort)
}

# Prints the folders of pure, deterministic, mixed, adapters, contract or modules, for the repository's own checks.
folders() {
	local packages
	case $1 in
	modules)
		for module in "${modules[@]}"; do $go -C $module list -f '{{.Dir}}' ./...; done | sed "s#^$PWD/##"
		return ;;
	pure) packages=("${pure[@]}") ;;
	deterministic) packages=("${deterministic[@]}") ;;
	mixed) packages=("${mixed[@]}") ;;
	adapters) packages=($(adapters)) ;;
	contract) packages=("${contract[@]}") ;;
	esac
	$go list -f '{{.Dir}}' "${packages[@]}" | sed "s#^$PWD/##; s#^$PWD\$#.#"
}

setup() {
	./scripts/test-deps.sh
	make --no-print-directory build testbed
}

# All modules use the root module's staticcheck.
static() {
	local unformatted staticcheck
	unformatted=$(gofmt -l $(git ls-files '*.go'))
	test -z "$unformatted" || { echo "gofmt would change: $unformatted"; return 1; }
	./scripts/notices.sh | diff THIRD_PARTY_NOTICES - || { echo "THIRD_PARTY_NOTICES is out of date: run ./scripts/notices.sh >THIRD_PARTY_NOTICES"; return 1; }
	staticcheck=$($go tool -n staticcheck)
	for module in . "${modules[@]}"; do
		(cd $module && $go vet ./... && $staticcheck ./...)
	done
}

tier1() {
	$go test -timeout 5m "${pure[@]}"
	$go test -timeout 5m -run "$values" "${mixed[@]}"
}
tier2() { $go test -timeout 20m "${deterministic[@]}"; } # some 11 minutes of one processor

# Test results are not cached: the cache does not notice changes of the programs that tests build.
# The tests of tier 4's packages that need no cluster run here, with the race detector.
tier3() {
	local packages
	packages=$(adapters | grep -vxF "$($go list "${limited[@]}")")
	WITH_TORCH=1 $go test -race -count 1 -timeout 20m $packages
	$go test -count 1 -timeout 5m "${limited[@]}"
	$go test -race -short -timeout 10m "${contract[@]}"
	(cd e2e/policy && $go test -race -count 1 ./...)
	(cd e2e/alerts && $go test -race -count 1 ./...)
	(cd nvml && $go test -race -count 1 ./...)
}

# The packages share one control plane, one after the other: each needs all of a small machine.
tier4() {
	root
	$go -C testbed build -o ../bin/share ./share
	bin/share -volcano-conf e2e/volcano/testdata/preempting.conf \
		$go test -count 1 -timeout 20m -p 1 "${contract[@]}"
	tested || testbed
}

# Pods are real processes in namespaces and cgroups of their own. Tests that need that skip otherwise, which must not read as green.
root() { [ "$(id -u)" -eq 0 ] || { echo "tiers 4 and 5 need root" >&2; return 1; }; }

# The testbed's own tests run only if it has changed since they last passed: testbed/tested has its checksum from then.
sum() { git ls-files -co --exclude-standard testbed | grep -vx testbed/tested | LC_ALL=C sort | xargs sha256sum | sha256sum; }
tested() { sum | cmp -s - testbed/tested; }
testbed() {
	(cd testbed && $go test -race -timeout 20m ./...)
	sum >testbed/tested
}

# Prints a line for each package with tests that call soak.Only: its folder, and a -run pattern of those tests.
marked() {
	git ls-files '*_test.go' | xargs awk '
		/^func Test/ { name = $2; sub(/\(.*/, "", name) }
		/soak\.Only\(t\)/ { dir = FILENAME; sub(/\/[^\/]*$/, "", dir); if (!seen[dir, name]++) names[dir] = names[dir] "|" name }
		END { for (dir in names) print "./" dir, "^(" substr(names[dir], 2) ")$" }' | sort
}

tier5() {
	local until=$((SECONDS + $(seconds "${SOAK:-0s}"))) round=1 soaks failed
	root
	soaks=$(marked)
	test -n "$soaks"
	export SOAK=${SOAK:-once} WITH_TORCH=1 WITH_SHELLS=1 WITH_PTRACE=1
	testbed
	while :; do
		echo "round $round"
		failed=""
		while read -r dir tests; do # all of them, since each takes long
			$go test -race -count 1 -timeout 60m -run "$tests" "$dir" </dev/null || failed+=" $dir"
		done <<<"$soaks"
		[ -z "$failed" ] || { echo "failed:$failed" >&2; return 1; }
		[ $SECONDS -lt $until ] || return 0
		round=$((round + 1))
	done
}

seconds() {
	[[ -n $1 && $1 =~ ^(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?$ ]] || { echo "SOAK=$1 is not a duration such as 90m or 1h30m" >&2; return 1; }
	local n=("${BASH_REMATCH[@]}")
	echo $((10#${n[2]:-0} * 3600 + 10#${n[4]:-0} * 60 + 10#${n[6]:-0}))
}

times=""
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
report() { printf '\n%-14s %8s\n%s%-14s %8s\n' tier time "$times" total "$(clock $SECONDS)"; }

# Runs each tier as its own process, up to the first that fails.
each() {
	trap report EXIT
	for tier; do
		local began=$SECONDS failed=""
		echo "== $tier"
		"./scripts/gate.sh" "$tier" || failed="  failed"
		times+=$(printf '%-14s %8s' "$tier" "$(clock $((SECONDS - began)))")$failed$'\n'
		[ -z "$failed" ] || exit 1
	done
}

case ${1:-gate} in
values) echo "$values" ;;
gate) each setup static tier1 tier2 tier3 tier4 ;;
soak) each setup tier5 ;;
*) "$@" ;;
esac
