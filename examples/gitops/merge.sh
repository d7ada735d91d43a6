#!/bin/sh
# For a pipeline after the merge: carries out the approved plan, or nothing.
#
#   merge.sh JOBS PLAN HEAD       JOBS is the job directory in the checkout of the merged branch, PLAN the saved plan,
#                                 and HEAD the commit that it was made from.
set -eu
jobs=$1 head=$3
plan=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")

refuse() {
	echo "The job files are not those that the plan was made of: plan again." >&2
	exit 1
}

# The plan contains the files of the pull request, and must not undo what else was merged meanwhile. So the job
# directory must not have changed, and with files from elsewhere, such as modules, the plan must still be the same.
git -C "$jobs" diff --quiet "$head" HEAD -- . || refuse
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
eltrain -chdir="$jobs" plan -untrusted=false -input=false -observed="$plan" -out="$again/plan.bin" >/dev/null
eltrain show -json "$plan" >"$again/approved.json"
eltrain show -json "$again/plan.bin" >"$again/merged.json"
cmp -s "$again/approved.json" "$again/merged.json" || refuse

eltrain -chdir="$jobs" apply -input=false -lock-timeout=60s "$plan"
