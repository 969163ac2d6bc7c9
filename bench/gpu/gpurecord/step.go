package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Step is how a step of a run went. Its line is added to steps.jsonl when it begins and when it ends.
type Step struct {
	Name string `json:"name"`
	// Begin is in Unix seconds. Limit is how long it could take.
	Begin   int64   `json:"begin"`
	Seconds float64 `json:"seconds"`
	Limit   float64 `json:"limit_seconds"`
	Result  string  `json:"result"`
	Detail  string  `json:"detail,omitempty"`
}

// What Step.Result says. A step that was cut off is one whose end is missing.
const (
	stepRunning = "cut off"
	stepOK      = "ok"
	stepFailed  = "failed"
	stepNoTime  = "not begun"
)

// stepsFile has the steps of a folder of results.
const stepsFile = "steps.jsonl"

// errLimit says that a step's time was over.
var errLimit = errors.New("the step's time is over")

// note adds a line of this program's own to a log.
func note(log io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(log, "\n"+noted+format+"\n", args...)
	return err
}

// noted begins such lines.
const noted = "gpurecord: "

// stepOptions say what a step does.
type stepOptions struct {
	name, dir string
	// limit is how long it may take, and until, unless 0, the Unix seconds by which all steps must have ended.
	limit time.Duration
	until int64
	// stall is for how long a command may be silent.
	stall   time.Duration
	command []string
	// suite has the command be a test binary whose tests are run apart.
	suite *suite
}

// least is what there must be left of the time for a step to begin.
const least = 2 * time.Second

// runStep runs a step and notes how it went.
func runStep(o stepOptions) error {
	if len(o.command) == 0 {
		return fmt.Errorf("step %s: command (none) must follow the flags", o.name)
	}
	begin := time.Now()
	if o.until > 0 {
		o.limit = min(o.limit, time.Unix(o.until, 0).Sub(begin))
	}
	s := Step{Name: o.name, Begin: begin.Unix(), Limit: max(0, o.limit.Seconds()), Result: stepRunning}
	if o.limit < least {
		s.Result, s.Detail = stepNoTime, "no time was left"
		return errors.Join(fmt.Errorf("step %s: %s", s.Name, s.Detail), addStep(o.dir, s))
	}
	if err := addStep(o.dir, s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	var err error
	if o.suite != nil {
		s.Detail, err = o.suite.run(ctx)
	} else {
		err = runCommand(ctx, o)
	}
	s.Result, s.Seconds = stepOK, time.Since(begin).Seconds()
	if err != nil {
		s.Result = stepFailed
		if s.Detail != "" {
			s.Detail += "; "
		}
		s.Detail += err.Error()
		err = fmt.Errorf("step %s: %w", s.Name, err)
	}
	return errors.Join(err, addStep(o.dir, s))
}

// runCommand runs a step's command, with its output in NAME.txt.
func runCommand(ctx context.Context, o stepOptions) error {
	log, err := os.OpenFile(filepath.Join(o.dir, o.name+".txt"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(execute(ctx, o.command, log, o.stall), log.Close())
}

// addStep adds a line; steps that run beside each other do so at once.
func addStep(dir string, s Step) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, stepsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// readSteps returns the steps of a folder's file, in the order in which they began.
func readSteps(lines []byte) (steps []Step, err error) {
	for line := range bytes.Lines(lines) {
		var s Step
		if err := json.Unmarshal(line, &s); err != nil {
			if bytes.HasSuffix(line, []byte("\n")) {
				return nil, fmt.Errorf("%s: %w", stepsFile, err)
			}
			continue // the last line, written when everything was killed
		}
		i := slices.IndexFunc(steps, func(x Step) bool { return x.Name == s.Name && x.Begin == s.Begin })
		if i < 0 {
			steps = append(steps, s)
		} else {
			steps[i] = s
		}
	}
	return steps, nil
}

// printSteps prints the table of a folder's steps. The error says which did not end well.
func printSteps(w io.Writer, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, stepsFile))
	if err != nil {
		return err
	}
	steps, err := readSteps(b)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "step\tbegan\tseconds\tlimit\tresult\t")
	var bad []error
	for _, s := range steps {
		seconds := "?"
		if s.Result != stepRunning {
			seconds = fmt.Sprintf("%.1f", s.Seconds)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%s\t%s\n", s.Name, time.Unix(s.Begin, 0).UTC().Format(time.TimeOnly), seconds, s.Limit, s.Result, firstLine(s.Detail))
	}
	for i, s := range steps { // a step that was run again counts as it went last
		if s.Result != stepOK && !slices.ContainsFunc(steps[i+1:], func(x Step) bool { return x.Name == s.Name }) {
			bad = append(bad, fmt.Errorf("step %s: %s", s.Name, s.Result))
		}
	}
	return errors.Join(t.Flush(), errors.Join(bad...))
}

// firstLine is what a table has room for.
func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	const most = 160
	if len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += " …"
	}
	return line
}
