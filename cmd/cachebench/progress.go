package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress shows the stages of a command on a terminal, and nothing elsewhere. It is an experiment.Progress.
type progress struct {
	bars *mpb.Progress // nil: silent
	bar  *mpb.Bar
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{bars: mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))}
}

// Stage implements experiment.Progress. A stage without steps shows as a spinner.
func (p *progress) Stage(name string, steps int) {
	if p.bars == nil {
		return
	}
	p.endStage()
	label := mpb.PrependDecorators(decor.Name(name, decor.WC{W: 28, C: decor.DindentRight}))
	if steps == 0 {
		p.bar = p.bars.New(0, mpb.SpinnerStyle(), label, mpb.BarRemoveOnComplete())
		return
	}
	p.bar = p.bars.AddBar(int64(steps), label, mpb.BarRemoveOnComplete(),
		mpb.AppendDecorators(decor.CountersNoUnit("%d/%d"), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 8}), "")))
}

// Step implements experiment.Progress.
func (p *progress) Step() {
	if p.bar != nil {
		p.bar.Increment()
	}
}

func (p *progress) endStage() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar = nil
	}
}

// close takes the last bar off the screen.
func (p *progress) close() {
	if p.bars != nil {
		p.endStage()
		p.bars.Wait()
	}
}

// withProgress shows the stages of some work.
func withProgress[T any](cmd *cobra.Command, work func(*progress) (T, error)) (T, error) {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	return work(bar)
}
