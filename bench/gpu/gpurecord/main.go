// Command gpurecord keeps the evidence of GPU tests: which code ran on which device, and how each test ended.
//
//	gpurecord -sources                     print the hashes of the code in this repository
//	gpurecord -begin -dir DIR              begin a folder of results of this bundle on this machine
//	gpurecord -step NAME -dir DIR … -- COMMAND
//	                                       run a step within limits of its own, and note how it went
//	gpurecord -steps -dir DIR              print how the steps went
//	gpurecord -collect -out FILE DIR…      make a record of folders of results, or of their .tar.gz
//	gpurecord -check FILE [-owed FILE]     say whether a record is of the code in this repository
//	gpurecord -owe WHY -owed FILE          note that the code in this repository has yet to run on a GPU
//
// A record that is older than the code passes only beside a note of just this code, which the check repeats: so work can be
// handed on from where there is no GPU, and nobody takes it for tested.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gpurecord:", err)
		os.Exit(1)
	}
}

func run() error {
	sources := flag.Bool("sources", false, "print the hashes of the code")
	collect := flag.Bool("collect", false, "make a record of the folders of results that follow")
	out := flag.String("out", "gpu-test.json", "record to write")
	check := flag.String("check", "", "record to check")
	owe := flag.String("owe", "", "why the code has not run on a GPU")
	owed := flag.String("owed", "", "file of the note that it has not")
	opening := flag.Bool("begin", false, "begin a folder of results")
	dir := flag.String("dir", "results", "folder of results")
	steps := flag.Bool("steps", false, "print how the steps went")
	var o stepOptions
	flag.StringVar(&o.name, "step", "", "name of the step to run")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "the most that the step may take")
	flag.Int64Var(&o.until, "until", 0, "Unix seconds at which all steps must have ended; 0 for no such time")
	flag.DurationVar(&o.stall, "stall", 0, "the longest that the command may be silent; 0 for ever")
	var tests suite
	flag.StringVar(&tests.pkg, "tests", "", "package: the command is a test binary of it, whose tests are run by several processes")
	flag.StringVar(&tests.pattern, "run", ".", "tests to run, as of go test")
	flag.StringVar(&tests.tool, "tool", "", "tool of compute-sanitizer to run them under")
	flag.IntVar(&tests.workers, "workers", 1, "processes at once")
	flag.Parse()
	switch {
	case *opening:
		return begin(*dir, ".")
	case o.name != "":
		o.dir, o.command = *dir, flag.Args()
		if tests.pkg != "" {
			tests.dir, tests.stall, tests.command = o.dir, o.stall, o.command
			o.suite = &tests
		}
		return runStep(o)
	case *steps:
		return printSteps(os.Stdout, *dir)
	case *sources:
		s, err := hashSources(".")
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	case *collect:
		if flag.NArg() == 0 {
			return errors.New("folders of results (none) must follow -collect")
		}
		r, err := collectRecord(flag.Args())
		if err != nil {
			return err
		}
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*out, append(b, '\n'), 0o644); err != nil {
			return err
		}
		fmt.Println(r)
		return r.fault()
	case *owe != "" && *owed != "":
		return writeOwed(*owed, *owe)
	case *check != "":
		return checkRecord(*check, *owed)
	}
	return errors.New("one of -sources, -begin, -step, -steps, -collect, -check, and -owe with -owed must be given")
}

// checkRecord says what of a record does not hold for the code in this repository. owedPath, if not empty, is where a note may
// lie that its tests are owed.
func checkRecord(path, owedPath string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	now, err := hashSources(".")
	if err != nil {
		return err
	}
	o, err := readOwed(owedPath)
	if err != nil {
		return err
	}
	fault := r.failures()
	if o == nil { // what an older record does not cover is owed too
		fault = r.fault()
	}
	if fault != nil {
		return fmt.Errorf("%s: %w; run make gpu-test on a GPU", path, fault)
	}
	if err := o.settle(r.Sources, now, r.gaps()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Println(r)
	switch {
	case o == nil:
	case r.Sources == now:
		fmt.Printf("OWED: %s: %s\n", strings.ReplaceAll(r.gaps().Error(), "\n", ", "), o.Why)
	default:
		fmt.Printf("OWED: this code has changed since, and has not run on a GPU: %s\n", o.Why)
	}
	return nil
}
