#!/usr/bin/env bash
# Installs what `make test` needs besides Go, if it is missing: python3 and curl, Debian's PyTorch for the
# tests that train with it, and the shells that completion is installed in. Needs root (or sudo) only when something is missing.
set -euo pipefail

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v python3 >/dev/null || missing+=(python3)
command -v zsh >/dev/null || missing+=(zsh)
command -v fish >/dev/null || missing+=(fish)
/usr/bin/python3 -c 'import torch' 2>/dev/null || missing+=(python3-torch)
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo"
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
