// Command cubins compiles the PTX in the repository to machine code, for builds to have in them:
//
//	cubins PTXAS PTX TO CAPABILITY...    writes TO/sm_90/CODEC.tar.zst of the modules in PTX/CODEC.ptx.zst, for each compute capability such as 90
//
// Files that are of the same PTX already stay as they are.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("cubins: ")
	if len(os.Args) < 5 {
		log.Fatal("usage: cubins PTXAS PTX TO CAPABILITY...")
	}
	if err := compile(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		log.Fatal(err)
	}
}

func compile(ptxas, from, to string, capabilities []string) error {
	files, err := filepath.Glob(filepath.Join(from, "*"+bundle.Ext))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s: no *%s file", from, bundle.Ext)
	}
	for _, capability := range capabilities {
		for _, file := range files {
			target := filepath.Join(to, "sm_"+capability, strings.TrimSuffix(filepath.Base(file), bundle.Ext)+bundle.MachineExt)
			if err := renew(ptxas, file, target, "sm_"+capability); err != nil {
				return fmt.Errorf("%s: %w", target, err)
			}
		}
	}
	return nil
}

// renew writes the machine code of a bundle, unless it is there.
func renew(ptxas, file, target, arch string) error {
	packed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(target); err == nil {
		if _, err := bundle.UnpackMachine(old, packed); err == nil {
			return nil
		}
	}
	modules, err := bundle.Unpack(packed)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "cubins")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var mu sync.Mutex // guards compiled and failed
	compiled, failed := map[string][]byte{}, []error{}
	var all sync.WaitGroup
	processors := make(chan struct{}, runtime.NumCPU())
	for name, module := range modules {
		all.Go(func() {
			processors <- struct{}{}
			defer func() { <-processors }()
			code, err := assemble(ptxas, arch, filepath.Join(temp, name), module.Text())
			mu.Lock()
			defer mu.Unlock()
			if compiled[name] = code; err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	archive, err := bundle.Machine(packed, compiled)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	zstd := exec.Command("zstd", "-19", "--long=26", "--no-check", fmt.Sprint("--stream-size=", len(archive)), "-q", "-f", "-o", target)
	zstd.Stdin, zstd.Stderr = bytes.NewReader(archive), os.Stderr
	if err := zstd.Run(); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	fmt.Println(target)
	return nil
}

// assemble returns the machine code of a module. It uses two files that begin with path.
func assemble(ptxas, arch, path string, text []byte) ([]byte, error) {
	source, code := path+".ptx", path+".cubin"
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(ptxas, "-O3", "-arch="+arch, "-o", code, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ptxas: %w: %s", err, out)
	}
	return os.ReadFile(code)
}
