#!/usr/bin/env bash
# Refuses an installation whose images are not named by digest, or not named at all:
#
#   check-images.sh deploy/git-sync
set -euo pipefail
objects=$(kubectl kustomize "$1")
images=$(sed -n 's/^ *\(- \)\{0,1\}image: //p; /name: ELTRAIN_VAR_agent_image/{n;s/^ *value: //p}' <<<"$objects" | sort -u)
bad=0
for image in $images; do
	[[ $image =~ @sha256:[0-9a-f]{64}$ && $image != *.invalid/* ]] && continue
	echo "$image has no digest, or no registry has its name. Set both in deploy/images/kustomization.yaml." >&2
	bad=1
done
exit $bad
