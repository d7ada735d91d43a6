#!/bin/sh
# For a pipeline on a pull request: checks the job files, and plans.
#
#   pull-request.sh JOBS OUT      JOBS is the job directory in the checkout of the branch. OUT gets comment.md, for
#                                 the pull request, plan.json, for a policy, and plan.bin, for after the merge.
set -eu
jobs=$1
out=$(cd "$2" && pwd)
# In a pipeline eltrain reads no file outside of the checkout that a pull request names, except this one.
state=$ELTRAIN_VAR_home/eltrain.state

eltrain -chdir="$jobs" fmt -check -diff
eltrain -chdir="$jobs" validate -root="$state"
eltrain -chdir="$jobs" plan -input=false -root="$state" -lock-timeout=60s -out="$out/plan.bin" -markdown >"$out/comment.md"
eltrain -chdir="$jobs" show -json "$out/plan.bin" >"$out/plan.json"
