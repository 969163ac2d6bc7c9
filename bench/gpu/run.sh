#!/bin/sh
# Runs a GPU bundle in its own folder: "test" runs the tests and writes gpu-test.json, "bench" writes gpu-bench.json. Needs a
# GPU and its driver, no Go and no CUDA toolkit; compute-sanitizer is used where it is.
set -u
cd "$(dirname "$0")"
export TENSORCACHE_REQUIRE_GPU=1

run_tests() {
	rm -f ./*.log
	for t in ./*.test; do
		name=$(basename "$t" .test)
		"$t" -test.v -test.timeout 300s >"$name.log" 2>&1 || echo "$name: failed"
	done
	if command -v compute-sanitizer >/dev/null; then
		# Reads past allocations and races; short, since the tools slow kernels down a hundredfold.
		# A driver call that fails is no fault of a kernel's: one asks for parameters until there are no more.
		for tool in memcheck racecheck; do
			options=
			[ $tool = memcheck ] && options='--report-api-errors no'
			compute-sanitizer --tool $tool $options ./kernels.test -test.v -test.short -test.timeout 300s \
				>"kernels.$tool.log" 2>&1 || echo "$tool: failed"
		done
	fi
	./gpurecord -collect . -out gpu-test.json
}

case ${1:-} in
test) run_tests ;;
bench)
	set -e
	./cachebench devices
	./cachebench gpu-bench --json >gpu-bench.new
	./cachebench run --device cuda --verify --json >run-cuda.json
	./cachebench run --device host --verify --json >run-host.json
	./cache.test -test.run '^$' -test.bench DefaultBatch -test.count 5 >default-batch.txt
	cat default-batch.txt
	mv gpu-bench.new gpu-bench.json
	;;
*)
	echo "usage: run.sh test|bench" >&2
	exit 2
	;;
esac
