#!/bin/sh
# What a pipeline does after the merge: it carries out the plan that was approved, or nothing at all.
#
#   merge.sh JOBS PLAN HEAD       JOBS is the job directory in the checkout of the merged branch, PLAN the saved plan,
#                                 and HEAD the commit that it was made of.
set -eu
jobs=$1 head=$3
plan=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")

# The plan has the files of the pull request in it. What else was merged meanwhile must not be undone by it.
if ! git -C "$jobs" diff --quiet "$head" HEAD -- .; then
	echo "The job files are not those that the plan was made of: plan again." >&2
	exit 1
fi
eltrain -chdir="$jobs" apply -input=false -lock-timeout=60s "$plan"
