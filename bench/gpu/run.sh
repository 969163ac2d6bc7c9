#!/bin/sh
# Runs parts of a GPU bundle in its own folder. Needs a GPU and its driver, no Go and no CUDA toolkit; compute-sanitizer where it is.
#
#   ./run.sh test [PACKAGE…]      the tests of kernels, transfer, device_cuda and cache
#   ./run.sh sanitize [TOOL…]     the kernels' tests under memcheck and racecheck: slow
#   ./run.sh bench [GROUP…]       hot, online, codecs, large, batch: figures of one GPU
#   ./run.sh real                 every codec on the tables of data/, where the bundle has them
#   ./run.sh pair                 on two GPUs: the tests that need several, and their figures
#   ./run.sh steps                print how the steps went so far
#
# Each part is steps with limits of their own; one that fails or hangs stops no other. Results are in the folder $RESULTS (results)
# and, renewed all the time, in $ARCHIVE ($RESULTS.tar.gz), so that a run that is killed leaves what it found. After $LIMIT seconds
# (3600) nothing runs any more. Tests that have a result are not run again: the same command goes on where it was stopped.
# Results of other machines go to other folders; "gpurecord -collect" makes one record of all.
set -u
cd "$(dirname "$0")" || exit 1
results=${RESULTS:-results}
archive=${ARCHIVE:-$results.tar.gz}
deadline=$(($(date +%s) + ${LIMIT:-3600}))
processors=$(nproc)
[ "$processors" -ge 8 ] || processors=8
export TENSORCACHE_REQUIRE_GPU=1
# The driver compiles the kernels once for all processes.
export CUDA_CACHE_PATH="${CUDA_CACHE_PATH:-$PWD/jit}" CUDA_CACHE_MAXSIZE=4294967296

# step NAME SECONDS FLAGS… -- COMMAND runs a step; its output goes to the results.
step() {
	name=$1 seconds=$2
	shift 2
	./gpurecord -step "$name" -dir "$results" -limit "${seconds}s" -until "$deadline" "$@"
}

# tests PACKAGE SECONDS PROCESSES FLAGS… runs a package's tests by several processes at once.
tests() {
	package=$1 seconds=$2 processes=$3
	shift 3
	step "$package" "$seconds" -tests "$package" -stall "${STALL:-150s}" -workers "$processes" "$@" -- "./$package.test" ${SHORT:+-test.short}
}

# sanitize TOOL
sanitize() {
	step "$1" 540 -tests kernels -tool "$1" -stall "${STALL:-240s}" -workers 3 -- ./kernels.test -test.short
}

# bench GROUP SECONDS CASES FLAGS…
bench() {
	group=$1 seconds=$2 cases=$3
	shift 3
	step "bench-$group" "$seconds" -stall "${STALL:-120s}" -- \
		./cachebench gpu-bench --cases "$cases" --out "$results/bench-$group.json" "$@" ${BENCH_FLAGS:-}
}

# json NAME SECONDS ARGUMENTS… keeps what cachebench prints.
json() {
	name=$1 seconds=$2
	shift 2
	step "$name" "$seconds" -stall "${STALL:-120s}" -- sh -c 'out=$1; shift; ./cachebench "$@" --json >"$out"' sh "$results/$name.json" "$@"
}

# wanted NAME LIST… says whether a name is in the list, or the list empty.
wanted() {
	one=$1
	shift
	[ $# -eq 0 ] && return 0
	for w; do [ "$w" = "$one" ] && return 0; done
	return 1
}

pack() {
	tar -czf "$archive.$1" "$results"
	mv -f "$archive.$1" "$archive"
}

case ${1:-} in
test | sanitize | bench | real | pair) ;;
steps) exec ./gpurecord -steps -dir "$results" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
part=$1
shift
./gpurecord -begin -dir "$results" || exit 1
(
	while sleep 15; do pack during; done 2>/dev/null
) &
packer=$!
trap 'kill $packer 2>/dev/null' EXIT

case $part in
test)
	# These measure a GPU's free memory, take all of it, or break it: alone.
	if wanted cache "$@"; then tests cache 100 1 -run '^TestGPU_(MemoryBeyondBudget|CloseFreesEverything|OutOfMemory|LostDevice)$'; fi
	# The others time nothing: all at once.
	running=
	if wanted kernels "$@"; then tests kernels 400 $((processors / 4)) & running="$running $!"; fi
	if wanted cache "$@"; then tests cache 400 $((processors / 8)) & running="$running $!"; fi
	if wanted transfer "$@"; then tests transfer 300 1 & running="$running $!"; fi
	if wanted device_cuda "$@"; then tests device_cuda 120 1 & running="$running $!"; fi
	for p in $running; do wait "$p"; done
	;;
sanitize)
	if command -v compute-sanitizer >/dev/null; then
		running=
		for tool in memcheck racecheck; do
			if wanted $tool "$@"; then
				sanitize $tool &
				running="$running $!"
			fi
		done
		for p in $running; do wait "$p"; done
	else
		echo "run.sh: there is no compute-sanitizer" >&2
	fi
	;;
bench)
	if wanted hot "$@"; then
		bench hot 300 link,device-copy,hit-decode,miss-fetch,gather-hits,gather-misses,gather-80,lookup,load,small-batch,small-batch-caller,caller,memory
	fi
	if wanted online "$@"; then bench online 90 sampling,refresh; fi
	if wanted codecs "$@"; then bench codecs 240 hit-codecs --rows 256,512,1024,4096; fi
	if wanted large "$@"; then bench large 240 gather-misses-large; fi
	if wanted batch "$@"; then
		json run-cuda 60 run --device cuda --verify
		json run-host 60 run --device host --verify
		step default-batch 90 -- ./cache.test -test.run '^$' -test.bench DefaultBatch -test.count 5
	fi
	;;
real)
	for table in data/*.np[yz]; do
		[ -e "$table" ] || continue
		for codec in auto none ibp4 ibp8 ibpc rank zipnn sleek ndzip; do
			json "real-$(basename "${table%.*}")-$codec" 60 run --device cuda --features "$table" --codec $codec --verify
		done
	done
	;;
pair)
	tests cache 240 1 -run '^TestGPUs_'
	bench pair 240 peer-hits,pair-throughput,pair-placement,pair-refresh
	;;
esac
./gpurecord -steps -dir "$results"
status=$?
pack last
exit $status
