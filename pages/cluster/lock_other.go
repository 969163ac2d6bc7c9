//go:build !unix

package cluster

import "os"

// tryLock does nothing: on this system nothing keeps two processes from one folder.
func tryLock(*os.File) error { return nil }
