#!/bin/sh
# Runs parts of a GPU bundle in its own folder. Needs a GPU and its driver, no Go and no CUDA toolkit. Runs compute-sanitizer if there is one.
#
#   ./run.sh test [PACKAGE…]      the tests of the packages, default all
#   ./run.sh sanitize [TOOL…]     the tests of kernels under memcheck and racecheck; named, also under initcheck and synccheck, which a record may have
#                                 but need not. Only tests whose names match the regular expression $TESTS (all)
#   ./run.sh bench [GROUP…]       hot, online, codecs, pooled, buddy, ngram, large, batch, training: figures of one GPU; drive: rows from pages of the drive
#                                 that has this folder, beside a plain reader, for which 8 GiB must be free; tiers: batches and steps of a text through a
#                                 cache over such pages, of 40 GiB, each in up to 9 minutes; not among all groups
#   ./run.sh real                 every codec on the tables of data/
#   ./run.sh python               the tests of the Python package, what its calls cost, and the checks of the C library that it runs; needs
#                                 python3, and torch for most tests. Only tests in the files $PYTHON_TESTS (python/tests)
#   ./run.sh loop                 a training loop in PyTorch with the Python package: $RESULTS/training-loop.json; takes minutes, and over 62 GB of host memory
#   ./run.sh pair                 on two GPUs: the tests that need several, and their figures
#
# Results are in the folder $RESULTS (results): of each test what go test -json prints. A copy of it is in $ARCHIVE ($RESULTS.tar.gz), renewed
# every 15 s. Each test ($EACH seconds, 200) and each step of a benchmark has its own limit. After $LIMIT seconds (3600) nothing runs any
# more. The same command goes on where it was stopped: tests that have a result and steps that ended well do not run again. The exit status
# is 0 if everything that was asked for ended well. Each machine needs a folder of its own. "make gpu-collect" makes one record of all.
set -u
cd "$(dirname "$0")" || exit 1
results=${RESULTS:-results}
archive=${ARCHIVE:-$results.tar.gz}
deadline=$(($(date +%s) + ${LIMIT:-3600}))
processors=$(nproc)
[ "$processors" -ge 8 ] || processors=8
status=0
export TENSORCACHE_REQUIRE_GPU=1
# The driver keeps compiled kernels here, for all processes.
export CUDA_CACHE_PATH="${CUDA_CACHE_PATH:-$PWD/jit}" CUDA_CACHE_MAXSIZE=4294967296

# within SECONDS is the smaller of this and of what is left of $LIMIT.
within() {
	left=$((deadline - $(date +%s)))
	[ "$left" -gt "$1" ] && left=$1
	[ "$left" -gt 0 ] && echo "$left" || echo 0
}

# log WORDS… prints a line and keeps it.
log() { echo "$(date +%T) $*" | tee -a "$results/steps.txt"; }

# ended NAME BEGIN STATUS says how a step ended.
ended() {
	if [ "$3" -eq 0 ]; then how=ended; else how=FAILED status=1; fi
	log "$1 $how after $(($(date +%s) - $2)) s"
}

# tests NAME SECONDS PROCESSES PATTERN BINARY… runs the tests whose names match and that have no result yet, under each tool of $TOOLS if there are any.
tests() {
	name=$1 seconds=$(within "$2") processes=$3 pattern=$4 begin=$(date +%s)
	shift 4
	todo="$results/$name.todo"
	: >"$todo"
	for binary; do
		for tool in ${TOOLS:-none}; do
			list="$results/$(basename "$binary" .test)$(dotted "$tool").list"
			[ -s "$list" ] || "$binary" -test.list . | grep -E '^(Test|Fuzz|Example)' >"$list"
			grep -E "$pattern" "$list" | sed "s|^|$binary $tool |" >>"$todo"
		done
	done
	RESULTS=$results UNTIL=$((begin + seconds)) xargs -r -P "$processes" -n 3 ./run.sh one <"$todo"
	failed=0 missing=0
	while read -r binary tool test; do
		json="$results/$(basename "$binary" .test).$test$(dotted "$tool").json"
		if [ ! -e "$json" ]; then
			missing=$((missing + 1))
		elif [ -e "$json.failed" ]; then
			failed=$((failed + 1))
			log "FAILED: $json"
		fi
	done <"$todo"
	log "$name: $(wc -l <"$todo") tests, of which $failed failed and $missing did not run"
	ended "$name" "$begin" $((failed + missing))
}

