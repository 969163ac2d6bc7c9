package main

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// command is a process in a group of its own. When ctx ends, SIGQUIT has the group print its goroutines, and 10 s later the process
// is killed. The process is also killed if this program is.
func command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// killRest kills what a process that has ended left behind.
func killRest(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
