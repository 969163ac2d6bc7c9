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
		"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 -nocudainc -nocudalib \
			-std=c++17 -Wall -Werror -O3 -S "$@" -o "$build/$module.ptx" "$source.cu"
	' sh "$clang" "$build"
	go run ./gen/pack "$build" ptx
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
compile publish publish
compile baseline baseline
compile hashmap hashmap
compile build build
compile change change
compile train train
compile encode_ibp4 encode -DROW_CHUNK=4
compile encode_ibp8 encode -DROW_CHUNK=8
compile decodeStill_ibp4 decode -DROW_CHUNK=4 -DROW_KIND=1
compile decodeStill_ibp8 decode -DROW_CHUNK=8 -DROW_KIND=1
compile findStill_ibp4 decode -DROW_CHUNK=4 -DROW_KIND=1 -DROW_FIND
compile findStill_ibp8 decode -DROW_CHUNK=8 -DROW_KIND=1 -DROW_FIND
for codec in raw:0 ibp4:4 ibp8:8; do
	compile "decode_${codec%:*}" decode "-DROW_CHUNK=${codec#*:}" -DROW_KIND=0
	compile "find_${codec%:*}" decode "-DROW_CHUNK=${codec#*:}" -DROW_KIND=0 -DROW_FIND
	compile "decodePeers_${codec%:*}" decode "-DROW_CHUNK=${codec#*:}" -DROW_KIND=0 -DROW_PEERS
	compile "decodeWords_${codec%:*}" decode "-DROW_CHUNK=${codec#*:}" -DROW_KIND=2
	compile "fetch_${codec%:*}" fetch "-DROW_CHUNK=${codec#*:}"
	compile "serve_${codec%:*}" serve "-DROW_CHUNK=${codec#*:}"
	compile "share_${codec%:*}" share "-DROW_CHUNK=${codec#*:}"
done
# Codecs with a coder, see coder.h: name, struct, header, narrowest tile, and macros of its own.
coder() {
	name=$1 struct=$2 header=$3 lanes=$4
	shift 4
	set -- "-DROW_CODER=$struct" "-DROW_HEADER=\"$header\"" "-DROW_LANES=$lanes" "$@"
	compile "decode_$name" coder_decode "$@"
	compile "fetch_$name" coder_fetch "$@"
	compile "serve_$name" serve "$@"
	case " $encoders " in *" $name "*) compile "encode_$name" coder_encode "$@" ;; esac
}
encoders="ibpc2 ibpc4 ibpc8 rank2 rank4 rank8 sleek16 sleek32 sleek64"
for chunk in 2 4 8; do
	coder "ibpc$chunk" IbpCoder coder_ibp.h 8 "-DROW_CHUNK=$chunk"
done
for element in 2 4; do
	coder "rank$element" RankCoder coder_rank.h 8 "-DROW_ELEMENT=$element" -DROW_BYTES=RankBytes
done
coder rank8 RankCoder coder_rank.h 8 -DROW_ELEMENT=8
for element in 1 2 4 8; do
	coder "zipnn$element" ZipnnCoder coder_zipnn.h 8 "-DROW_ELEMENT=$element" -DROW_ONE
done
for width in 16 32 64; do
	coder "sleek$width" SleekCoder coder_sleek.h 8 "-DROW_WIDTH=$width"
done
coder ndzip16 NdzipCoder coder_ndzip.h 16 -DROW_WIDTH=16
coder ndzip32 NdzipCoder coder_ndzip.h 32 -DROW_WIDTH=32
coder ndzip64 NdzipCoder coder_ndzip.h 32 -DROW_WIDTH=64
