package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// run --resident serves every row from device memory, as its source has it, with the target given or chosen, from one device or several.
func TestRun_Buddy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags  string
		target int
	}{
		{"--resident 208 --codec ibp4", 208}, {"--codec ibp4 --devices 3", 208}, {"--resident auto --codec none", 256}, {"--resident 64 --codec none", 64},
		{"--codec auto --gpu-memory 80%", 0}, // none does not fit
	} {
		args := append([]string{"run", "--resident", "auto", "--device", "host", "--verify", "--json", "--features", realdata.Table(t, "reddit.npz"), "--batches", "5"}, strings.Fields(c.flags)...)
		r := decode[experiment.Result](t, succeed(t, args...))
		info, rows := r.Resident, r.Table.Rows
		if info == nil || r.Mismatches != 0 || r.VerifiedRows != r.Results.Lookups || r.Results.Misses != 0 || r.Cache.RowsCached != rows {
			t.Fatalf("%s: %+v, %d of %d rows differ, %d misses, %d rows cached", c.flags, info, r.Mismatches, r.VerifiedRows, r.Results.Misses, r.Cache.RowsCached)
		}
		if c.target != 0 && info.TargetBytes != c.target || info.DeviceBytes < rows*int64(info.TargetBytes+8) || info.DeviceBytes > r.Cache.BudgetBytes {
			t.Errorf("%s: %+v of a budget of %d", c.flags, info, r.Cache.BudgetBytes)
		}
		if over := 256 - info.TargetBytes; c.target == 64 && (info.OverflowRows != rows || info.OverflowBytes != rows*int64(over) || info.OverflowReads != r.Results.Lookups ||
			info.BuddyBytes < info.OverflowBytes) || over == 0 && info.BuddyBytes != 0 {
			t.Errorf("%s: %+v", c.flags, info)
		}
	}
	for buddy, onPeers := range map[string]bool{"host": false, "peer": true, "auto": true} {
		r := decode[experiment.Result](t, succeed(t, "run", "--resident", "64", "--device", "host", "--verify", "--json", "--features", realdata.Table(t, "ncf_user.npy"), "--batches", "5", "--codec", "none",
			"--devices", "2", "--buddy", buddy))
		if info := r.Resident; r.Mismatches != 0 || info.OverflowReads == 0 || info.BuddyBytes == 0 || (info.PeerBytes == info.BuddyBytes) != onPeers || (info.PeerBytes == 0) == onPeers {
			t.Errorf("--buddy %s: %+v, %d rows differ", buddy, info, r.Mismatches)
		}
	}
	// Of few rows that are judged, those of ibp4 seem to fit; of all rows, they do not.
	near := decode[experiment.Result](t, succeed(t, "run", "--resident", "auto", "--device", "host", "--json", "--batches", "5", "--gpu-memory", "760KiB", "--features", realdata.Table(t, "ncf_user.npy")))
	if near.Resident == nil || near.Resident.TargetBytes != 112 {
		t.Errorf("a codec near the limit: %+v", near.Resident)
	}
	both := decode[experiment.TablesResult](t, succeed(t, "run", "--resident", "auto", "--device", "host", "--verify", "--json", "--batches", "5",
		"--features", realdata.Table(t, "reddit.npz")+","+realdata.Table(t, "ncf_user.npy")))
	if a, b := both.Tables[0].Resident, both.Tables[1].Resident; a == nil || b == nil || both.Mismatches != 0 || both.Total.Hits != both.Total.Lookups {
		t.Errorf("two tables: %+v, %+v, %d rows differ", a, b, both.Mismatches)
	}
	for flags, want := range map[string]string{
		"--resident 20":                    `--resident ("20") must be auto, or bytes: a multiple of 16 up to 1048576`,
		"--buddy host":                     "--max-overflow and --buddy mean nothing without --resident",
		"--resident auto --max-overflow 2": "--max-overflow (2) must be 0 to 1",
		"--resident auto --buddy near":     `--buddy ("near") must be host, peer or auto`,
		"--resident auto --buddy peer":     "--buddy peer needs at least 2 devices: --devices or --gpus",
		"--resident auto --cold":           "--resident and --cold, --drift, --refresh-batches or --refresh-interval contradict each other: all rows stay in device memory",
		"--resident auto --gpu-memory 1%": "--gpu-memory (1%): cache: budget too small: table " + realdata.Table(t, "reddit.npz") + ":features, resident with at most 30 % of overflowing rows, needs slots of 192 B, 2196928 B of each device: " +
			"with this table alone GPUMemory (28119 B) must be at least 2197120 B",
		"--resident auto --attach unix:/run/no": "--device, --resident: --attach measures the cache as its owner has configured it",
	} {
		refuse(t, want, append([]string{"run", "--features", realdata.Table(t, "reddit.npz"), "--device", "host"}, strings.Fields(flags)...)...)
	}
}

// compress finds the targets that the paper's threshold gives.
func TestCompress_BuddyTargets(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"reddit.npz": "208 0.0000 1.231", "cora.npz": "272 0.1222 21.074", "pubmed_tx.npz": "304 0.2590 6.579",
	} {
		r := compress(t, "--features", realdata.Table(t, file), "--codec", "ibp4")
		if got := fmt.Sprintf("%d %.4f %.3f", r[0].Buddy.TargetBytes, r[0].Buddy.OverflowRatio, r[0].Buddy.CapacityGain); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
