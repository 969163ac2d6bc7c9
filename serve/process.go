//go:build linux

package serve

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/tensorcache/tensorcache/internal/wire"
)

// process is the process of a client. It implements sharing.Process.
type process struct {
	wire.Process
	name string
}

// String implements sharing.Process.
func (p process) String() string {
	if p.PID == 0 {
		return p.name
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.PID)
}

// processOf returns the process at the other end of a connection, or an error if it is not one of this process's user.
func processOf(c *net.UnixConn) (p process, err error) {
	if p.Process, err = wire.ProcessOf(c); errors.Is(err, wire.ErrProcessEnded) {
		return p, fmt.Errorf("serve: client: %w", err)
	} else if err != nil {
		return p, fmt.Errorf("serve: user of a client: %w", err)
	}
	if own := os.Geteuid(); p.UID != own {
		p.Close()
		return p, fmt.Errorf("serve: client's user (%d) must be the owner's (%d)", p.UID, own)
	}
	return p, nil
}
