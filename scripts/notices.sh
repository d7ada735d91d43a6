#!/usr/bin/env bash
# Writes THIRD_PARTY_NOTICES: the licences of all that is linked into the programs, each text once.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

# MODULE VERSION FOLDER of each, with Go's own library first.
modules() {
	echo "Go . $($go env GOROOT)"
	{ dependencies . ./cmd/... && dependencies nvml ./...; } | LC_ALL=C sort -u
}

# Those of packages in a module of ours, without ours.
dependencies() {
	$go -C "$1" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' "$2" | grep . | grep -v '^github.com/eltrain/eltrain '
}

declare -A users texts
order=()
while read -r path version dir; do
	files=$(find -L "$dir" -maxdepth 1 -type f \( -iname 'LICEN[CS]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) | LC_ALL=C sort)
	test -n "$files" || { echo "$path has no licence file" >&2; exit 1; }
	while read -r file; do
		sum=$(sha256sum <"$file")
		test -n "${users[$sum]:-}" || order+=("$sum")
		line="$path $version"
		users[$sum]+="${line% .}"$'\n'
		texts[$sum]=$file
	done <<<"$files"
done < <(modules)

echo "eltrain's programs contain the following software, under these licences."
for sum in "${order[@]}"; do
	printf -- '\n%s\n%s\n' "--------------------------------------------------------------------------------" "${users[$sum]}"
	cat "${texts[$sum]}"
done
