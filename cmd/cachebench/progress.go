package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// progress shows the stage of a command in a line of a terminal, and nothing elsewhere. It is an experiment.Progress.
type progress struct {
	terminal io.Writer // nil: none
	name     string
	drawn    time.Time
	steps    int

	mu   sync.Mutex // guards done and drawn in Step, which several goroutines may call
	done int
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{terminal: f}
}

// Stage implements experiment.Progress.
func (p *progress) Stage(name string, steps int) {
	p.name, p.done, p.steps = name, 0, steps
	p.draw()
}

// Step implements experiment.Progress.
func (p *progress) Step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if time.Since(p.drawn) > 100*time.Millisecond {
		p.draw()
	}
}

func (p *progress) draw() {
	p.close()
	if p.terminal == nil {
		return
	}
	p.drawn = time.Now()
	fmt.Fprint(p.terminal, p.name)
	if p.steps > 0 {
		fmt.Fprintf(p.terminal, " %d/%d", p.done, p.steps)
	}
}

// close clears the line.
func (p *progress) close() {
	if p.terminal != nil {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// withProgress shows the stages of some work.
func withProgress[T any](cmd *cobra.Command, work func(*progress) (T, error)) (T, error) {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	return work(bar)
}
