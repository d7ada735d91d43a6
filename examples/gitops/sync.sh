#!/bin/sh
# Does what git-sync does, without Kubernetes: each commit gets its own directory, and a link to the
# newest is replaced atomically, so nobody sees half a commit. Run it every minute, from a systemd timer or cron.
#
#   sync.sh REPOSITORY BRANCH ROOT      ROOT/current is the link.
set -eu
repository=$1 branch=$2 root=$3

mkdir -p "$root/trees"
[ -d "$root/mirror" ] || git init -q --bare "$root/mirror"
git -C "$root/mirror" fetch -q "$repository" "+refs/heads/$branch:refs/heads/$branch"
commit=$(git -C "$root/mirror" rev-parse "refs/heads/$branch")
before=$(readlink "$root/current" || true)
[ "$before" != "trees/$commit" ] || exit 0

rm -rf "$root/trees/$commit" # left over from an interrupted run
git -C "$root/mirror" worktree prune
git -C "$root/mirror" worktree add -q --detach "$root/trees/$commit" "$commit"
ln -sfn "trees/$commit" "$root/next"
mv -T "$root/next" "$root/current"
if [ -n "$before" ]; then
	git -C "$root/mirror" worktree remove --force "$root/$before"
fi
