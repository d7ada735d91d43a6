#!/bin/sh
# git-sync runs this after each new commit. The job directory has links to the files of the newest commit through
# git-sync's own link, which is replaced atomically, so all files change at once. This script only handles added and
# removed names. The job directory is outside of the repository, so that other files in it, such as run-time files,
# are not replaced.
set -eu
from=${GITSYNC_ROOT:-/git}/${GITSYNC_LINK:-current}/${JOBS_DIR:-.}
to=${JOB_DIRECTORY:-/jobs}
for file in "$from"/*; do
    if [ -f "$file" ]; then
        ln -sfn "$file" "$to/${file##*/}"
    fi
done
for link in "$to"/*; do
    if [ -L "$link" ] && [ ! -e "$link" ]; then
        rm -f "$link"
    fi
done
