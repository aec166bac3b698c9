#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# install.sh: the library as CMake installs it, at a path with a space, then moved elsewhere:
# programs that find it by CMake and by pkg-config, and projects that contain it.
#
#   install.sh BUILD_FOLDER
#
# CMAKE, CC and CXX name the tools.
build=$1
here=$(cd "$(dirname "$0")" && pwd)
: "${CMAKE:=cmake}" "${CC:=cc}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH

# try NAME COMMAND...: passes where the command succeeds.
try() {
    name=$1
    shift
    if "$@" >"$scratch/log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok     %s\n' "$name"
    else
        failed=$((failed + 1))
        printf 'FAILED %s:\n' "$name"
        tail -n 20 "$scratch/log" | sed 's/^/  /'
    fi
}

first="$scratch/first place"
moved="$scratch/another place/below"
try "install" "$CMAKE" --install "$build" --prefix "$first"
mkdir -p "$scratch/another place"
mv "$first" "$moved"
lib=$(dirname "$(find "$moved" -name 'libfastgelu.a' | head -n 1)")

for file in include/fastgelu.h share/man/man3/fastgelu.3; do
    try "$file is there" test -s "$moved/$file"
done
try "nothing names the folder of the build" sh -c '! grep -rlI "$1" "$2" "$3"' sh \
    "$first" "$lib" "$moved/include"
try "nothing names the folder of the sources" sh -c '! grep -rlI "$1" "$2"' sh \
    "$(dirname "$here")" "$moved"

# ---- CMake ----------------------------------------------------------------------------------

# project FOLDER LINES...: a project that makes and runs the programs of a user.
project() {
    folder=$1
    shift
    mkdir -p "$folder"
    cp "$here/consumer.c" "$folder/"
    {
        printf 'cmake_minimum_required(VERSION 3.18...3.31)\nproject(consumer C)\n'
        printf '%s\n' "$@"
    } >"$folder/CMakeLists.txt"
}
# build_and_run FOLDER OPTIONS...
build_and_run() {
    folder=$1
    shift
    "$CMAKE" -S "$folder" -B "$folder/build" -DCMAKE_C_COMPILER="$CC" "$@" &&
        "$CMAKE" --build "$folder/build" --parallel 2 --target consumer && "$folder/build/consumer"
}
for library in fastgelu fastgelu_static; do
    project "$scratch/find $library" 'find_package(fastgelu 0.1 REQUIRED COMPONENTS shared static)' \
        'add_executable(consumer consumer.c)' \
        "target_link_libraries(consumer fastgelu::$library m)"
    try "find_package, $library" build_and_run "$scratch/find $library" \
        -DCMAKE_PREFIX_PATH="$moved"
done
project "$scratch/wanting too much" 'find_package(fastgelu 99 REQUIRED)'
try "find_package refuses another version" sh -c '! "$@"' sh "$CMAKE" -S "$scratch/wanting too much" \
    -B "$scratch/wanting too much/build" -DCMAKE_PREFIX_PATH="$moved"
project "$scratch/part" "add_subdirectory(\"$(dirname "$here")\" fastgelu)" \
    'add_executable(consumer consumer.c)' 'target_link_libraries(consumer fastgelu::fastgelu m)'
try "add_subdirectory" build_and_run "$scratch/part"
project "$scratch/fetched" 'include(FetchContent)' \
    "FetchContent_Declare(fastgelu SOURCE_DIR \"$(dirname "$here")\")" \
    'FetchContent_MakeAvailable(fastgelu)' 'add_executable(consumer consumer.c)' \
    'target_link_libraries(consumer fastgelu::fastgelu_static m)'
try "FetchContent" build_and_run "$scratch/fetched" -DFASTGELU_SHARED=OFF

# ---- pkg-config -------------------------------------------------------------------------------

compile() { # compile FLAGS...: with what pkg-config prints, as a shell reads it
    flags=$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config "$@" fastgelu) || return
    eval "\"\$CC\" \"\$here/consumer.c\" -o \"\$scratch/consumer\" $flags -lm"
}
run_with_pkg_config() {
    compile --cflags --libs && LD_LIBRARY_PATH="$lib" "$scratch/consumer"
}
run_static_with_pkg_config() {
    mkdir -p "$scratch/static only"
    mv "$lib"/libfastgelu.so* "$scratch/static only/"
    compile --static --cflags --libs && "$scratch/consumer"
}
if command -v pkg-config >/dev/null; then
    try "pkg-config" run_with_pkg_config
    try "pkg-config --static" run_static_with_pkg_config
else
    printf '%-6s pkg-config is not installed\n' --
fi

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