# dotted TOOL is what a tool adds to the names of files.
dotted() { [ "$1" = none ] || echo ".$1"; }

# one BINARY TOOL TEST runs a test in a process of its own, unless it has been run before or there is no time: one that hangs, crashes or breaks the GPU's
# context fails alone. It has 10 s to print its goroutines. Then it is killed, and so is what it has started. A test that is cut off by the time of all has no
# result.
one() {
	binary=$1 tool=$2 test=$3 pkg=$(basename "$1" .test) seconds=$((UNTIL - $(date +%s))) cut=yes
	json="$results/$pkg.$test$(dotted "$tool").json"
	if [ -e "$json" ] || [ "$seconds" -le 0 ]; then return 0; fi
	if [ "$seconds" -ge "${EACH:-200}" ]; then seconds=${EACH:-200} cut=; fi
	set -- "$binary" -test.v=test2json -test.timeout=0 "-test.run=^$test\$" ${SHORT:+-test.short}
	case $tool in
	# A driver call that fails is no fault of a kernel: one asks for parameters until there are no more.
	memcheck) set -- --report-api-errors no "$@" ;;
	# Without damaged rows of codec sparse: in a damaged list a position may be there twice, and two lanes put its entry. The row counts as corrupt,
	# whichever comes last. Nothing else is read back from there.
	racecheck) set -- "$@" '-test.skip=Corrupt$/^sparse' ;;
	esac
	[ "$tool" = none ] || set -- compute-sanitizer --tool "$tool" --error-exitcode 1 "$@"
	# timeout has a group of its own, by whose number everything in it is killed.
	# shellcheck disable=SC2016
	sh -c 'echo $$ >"$0" && exec timeout -s QUIT -k 10 "$@"' "$json.pid" "$seconds" ./test2json -t -p "$pkg" "$@" >"$json.part" 2>&1
	code=$?
	kill -s KILL -- "-$(cat "$json.pid")" 2>/dev/null
	rm -f "$json.pid"
	case $code$cut in
	0*) ;;
	124yes | 137yes) return 0 ;;
	*) grep -q 'before first instrumented API call' "$json.part" || : >"$json.failed" ;; # a tool fails if a test makes no call of the driver
	esac
	mv "$json.part" "$json"
}

# step NAME SECONDS OUTPUT COMMAND… runs a command with its output in a file, and its messages in NAME.log, unless it has ended well before.
step() {
	name=$1 seconds=$(within "$2") output=$3 begin=$(date +%s)
	shift 3
	[ ! -e "$results/$name.ok" ] || return 0
	if [ "$seconds" -ge 2 ]; then
		timeout --foreground -s QUIT -k 10 "$seconds" "$@" >"$output" 2>"$results/$name.log" && : >"$results/$name.ok"
		ended "$name" "$begin" $?
	else
		log "$name: no time was left"
		status=1
	fi
}

# bench GROUP SECONDS CASES FLAGS…
bench() {
	group=$1 seconds=$2 cases=$3
	shift 3
	step "bench-$group" "$seconds" "$results/bench-$group.txt" ./lab/lab bench --cases "$cases" --out "$results/bench-$group.json" "$@" ${BENCH_FLAGS:-}
}

# json NAME ARGUMENTS… keeps what cachebench prints.
json() {
	name=$1
	shift
	step "$name" 60 "$results/$name.json" ./cachebench "$@" --json
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
	tar -czf "$archive.$1" "$results" # 1: a file changed meanwhile
	[ $? -le 1 ] && mv -f "$archive.$1" "$archive"
}

