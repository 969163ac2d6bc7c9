package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Owed notes that code has yet to run on a GPU, or under compute-sanitizer.
type Owed struct {
	Sources
	// Why says what changed since the record, or what the record lacks.
	Why string `json:"why"`
}

func writeOwed(path, why string) error {
	s, err := hashSources(".")
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(Owed{s, why}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// readOwed returns the note at path, or nil where there is none.
func readOwed(path string) (*Owed, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := new(Owed)
	if err := json.Unmarshal(b, o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if o.Why == "" {
		return nil, fmt.Errorf("%s: why must say what changed", path)
	}
	return o, nil
}

// settle says why code is neither what was tested, by a record that may have gaps, nor, to the byte, what the note owes tests of. o may
// be nil.
func (o *Owed) settle(tested, now Sources, gaps error) error {
	switch {
	case tested == now && o != nil && gaps == nil:
		return errors.New("the code is what was tested: nothing is owed, the note must go")
	case tested == now && o != nil && o.Sources != now:
		return errors.New("the note that tests are owed is of other code")
	case tested == now:
		return nil
	case o == nil:
		return fmt.Errorf("%s what was tested; run make gpu-test on a GPU, or make gpu-owed where there is none", now.differs(tested))
	case o.Sources != now:
		return fmt.Errorf("%s what was tested, and the note that tests are owed is of other code", now.differs(tested))
	}
	return nil
}

func (s Sources) differs(tested Sources) string {
	switch {
	case s.PTX == tested.PTX:
		return "the CUDA sources differ from"
	case s.Go == tested.Go:
		return "the PTX differs from"
	}
	return "the PTX and the CUDA sources differ from"
}
