package cache_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

const encodedRows, encodedRowBytes = 3000, 256

// openEncoded opens a resident table, and returns a plain array of its rows, too. Updates of all rows take two batches, which devices that are no processors
// encode themselves.
func openEncoded(t *testing.T, codec cache.Codec, devices int, backend cache.Backend) (*cache.Cache, []byte) {
	now := residentRows(encodedRows, encodedRowBytes, rand.New(rand.NewPCG(22, 60)))
	return openResident(t, bytes.Clone(now), encodedRowBytes, codec, cache.ResidentOptions{Target: 64, MaxOverflow: 1}, devices, func(o *cache.Options) {
		o.Host.Overlay, o.Devices.Backend = 6<<20, backend // an eighth of the overlay holds 2,048 rows
	}), now
}

// updatesEncoded compares a table with a plain array after Updates of all its rows, and of as many in any order, some twice.
func updatesEncoded(t *testing.T, c *cache.Cache, now []byte) {
	r := rand.New(rand.NewPCG(22, 61))
	for round := range gputest.Few(4, 2) {
		ids, fresh := make([]int64, encodedRows), residentRows(encodedRows, encodedRowBytes, r)
		for i := range ids {
			if ids[i] = int64(i); round%2 == 1 {
				ids[i] = int64(r.IntN(encodedRows))
			}
			copy(now[int(ids[i])*encodedRowBytes:], fresh[i*encodedRowBytes:][:encodedRowBytes])
		}
		if err := c.Update(ctx, 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		clear(fresh) // it is the caller's again
		checkModel(t, c, now, encodedRowBytes)
	}
	checkResidentStats(t, c, now, encodedRowBytes)
}

// Rows of long Updates are encoded by a device where there is one, to what processors make of them.
func TestResident_UpdatesEncodedByADevice(t *testing.T) {
	for _, codec := range []cache.Codec{"ibp4", "rank", "none"} {
		f := openFaulty(t, nil)
		f.kind = "emulated"
		var encodes atomic.Int64
		f.launched = func(_ int, kernel string) {
			if kernel == "encode" {
				encodes.Add(1)
			}
		}
		c, now := openEncoded(t, codec, 2, cache.BackendHost)
		before := encodes.Load()
		updatesEncoded(t, c, now)
		if ran := encodes.Load() - before; (ran > 0) != (codec != "none") {
			t.Errorf("codec %s: the devices have encoded %d times", codec, ran)
		}
	}
}

// A device that is lost while it encodes leaves rows behind that are encoded or not: the next device encodes them from what the caller gave. Without
// another one the Update fails.
func TestResident_LosesTheDeviceThatEncodes(t *testing.T) {
	want, _ := openEncoded(t, "ibp4", 1, cache.BackendHost)
	ids, fresh := allRows(encodedRows), residentRows(encodedRows, encodedRowBytes, rand.New(rand.NewPCG(22, 62)))
	if err := want.Update(ctx, 0, ids, fresh); err != nil {
		t.Fatal(err)
	}
	for _, devices := range []int{1, 3} {
		f := openFaulty(t, nil)
		f.kind = "emulated"
		c, _ := openEncoded(t, "ibp4", devices, cache.BackendHost)
		var last atomic.Int64
		f.launched = func(device int, kernel string) {
			if kernel == "encode" {
				last.Store(int64(device))
				if device == 0 {
					f.lose(0)
				}
			}
		}
		err := c.Update(ctx, 0, ids, fresh)
		if devices == 1 {
			if !errors.Is(err, errScriptedLoss) {
				t.Errorf("the only device is lost: %v", err)
			}
			continue
		}
		if err != nil || last.Load() != 1 {
			t.Errorf("device %d was the last that encoded, %v", last.Load(), err)
		}
		of, _ := want.Explain(0, ids)
		got, err := c.Explain(0, ids)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ids {
			if got[i].StoredBytes != of[i].StoredBytes {
				t.Fatalf("row %d has %d stored bytes, want %d", i, got[i].StoredBytes, of[i].StoredBytes)
			}
		}
	}
}
