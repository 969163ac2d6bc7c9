// Command gpurecord keeps the evidence of GPU tests: which code ran on which device, and how each test ended.
//
//	gpurecord -sources                     print the hashes of the code in this repository
//	gpurecord -collect DIR -out FILE       make a record of a bundle's logs
//	gpurecord -check FILE                  say whether a record is of the code in this repository
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
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
	case *check != "":
		return checkRecord(*check)
	}
	return errors.New("one of -sources, -collect and -check must be given")
}

// checkRecord says what of a record does not hold for the code in this repository.
func checkRecord(path string) error {
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
	var faults []string
	if r.PTX != now.PTX {
		faults = append(faults, "the PTX differs from what was tested")
	}
	if r.Go != now.Go {
		faults = append(faults, "the CUDA sources differ from what was tested")
	}
	if err := r.fault(); err != nil {
		faults = append(faults, err.Error())
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s: %s; run make gpu-test on a GPU", path, strings.Join(faults, "; "))
	}
	fmt.Println(r)
	return nil
}
