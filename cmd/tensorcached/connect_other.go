//go:build !linux

package main

import "github.com/spf13/cobra"

// remotes are none: they need the socket of --listen, which other systems than Linux do not have.
func remotes() []*cobra.Command { return nil }
