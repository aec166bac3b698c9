#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh: the binary interface beside the one that is stored for SOVERSION 0. New functions are
# welcome; what exists may neither change nor go. Needs gcc, whose debugging information the stored
# one is made of, and libabigail (Debian: abigail-tools). x86-64 only.
#
#   abi.sh            compares
#   abi.sh --write    stores the interface anew, after functions were added
cd "$(dirname "$0")" || exit 2
stored=libfastgelu.so.0.abi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ "$(uname -m)" != x86_64 ]; then
    printf 'no interface is stored for %s\n0 passed, 0 failed\n' "$(uname -m)"
    exit 0
fi
# -O1: the kernels do not matter here
gcc -shared -std=c11 -g -O1 -fPIC -fvisibility=hidden -ffp-contract=off -I../include ../src/*.c \
    -Wl,-soname,libfastgelu.so.0,--version-script=../src/fastgelu.map -lm \
    -o "$scratch/libfastgelu.so.0" || exit 2
abidw --headers-dir ../include --drop-private-types --no-corpus-path --no-comp-dir-path \
    --no-show-locs --out-file "$scratch/$stored" "$scratch/libfastgelu.so.0" || exit 2
if [ "$1" = --write ]; then
    cp "$scratch/$stored" "$stored"
    exit
fi
abidiff --no-added-syms "$stored" "$scratch/$stored"
status=$?
if [ $status -eq 0 ]; then
    printf 'ok     the interface is the stored one, or more\n1 passed, 0 failed\n'
    exit 0
fi
printf 'FAILED the interface has changed (abidiff: %d)\n0 passed, 1 failed\n' $status
exit 1
