// Command gpurecord keeps the evidence of GPU tests: which code ran on which device, and how each test ended.
//
//	gpurecord -sources                     print the hashes of the code in this repository
//	gpurecord -collect DIR -out FILE       make a record of a bundle's logs
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
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gpurecord:", err)
		os.Exit(1)
	}
}

func run() error {
	sources := flag.Bool("sources", false, "print the hashes of the code")
	collect := flag.String("collect", "", "folder of a bundle whose logs to collect")
	out := flag.String("out", "gpu-test.json", "record to write")
	check := flag.String("check", "", "record to check")
	owe := flag.String("owe", "", "why the code has not run on a GPU")
	owed := flag.String("owed", "", "file of the note that it has not")
	flag.Parse()
	switch {
	case *sources:
		s, err := hashSources(".")
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(s)
	case *collect != "":
		r, err := collectRecord(*collect)
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
	return errors.New("one of -sources, -collect, -check, and -owe with -owed must be given")
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
	if err := o.settle(r.Sources, now); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Println(r)
	if o != nil {
		fmt.Printf("OWED: this code has changed since, and has not run on a GPU: %s\n", o.Why)
	}
	return nil
}
