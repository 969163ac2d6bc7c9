package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Owed notes that code has yet to run on a GPU, or under compute-sanitizer.
type Owed struct {
	Sources
	// Why says what changed since the record, or what the record lacks.
	Why string `json:"why"`
	// Added are the sources that are new since the record, if that is all that has changed: all others are as tested.
	Added []string `json:"added,omitempty"`
}

// note returns the note for the code below root. added are files that may be new since it was tested, other than sources among them.
func note(root, why string, tested Sources, added []string) (*Owed, error) {
	ptx, code, err := readSources(root)
	if err != nil {
		return nil, err
	}
	o := &Owed{Sources: Sources{hash(ptx), hash(code)}, Why: why}
	if added = without(ptx, code, added); (Sources{hash(ptx), hash(code)}) == tested {
		o.Added = added
	}
	return o, nil
}

// without takes files out of sources, and returns those that were there.
func without(ptx, code map[string][]byte, files []string) (taken []string) {
	for _, f := range files {
		if ptx[f] != nil || code[f] != nil {
			taken = append(taken, f)
			delete(ptx, f)
			delete(code, f)
		}
	}
	slices.Sort(taken)
	return taken
}

// readOwed returns the note at path, or nil if there is none.
func readOwed(path string) (*Owed, error) {
	o := new(Owed)
	switch err := readJSON(path, o); {
	case path == "", errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case o.Why == "":
		return nil, fmt.Errorf("%s: why must say what changed", path)
	}
	return o, nil
}

// check says what of a record does not hold for the code in this repository. owedPath is where a note may be that tests are owed.
func check(path, owedPath string, packages []string) error {
	var r Record
	if err := readJSON(path, &r); err != nil {
		return err
	}
	ptx, code, err := readSources(".")
	if err != nil {
		return err
	}
	now := Sources{hash(ptx), hash(code)}
	o, err := readOwed(owedPath)
	if err != nil {
		return err
	}
	if o != nil && len(o.Added) > 0 {
		if without(ptx, code, o.Added); (Sources{hash(ptx), hash(code)}) != r.Sources {
			return fmt.Errorf("%s: the note %s says that files were added, but others have changed, too; %s", path, owedPath, toDo)
		}
	}
	gaps := r.gaps(packages)
	fault := r.failures()
	if o == nil {
		fault = errors.Join(fault, gaps)
	}
	if fault != nil {
		return fmt.Errorf("%s: %w; run make gpu-test on a GPU", path, fault)
	}
	if err := o.settle(r.Sources, now, gaps); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Println(r)
	if o != nil && r.Sources == now {
		fmt.Printf("OWED: %s: %s\n", strings.ReplaceAll(gaps.Error(), "\n", ", "), o.Why)
	} else if o != nil && len(o.Added) > 0 {
		fmt.Printf("OWED: %d files of kernels and their callers are new and have not run on a GPU; all others are as tested: %s\n", len(o.Added), o.Why)
	} else if o != nil {
		fmt.Printf("OWED: this code has changed since, and has not run on a GPU: %s\n", o.Why)
	}
	return nil
}

// settle returns an error unless now is the tested code, or the note is of exactly this code. A note beside a record of this code is for
// the record's gaps. o may be nil.
func (o *Owed) settle(tested, now Sources, gaps error) error {
	switch {
	case o == nil && tested == now:
		return nil
	case o == nil && now.PTX == tested.PTX:
		return fmt.Errorf("the CUDA sources differ from what was tested; %s", toDo)
	case o == nil:
		return fmt.Errorf("the PTX differs from what was tested; %s", toDo)
	case tested == now && gaps == nil:
		return errors.New("the code is what was tested: nothing is owed, the note must go")
	case o.Sources != now:
		return fmt.Errorf("the note that tests are owed is of other code; %s", toDo)
	}
	return nil
}

const toDo = "run make gpu-test on a GPU, or make gpu-owed where there is none"
