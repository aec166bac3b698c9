#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# accuracy.sh: the accuracy of the float kernels on every target of this machine, for ctest.
#
#   accuracy.sh REGISTRY_PROGRAM ACCURACY_PROGRAM EVERY JOBS
registry=$1
accuracy=$2
every=$3
jobs=$4
set --
for target in $("$registry" --targets); do
    set -- "$@" "'$accuracy' --every $every --jobs $jobs --target $target"
done
exec sh "$(dirname "$0")/run.sh" "$@"
