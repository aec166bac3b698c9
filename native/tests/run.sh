#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run.sh: runs each argument as a command and adds up their last lines, "N passed, N failed".
# A command that ends without one, or with an error status and no failure, counts as a failure.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
wrong=
for command in "$@"; do
    printf '==== %s\n' "$command"
    { sh -c "$command" 2>&1; echo $? >"$log.status"; } | tee "$log"
    status=$(cat "$log.status")
    rm -f "$log.status"
    counts=$(sed -n '$s/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2/p' "$log")
    p=${counts% *}
    f=${counts#* }
    if [ -z "$counts" ]; then
        printf 'FAILED: no count, status %s\n' "$status"
        p=0 f=1
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        printf 'FAILED: status %s\n' "$status"
        f=1
    fi
    [ "$f" -eq 0 ] || wrong="$wrong
  $command"
    passed=$((passed + p))
    failed=$((failed + f))
done
[ -z "$wrong" ] || printf 'failed:%s\n' "$wrong"
printf 'total: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
