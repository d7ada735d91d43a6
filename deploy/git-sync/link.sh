#!/bin/sh
# git-sync runs this after each new commit. The job directory holds links to the files of the newest one, through
# git-sync's own link: that is replaced in one step, so all files change in one step. Here only names that came or
# went are dealt with. The job directory is not in the repository itself, so that what is beside the files, the run-time
# files for one, is not replaced with them.
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
