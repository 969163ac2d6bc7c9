package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// grace is how long a process has to print its goroutines before it is killed.
const grace = 10 * time.Second

// execute runs a command, its output appended to log, until it ends. When ctx does, or nothing was written for stall (0: for
// ever), the command and all that it started are asked for their goroutines by SIGQUIT, and killed after grace. The error says
// why it did not end well; a line of log says so too, unless it ended by itself.
func execute(ctx context.Context, argv []string, log *os.File, stall time.Duration) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	// Should this process be killed, so is the command: Linux counts the thread that started it, so that has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, note(log, "%v", err))
	}
	group := -cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	why := watch(ctx, log, stall, ended)
	if why == nil {
		err := <-ended
		_ = syscall.Kill(group, syscall.SIGKILL) // what it may have left behind
		if exit := new(exec.ExitError); errors.As(err, &exit) && !exit.Exited() {
			return errors.Join(err, note(log, "ended by %v", err))
		}
		return err
	}
	_ = syscall.Kill(group, syscall.SIGQUIT)
	select {
	case err := <-ended:
		ended <- err
	case <-time.After(grace):
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-ended
	return errors.Join(why, note(log, "%v", why))
}

// watch returns nil when the command has ended, which ended then still says, or why it is to be killed.
func watch(ctx context.Context, log *os.File, stall time.Duration, ended chan error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	size, since := int64(-1), time.Now()
	for {
		select {
		case err := <-ended:
			ended <- err
			return nil
		case <-ctx.Done():
			return errLimit
		case <-tick.C:
		}
		if f, err := log.Stat(); err != nil || f.Size() != size {
			since = time.Now()
			if err == nil {
				size = f.Size()
			}
		}
		if stall > 0 && time.Since(since) > stall {
			return fmt.Errorf("no output for %v", stall)
		}
	}
}
