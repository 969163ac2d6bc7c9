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

// progress shows the stage of a command in a line of a terminal, and for how long it has been under way. Elsewhere it shows nothing. It is
// an experiment.Progress.
type progress struct {
	terminal io.Writer // nil: none

	mu struct {
		sync.Mutex
		name         string
		done, steps  int
		begun, drawn time.Time
		again        *time.Timer // draws, until the line is cleared
	}
}

// Of a line that is drawn again: at the earliest after a step, and at the latest.
const (
	drawAfter = 100 * time.Millisecond
	drawAgain = 500 * time.Millisecond
)

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{terminal: f}
}

// Stage implements experiment.Progress.
func (p *progress) Stage(name string, steps int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.name, p.mu.done, p.mu.steps, p.mu.begun = name, 0, steps, time.Now()
	p.drawLocked()
}

// Step implements experiment.Progress.
func (p *progress) Step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.done++
	if time.Since(p.mu.drawn) > drawAfter {
		p.drawLocked()
	}
}

func (p *progress) drawLocked() {
	p.clearLocked()
	if p.terminal == nil {
		return
	}
	p.mu.drawn = time.Now()
	line := p.mu.name
	if p.mu.steps > 0 {
		line += fmt.Sprintf(" %d/%d", p.mu.done, p.mu.steps)
	}
	if took := time.Since(p.mu.begun).Round(time.Second); took > 0 {
		line += fmt.Sprintf(", %v", took)
	}
	fmt.Fprint(p.terminal, line)
	p.mu.again = time.AfterFunc(drawAgain, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.again != nil {
			p.drawLocked()
		}
	})
}

func (p *progress) clearLocked() {
	if p.mu.again != nil {
		p.mu.again.Stop()
		p.mu.again = nil
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// close clears the line.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}

// withProgress shows the stages of some work.
func withProgress[T any](cmd *cobra.Command, work func(*progress) (T, error)) (T, error) {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	return work(bar)
}
