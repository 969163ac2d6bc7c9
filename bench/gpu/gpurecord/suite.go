package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// suite runs the tests of a binary in several processes, a few tests in each: one that hangs, crashes or breaks the GPU's context
// fails alone, and all the others are run still. What earlier logs of the folder settle is not run again.
//
// Each process has a log PACKAGE.N.log, or PACKAGE.TOOL.N.log; PACKAGE.list and PACKAGE.TOOL.list name the tests that are to run.
type suite struct {
	dir, pkg string
	// tool of compute-sanitizer that the tests run under; "" none.
	tool string
	// command is the test binary and flags for it. pattern selects tests.
	command []string
	pattern string
	// workers is how many processes run at once; stall how long one may be silent.
	workers int
	stall   time.Duration

	mu struct {
		sync.Mutex
		queue   []string       // tests to run
		alone   []string       // those that are to have a process of their own
		tries   map[string]int // how often a test was run without a verdict
		next    int            // number of the next log
		running int            // processes
	}
	idle *sync.Cond // signalled when a process has ended; its lock is mu
}

// A process has at most so many tests, so that not much is lost with it.
const most = 8

func (s *suite) name() string {
	if s.tool == "" {
		return s.pkg
	}
	return s.pkg + "." + s.tool
}

// argv is the command line that runs these tests.
func (s *suite) argv(tests []string) []string {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	a := slices.Concat(s.command[:1], []string{"-test.v", "-test.timeout=0", "-test.run=^(" + strings.Join(quoted, "|") + ")$"}, s.command[1:])
	if s.tool == "" {
		return a
	}
	before := []string{"compute-sanitizer", "--tool", s.tool}
	if s.tool == "memcheck" {
		// A driver call that fails is no fault of a kernel's: one asks for parameters until there are no more.
		before = append(before, "--report-api-errors", "no")
	}
	return append(before, a...)
}

// list returns the names of the binary's tests that match.
func (s *suite) list(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.command[0], "-test.list", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", s.command[0], err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if isTest.MatchString(line) {
			names = append(names, line)
		}
	}
	return names, nil
}

var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)[A-Za-z0-9_]*$`)

// run runs the tests. The error says which failed, or were not run when ctx ended.
func (s *suite) run(ctx context.Context) (summary string, err error) {
	all, err := s.list(ctx, ".")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(s.dir, s.name()+".list"), []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
		return "", err
	}
	wanted, err := s.list(ctx, s.pattern)
	if err != nil {
		return "", err
	}
	before, err := s.settled()
	if err != nil {
		return "", err
	}
	s.idle = sync.NewCond(&s.mu)
	s.mu.tries = map[string]int{}
	for _, t := range wanted {
		if _, ok := before[t]; !ok {
			s.mu.queue = append(s.mu.queue, t)
		}
	}
	var wg sync.WaitGroup
	faults := make([]error, max(1, s.workers))
	for i := range faults {
		wg.Go(func() { faults[i] = s.work(ctx) })
	}
	wg.Wait()
	after, err := s.settled()
	if err != nil {
		return "", errors.Join(append(faults, err)...)
	}
	return s.verdict(wanted, after, errors.Join(faults...))
}

// verdict counts how the wanted tests ended.
func (s *suite) verdict(wanted []string, ended map[string]Test, err error) (string, error) {
	n := map[string]int{}
	var failed, missing []string
	for _, name := range wanted {
		t, ok := ended[name]
		switch {
		case !ok:
			missing = append(missing, name)
		case t.Result == "fail":
			failed = append(failed, name)
		default:
			n[t.Result]++
		}
	}
	summary := fmt.Sprintf("%d passed, %d skipped, %d failed", n["pass"], n["skip"], len(failed))
	if len(failed) > 0 {
		err = errors.Join(fmt.Errorf("failed: %s", strings.Join(failed, ", ")), err)
	}
	if len(missing) > 0 {
		err = errors.Join(err, fmt.Errorf("not run: %s", strings.Join(missing, ", ")))
	}
	return summary, err
}

// settled returns what the folder's logs say of the tests.
func (s *suite) settled() (map[string]Test, error) {
	r, err := readFolder(s.dir)
	if err != nil {
		return nil, err
	}
	logs, err := r.logs()
	if err != nil {
		return nil, err
	}
	of := map[string]Test{}
	for _, t := range merge(slices.DeleteFunc(logs, func(l testLog) bool { return l.pkg != s.pkg || l.tool != s.tool })) {
		of[t.Name] = t
	}
	return of, nil
}

// work runs processes until there is nothing left to run.
func (s *suite) work(ctx context.Context) error {
	for {
		tests := s.take(ctx)
		if tests == nil {
			return nil
		}
		err := s.process(ctx, tests)
		s.mu.Lock()
		s.mu.running--
		s.mu.Unlock()
		s.idle.Broadcast()
		if err != nil {
			return err
		}
	}
}

// take returns the tests of the next process, nil when all have run: a process that is running may yet have others run again.
func (s *suite) take(ctx context.Context) (tests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		q := &s.mu.queue
		n := min(most, max(1, len(*q)/(2*max(1, s.workers))), len(*q))
		if n == 0 {
			q, n = &s.mu.alone, min(1, len(s.mu.alone))
		}
		switch {
		case ctx.Err() != nil, n == 0 && s.mu.running == 0:
			return nil
		case n > 0:
			tests, *q = slices.Clone((*q)[:n]), (*q)[n:]
			s.mu.running++
			return tests
		}
		s.idle.Wait()
	}
}

// process runs some tests, and puts back those that it leaves without a verdict.
func (s *suite) process(ctx context.Context, tests []string) error {
	log, err := s.newLog()
	if err != nil {
		return err
	}
	ran := execute(ctx, s.argv(tests), log, s.stall)
	if err := log.Close(); err != nil {
		return err
	}
	text, err := os.ReadFile(log.Name())
	if err != nil {
		return err
	}
	l := parseLog(s.pkg, s.tool, text)
	if ran != nil && !l.unended() && !l.untouched && !slices.ContainsFunc(l.tests, func(t Test) bool { return t.Result == "fail" }) {
		// It failed, and no test says so: nobody is to think it passed.
		f, err := os.OpenFile(log.Name(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(note(f, "%v", ran), f.Close()); err != nil {
			return err
		}
		if text, err = os.ReadFile(log.Name()); err != nil {
			return err
		}
		l = parseLog(s.pkg, s.tool, text)
	}
	verdicts := map[string]Test{}
	for _, t := range merge([]testLog{l}) {
		verdicts[t.Name] = t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tests {
		v, ok := verdicts[t]
		if ok && !v.suspect {
			continue
		}
		if s.mu.tries[t]++; s.mu.tries[t] < 2 {
			s.mu.alone = append(s.mu.alone, t)
		}
	}
	return nil
}

// newLog opens the next log.
func (s *suite) newLog() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.mu.next++
		path := filepath.Join(s.dir, fmt.Sprintf("%s.%d.log", s.name(), s.mu.next))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}
