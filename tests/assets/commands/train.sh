#!/bin/sh
# Starts top_level.py as a user would; what it does afterwards misses what a whole training would have left.
here=$(dirname "$0")
"$PYTHON" "$here/top_level.py" > "$LOG" || exit
grep -q trained "$LOG"
