package redistest

import "syscall"

// dieWithParent has servers end with a test that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