[ -x lab/lab ] || [ "${1:-}" = one ] || { echo "run.sh: this folder is no bundle: make gpu-pack makes one, on a machine with Go" >&2; exit 2; }
part=${1:-}
case $part in
one)
	shift
	one "$@"
	exit
	;;
test | sanitize | bench | real | python | loop | pair) shift ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
mkdir -p "$results" && ./lab/lab machine >"$results/machine.new" && cp sources.json "$results/sources.new" || exit 1
for f in machine sources; do
	if [ -e "$results/$f.json" ] && ! cmp -s "$results/$f.new" "$results/$f.json"; then
		echo "run.sh: $results/$f.json ($(cat "$results/$f.json")) is of other code or another machine ($(cat "$results/$f.new") here): take another folder" >&2
		exit 1
	fi
	mv "$results/$f.new" "$results/$f.json"
done
(while sleep 15 && kill -0 $$; do pack during; done) >/dev/null 2>&1 &
packer=$!
trap 'kill $packer 2>/dev/null' EXIT

case $part in
test)
	binaries=
	for b in ./*.test; do if wanted "$(basename "$b" .test)" "$@"; then binaries="$binaries $b"; fi; done
	[ -n "$binaries" ] || { echo "run.sh: packages ($*) must be some of $(echo ./*.test)" >&2; exit 2; }
	# These measure times or a GPU's free memory, take all of it, or break it: one after the other.
	tests tests-alone 400 1 '^TestGPU_(MemoryBeyondBudget|CloseFreesEverything|OutOfMemory|LostDevice|GatherAllocatesNothing|AttachedRate|CapturedRate|ClientMemory|AttachOften|FirstBatch|TwoClients)$' $binaries
	# These run several processes, or many short batches one after the other. Processes take turns on a GPU, in slices of milliseconds, so beside the
	# others they would take minutes.
	tests tests-turns 300 2 '^TestGPU_(Model|ModelMillion|CapturedModel|CapturedKilled|CapturedStopped|CapturedOwnerKilled|CapturedClosing|CapturedPlaces|ClientKilled|OwnerKilled|OwnerKilledUpdating|AttachPages|EqualsVersionedMap|PagesEqualVersionedMap|PageFilesEqualVersionedMap|OwnerKilledWithPages)$' $binaries
	# The others measure nothing. Those of kernels take longest, so they begin first.
	case $binaries in *kernels*) binaries="./kernels.test $(echo "$binaries" | sed 's|\./kernels\.test||')" ;; esac
	tests tests 500 "${WORKERS:-$((processors / 2))}" . $binaries
	;;
sanitize)
	command -v compute-sanitizer >/dev/null || { echo "run.sh: there is no compute-sanitizer" >&2; exit 1; }
	tools=
	[ $# -gt 0 ] || set -- memcheck racecheck
	for tool in memcheck racecheck initcheck synccheck; do if wanted $tool "$@"; then tools="$tools${tools:+ }$tool"; fi; done
	[ -n "$tools" ] || { echo "run.sh: tools ($*) must be memcheck, racecheck, initcheck, synccheck" >&2; exit 2; }
	# Under racecheck the tests of all codecs and paths take up to 5 minutes each. Here the driver compiles PTX, as it does for users without machine code
	# in their build; the other tests run the bundle's machine code, if it has any.
	export SHORT=1 EACH="${EACH:-500}" TOOLS="$tools" TENSORCACHE_PTX=1
	tests sanitize 900 10 "${TESTS:-.}" ./kernels.test
	;;
bench)
	if wanted hot "$@"; then
		bench hot 300 link,device-copy,hit-decode,miss-fetch,gather-hits,gather-misses,gather-80,lookup,load,small-batch,small-batch-caller,caller,captured
	fi
	if wanted online "$@"; then bench online 90 sampling,refresh; fi
	if wanted codecs "$@"; then bench codecs 300 hit-codecs,gather-hits-codecs,hit-parts --rows 256,512,1024,4096; fi
	if wanted pooled "$@"; then bench pooled 240 pooled-hits,pooled-gather,pooled-80,pooled-tables; fi
	if wanted ngram "$@"; then # 96,000,000 rows of 264 bytes
		bench ngram 480 ngram-decode,ngram-prefill --tokens data/wikitext2_tokens.npy --large-table-bytes 25344000000
	fi
	if wanted buddy "$@"; then bench buddy 400 buddy-hits,buddy-overflow,buddy-budget,buddy-updates --rows 256,512,640,1024,4096; fi
	if wanted large "$@"; then bench large 240 gather-misses-large; fi
	if wanted training "$@"; then bench training 400 training-fetch; fi
	if wanted batch "$@"; then
		json run-cuda run --device cuda --verify
		json run-host run --device host --verify
		step default-batch 90 "$results/default-batch.txt" ./cache.test -test.run '^$' -test.bench DefaultBatch -test.count 5
	fi
	if wanted drive "$@"; then
		for page in 64KiB 256KiB 1MiB; do
			step "drive-$page" 180 "$results/drive-$page.json" ./lab/lab drive --dir . --bytes 8GiB --page $page
		done
	fi
	if [ $# -gt 0 ] && wanted tiers "$@"; then # 40 GiB, up to 18 minutes: only if it is asked for
		below="drive --dir . --bytes 40GiB --rounds 1 --gather cuda --host-memory 8GiB --budget 4GiB"
		# shellcheck disable=SC2086
		{
			step tiers-4KiB 520 "$results/tiers-4KiB.json" ./lab/lab $below --page 4KiB --share 0.02 --tokens data/wikitext2_tokens.npy --layers 2 --steps 1000
			step tiers-64KiB 520 "$results/tiers-64KiB.json" ./lab/lab $below --page 64KiB --share 0.05
		}
	fi
	;;
real)
	for table in data/*.np[yz]; do
		case $table in *tokens.npy) continue ;; esac # a text
		[ -e "$table" ] || continue
		for codec in $(./lab/lab codecs); do
			json "real-$(basename "${table%.*}")-$codec" run --device cuda --features "$table" --codec "$codec" --verify
		done
	done
	;;
python | loop)
	[ -d python ] || { echo "run.sh: the bundle has no Python package" >&2; exit 1; }
	for wheel in python/*.whl; do [ -e python/site ] || mkdir python/site; python3 -m zipfile -e "$wheel" python/site; done
	export PYTHONPATH="$PWD/python/site" PYTHONDONTWRITEBYTECODE=1 TENSORCACHED="$PWD/tensorcached" TENSORCACHE_TEST_EVENTS="$(cd "$results" && pwd)/python.jsonl"
	if [ "$part" = loop ]; then
		step loop 400 "$results/training-loop.txt" python3 -W ignore lab/python/training_loop.py --commit "$(cat python/commit)" --out "$results/training-loop.json"
	else
		TENSORCACHE_CAPI_PROGRAMS="$PWD/capi" tests capi 200 1 . ./capi/capi.test
		# A test that hangs prints where, after two minutes.
		# shellcheck disable=SC2086
		step python 600 "$results/python.txt" python3 -m pytest -v -ra --tb=long --durations=25 -o faulthandler_timeout=120 -p no:cacheprovider ${PYTHON_TESTS:-python/tests}
		tail -n 45 "$results/python.txt"
		step python-calls 120 "$results/python-calls.txt" python3 lab/python/calls.py --json "$results/python-calls.json"
		step python-bags 180 "$results/python-bags.txt" python3 lab/python/embedding_bag.py --commit "$(cat python/commit)" --json "$results/python-bags.json"
	fi
	;;
pair)
	tests tests-pair 300 1 '^TestGPUs_' ./*.test
	bench pair 240 peer-hits,buddy-peers,pair-throughput,pair-placement,pair-refresh
	;;
esac
pack last
exit $status
