//go:build !linux

package main

import (
	"context"
	"os/exec"
)

func command(ctx context.Context, argv []string) *exec.Cmd {
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

func killRest(*exec.Cmd) {}
