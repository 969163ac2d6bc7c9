//go:build linux

package serve_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

func onGPU(o *cache.Options) { o.Devices.Backend = cache.BackendCUDA }

// TestGPU_Attach: an attached cache reads the rows of an owner's GPU.
func TestGPU_Attach(t *testing.T) {
	gputest.Require(t)
	const rows = 5000
	for name, change := range map[string]func(*cache.Options){
		"raw":     func(o *cache.Options) {},
		"ibp4":    func(o *cache.Options) { o.Codec = "ibp4" },
		"packed":  func(o *cache.Options) { o.Codec, o.Host.Tier = "ibp8", cache.Packed },
		"samples": func(o *cache.Options) { o.Refresh.Accesses, o.Refresh.Keys = 1, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); change(o) })
			a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
			r := rand.New(rand.NewPCG(1, 2))
			for range 10 {
				checkRows(t, a, rows, r)
			}
			if err := a.SetBudget(ctx, 300_000); err != nil { // new memory
				t.Error(err)
			}
			for range 10 {
				checkRows(t, a, rows, r)
			}
			if s, err := c.Stats(); err != nil || s.Clients[0].Gathers != 20 || s.Tables[0].Gathers != 20 {
				t.Errorf("%v, %+v", err, s.Clients)
			}
		})
	}
}

// TestGPU_AttachPages runs tests of tables of pages on a GPU: the client's GPU waits for rows that the owner reads.
func TestGPU_AttachPages(t *testing.T) {
	gputest.Require(t)
	pagesOnGPU, pagesSteps = true, 20
	defer func() { pagesOnGPU, pagesSteps = false, 60 }()
	t.Run("rows", TestAttach_Pages)
	t.Run("fail", TestAttach_PagesFail)
}

// TestGPU_AttachScratch: batches that need more of the GPU's memory than the owner lets a client allocate, or than the client has asked for, fail with the reason, and
// others go on.
func TestGPU_AttachScratch(t *testing.T) {
	gputest.Require(t)
	const rows, columns, bag = 50, 2048, 20_000 // sums of runs, of 5 MB
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i / columns)
	}
	c := open(t, 1, func(o *cache.Options) {
		shared(o)
		table, err := cache.FromSlice("long", values, columns)
		if err != nil {
			t.Fatal(err)
		}
		o.Tables, o.Budget = []cache.Table{table}, int64(len(values))*2
		onGPU(o)
	})
	ids, out := make([]int64, bag), make([]float32, columns)
	for i := range ids {
		ids[i] = int64(i % rows)
	}
	sum := func(of *cache.Cache, n int) error {
		return of.Gather(ctx, cache.Request{Rows: ids[:n], Out: cache.AsBytes(out), Pool: &cache.Pooling{Bag: n}})
	}
	if err := sum(c, bag); err != nil || out[5] != bag*(rows-1)/2 {
		t.Fatalf("the owner: %v, sum %v", err, out[5])
	}
	for whose, a := range map[string]*cache.Cache{
		"the owner's limit for a client":           attach(t, listen(t, c, serve.Options{MaxScratch: 1 << 20}), cache.AttachOptions{}),
		"the limit that this client has asked for": attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{Scratch: 1 << 20}),
	} {
		for range 3 {
			if err := sum(a, bag); err == nil || !strings.Contains(err.Error(), "must be within "+whose+" (1048576 bytes, of which ") {
				t.Fatalf("a batch of %d rows of %d bytes: %v", bag, columns*4, err)
			}
			if err := sum(a, rows); err != nil || out[7] != rows*(rows-1)/2 {
				t.Errorf("a smaller batch: %v, sum %v", err, out[7])
			}
		}
	}
}

// TestGPU_Enqueue: batches on streams of the client.
func TestGPU_Enqueue(t *testing.T) {
	d := gputest.Open(t)
	c := open(t, 1000, func(o *cache.Options) { shared(o); onGPU(o); o.Codec = "ibp8" })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	ids, err := d.AllocHost(8*100, "rows")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(ids)
	out, err := d.AllocHost(64*100, "output")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(out)
	for i := range 100 {
		ids.Bytes()[8*i] = byte(i)
	}
	b, err := a.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: ids, DeviceOut: out})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if got := int(out.Bytes()[64*i]) + 256*int(out.Bytes()[64*i+1]); got != i*8 {
			t.Fatalf("row %d begins with %d", i, got)
		}
	}
}

// TestGPU_Model: the model of several processes on a GPU.
func TestGPU_Model(t *testing.T) { modelOnGPU(t, "model", gputest.Few(96_000, 19_200), modelBatch) }

// TestGPU_ModelMillion is TestGPU_Model with batches that pass through the stages, until a million rows are looked up.
func TestGPU_ModelMillion(t *testing.T) {
	gputest.Require(t)
	millionModel(t, 4096, func(o *cache.Options) { onGPU(o); o.Host.Tier = cache.Packed })
}

// modelOnGPU runs the model with clients of a role.
func modelOnGPU(t *testing.T, role string, args ...any) {
	gputest.Require(t)
	for name, change := range map[string]func(*cache.Options){
		"in place": func(o *cache.Options) {}, "packed": func(o *cache.Options) { o.Host.Tier = cache.Packed }, "resident": resident,
	} {
		t.Run(name, func(t *testing.T) { runModel(t, func(o *cache.Options) { onGPU(o); change(o) }, role, args...) })
	}
}

// TestGPU_ClientKilled: clients that are killed while their kernels run leave nothing behind.
func TestGPU_ClientKilled(t *testing.T) {
	gputest.Require(t)
	killClients(t, 3, "gather", onGPU)
}

// TestGPU_OwnerKilled: clients go on reading the memory of a GPU whose owner is killed.
func TestGPU_OwnerKilled(t *testing.T) {
	gputest.Require(t)
	killOwner(t, "cuda")
}

// TestGPU_ResidentClientKilled is TestResident_ClientKilled on a GPU.
func TestGPU_ResidentClientKilled(t *testing.T) {
	gputest.Require(t)
	killClients(t, 2, "gather", func(o *cache.Options) { residentRows(o); onGPU(o) })
}

// TestGPU_ResidentPooled is TestResident_Pooled on a GPU.
func TestGPU_ResidentPooled(t *testing.T) {
	gputest.Require(t)
	pooledResident(t, onGPU)
}
