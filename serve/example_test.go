//go:build linux

package serve_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// The owner of a cache lets other processes attach. Here both are one process.
func Example() {
	table, err := cache.FromSlice("users", []float32{1, 2, 3, 4, 5, 6}, 2)
	if err != nil {
		log.Fatal(err)
	}
	owned, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, GPUMemory: 1 << 20, Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer owned.Close()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	server, err := serve.Listen(owned, serve.Options{Address: "unix:" + filepath.Join(folder, "users.sock")})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	// In another process:
	ctx := context.Background()
	attached, err := cache.Attach(ctx, server.Address(), cache.AttachOptions{Name: "trainer"})
	if err != nil {
		log.Fatal(err)
	}
	defer attached.Close()
	rows := make([]float32, 2*2)
	if err := attached.Gather(ctx, cache.Request{Rows: []int64{2, 0}, Out: cache.AsBytes(rows)}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows)
	// Output: [5 6 1 2]
}
