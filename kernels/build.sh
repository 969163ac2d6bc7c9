#!/bin/sh
# Compiles the kernels to PTX with the clang given, and packs it into ptx/. No CUDA toolkit is needed. make kernels runs this.
# "build.sh list" says what it would compile instead: the emulator compiles the same.
set -eu
clang=$1
cd "$(dirname "$0")"
if [ "$clang" != list ]; then
	build=$(mktemp -d)
	trap 'rm -rf "$build"' EXIT
	./build.sh list | xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" sh -c '
		clang=$1 build=$2 module=$3 source=$4
		shift 4
		"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 -nocudainc -nocudalib -I. \
			-std=c++17 -Wall -Werror -O3 -S "$@" -o "$build/$module.ptx" "$source.cu"
	' sh "$clang" "$build"
	go run ./gen/pack "$build" ptx
	# What the PTX was compiled of: TestPTX_IsOfTheseSources.
	LC_ALL=C; for f in build.sh *.cu *.h ../codec/codecs.list; do [ "$f" = emulated.h ] || cat "$f"; done | sha256sum | cut -d' ' -f1 >ptx/sources.sha256
	exit
fi
compile() { # module source macros...
	printf '%s %s' "$1" "$2"
	shift 2
	for macro; do printf " '%s'" "$macro"; done
	echo
}
compile lookup lookup
compile order order
compile absent absent
compile baseline baseline
compile build build
compile change change
compile train train
compile shareOpen share_open
compile replay replay
compile pooled pooled_join
compile pooledRows pooled_rows
compile pooledPlain pooled_plain
compile replayBoard replay_board
go run ./gen/codecs modules # those of the codecs
