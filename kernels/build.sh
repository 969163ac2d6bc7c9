#!/bin/sh
# Compiles the kernels to PTX. No CUDA toolkit is needed.
#
#	build.sh CLANG          compiles all modules and packs them into ptx/: make kernels
#	build.sh CLANG SHARE    compiles one of SHARE modules and compares them with those in ptx/: make check-kernels. Which ones follows from ptx.sha256, so
#	                        each change of the kernels has others compiled
#	build.sh list           says what would be compiled; the emulator compiles the same
set -eu
clang=$1 share=${2:-1}
cd "$(dirname "$0")"
if [ "$clang" != list ]; then
	build=$(mktemp -d)
	trap 'rm -rf "$build"' EXIT
	first=0
	[ "$share" = 1 ] || first=$((0x$(cut -c1-4 ptx/ptx.sha256) % share))
	./build.sh list | awk "NR % $share == $first" | xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" sh -c '
		clang=$1 build=$2 module=$3 source=$4
		shift 4
		"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 -nocudainc -nocudalib -I. \
			-std=c++17 -Wall -Werror -O3 -S "$@" -o "$build/$module.ptx" "$source.cu"
	' sh "$clang" "$build"
	if [ "$share" != 1 ]; then
		go run ./gen/pack -compare "$build" ptx
		exit
	fi
	go run ./gen/pack "$build" ptx
	# What the PTX was compiled of, and the PTX: TestPTX_IsOfTheseSources.
	LC_ALL=C; for f in build.sh *.cu *.h ../codec/codecs.list ptx/*.zst; do [ "$f" = emulated.h ] || cat "$f"; done | sha256sum | cut -d' ' -f1 >ptx/ptx.sha256
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
