#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# symbols.sh: what the compiled library exports, needs and contains.
#
#   symbols.sh HEADER SHARED_LIBRARY OBJECT...
#
# NM, OBJDUMP and READELF name the tools. One target's instructions are looked for in the
# objects of all others on x86-64 only: NEON is part of AArch64.
export LC_ALL=C
header=$1
shared=$2
shift 2
: "${NM:=nm}" "${OBJDUMP:=objdump}" "${READELF:=readelf}"
passed=0
failed=0

# check NAME OFFENDERS: fails where OFFENDERS is not empty.
check() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        printf 'ok     %s\n' "$1"
    else
        failed=$((failed + 1))
        printf 'FAILED %s:\n' "$1"
        printf '%s\n' "$2" | head -n 10 | sed 's/^/  /'
    fi
}

# same NAME LEFT RIGHT: two sorted lists of words, a line each.
same() {
    printf '%s\n' "$2" >"$scratch/left"
    printf '%s\n' "$3" >"$scratch/right"
    check "$1" "$(diff "$scratch/left" "$scratch/right" | grep '^[<>]')"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for tool in "$NM" "$OBJDUMP" "$READELF"; do
    command -v "$tool" >/dev/null || { printf '%s is not installed\n' "$tool"; exit 2; }
done
for file in "$header" "$shared" "$@"; do
    [ -f "$file" ] || { printf '%s does not exist\n' "$file"; exit 2; }
done

# ---- the shared library -----------------------------------------------------------------

exported=$("$NM" -D --defined-only "$shared" | awk '$2 != "A" {print $NF}' | sed 's/@.*//' | sort)
declared=$(sed -n 's/^FASTGELU_API .*\(fastgelu_[a-z0-9_]*\)(.*/\1/p' "$header" | sort)
same "the header declares what the shared library exports" "$declared" "$exported"
check "every exported name begins with fastgelu_" "$(printf '%s\n' "$exported" | grep -v '^fastgelu_')"
check "needs the C library and libm only" "$("$READELF" -dW "$shared" | grep NEEDED |
    grep -Ev '\[(libc|libm|ld-linux[-a-z0-9_]*)\.so\.[0-9]+\]')"
check "no text relocations" "$("$READELF" -dW "$shared" | grep TEXTREL)"
check "no executable stack" "$("$READELF" -lW "$shared" | grep GNU_STACK | grep 'RWE\|R E')"
check "says whether its stack is executable" \
    "$("$READELF" -lW "$shared" | grep -q GNU_STACK || echo "no GNU_STACK header")"
check "no thread-local storage, nor the initial-exec model" \
    "$("$READELF" -lW "$shared" | grep TLS; "$READELF" -dW "$shared" | grep STATIC_TLS)"
# else another library with these names, loaded before, would take the calls
check "calls within the library stay there" "$("$READELF" -rW "$shared" | grep 'fastgelu_')"
check "carries its version of the interface" "$("$READELF" -dW "$shared" |
    grep -q 'SONAME.*\[libfastgelu\.so\.0\]' || echo "no SONAME libfastgelu.so.0")"
check "every exported name has a version" "$("$NM" -D --defined-only --with-symbol-versions "$shared" |
    awk '$2 != "A" {print $NF}' | grep -v '@@FASTGELU_0$')"
check "runs nothing that sets control bits" "$("$OBJDUMP" -d --no-show-raw-insn "$shared" |
    grep -Ew 'v?ldmxcsr|fldcw|fldenv|msr')"

# ---- the objects --------------------------------------------------------------------------

# The names of the VEX and EVEX encodings begin with v; the two others are older.
vex='(^|\{[a-z]+\} )v[a-z0-9]+'
wide='%[yz]mm|%k[0-7]|%xmm(1[6-9]|2[0-9]|3[01])'
evex='%zmm|%k[0-7]|%xmm(1[6-9]|2[0-9]|3[01])|%ymm(1[6-9]|2[0-9]|3[01])'

instructions() {
    "$OBJDUMP" -d --no-show-raw-insn "$1" | sed -n 's/^ *[0-9a-f]*:[[:space:]]*//p' |
        grep -Ev '^(verr|verw|vm[a-z]*)([[:space:]]|$)'
}

for object in "$@"; do
    name=$(basename "$object" .o)
    name=${name%.c} # as CMake calls it
    check "$name: only fastgelu_ and fg_ names" \
        "$("$NM" -g --defined-only "$object" | awk 'NF {print $NF}' | grep -Ev '^(fastgelu|fg)_')"
    check "$name: stack marked" "$("$READELF" -SW "$object" | grep -q '\.note\.GNU-stack' ||
        echo "no section .note.GNU-stack")"
    # constant tables are relocated, then read-only; only the dispatch pointer changes
    check "$name: no state but the dispatch pointer" "$("$OBJDUMP" -t "$object" |
        grep -E '[[:space:]](\.data|\.bss|\*COM\*|\.tbss|\.tdata)([.$][^[:space:]]*)?[[:space:]]' |
        grep -Ev '\.data\.rel\.ro|^[0-9a-f]+ l +d |[[:space:]]current$')"
    case $name in
    target_*)
        target=${name#target_}
        others=$("$NM" -g --defined-only "$object" | awk 'NF {print $NF}' | grep -v "^fg_$target\$")
        check "$name: exports its table only" "$others"
        ;;
    *) target= ;;
    esac
    "$OBJDUMP" -f "$object" | grep -q 'elf64-x86-64' || continue
    case $target in
    avx512)
        [ -n "$SIMDE" ] || check "$name: uses its instruction set" \
            "$(instructions "$object" | grep -qE '%zmm' || echo "no zmm register")"
        ;;
    avx2)
        check "$name: uses its instruction set" \
            "$(instructions "$object" | grep -qE '%ymm' || echo "no ymm register")"
        check "$name: no AVX-512" "$(instructions "$object" | grep -E "$evex")"
        ;;
    *)
        if [ -z "$BASELINE" ]; then
            printf '%-6s %s: the flags allow more than the baseline\n' -- "$name"
            continue
        fi
        check "$name: baseline instructions only" "$(instructions "$object" | grep -E "$vex|$wide")"
        ;;
    esac
done

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
