//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
	"github.com/tensorcache/tensorcache/serve"
)

// The model of several processes with owners that are killed, too. The next owner begins with the newest version that anybody has
// brought of each row, so that versions never go back. Rows of process 0 are updated by the owner, those of process 1 by the test. The other
// processes are killed in the middle of their updates: nobody knows whether these still happen, and in which order with the next one's, so their
// rows must be whole and brought by somebody, but may go back.
const soakKept = 2 // processes whose rows do not go back

// soaker reads and updates rows of the model in one goroutine.
type soaker struct {
	*model
	cache *cache.Cache
	rand  *rand.Rand
	seen  [modelCapacity]int64 // newest version that was read
}

func newSoaker(m *model, c *cache.Cache, seed uint64) *soaker {
	return &soaker{model: m, cache: c, rand: rand.New(rand.NewPCG(seed, seed))}
}

// gather reads random rows. Gathers succeed whether there is an owner or not.
func (s *soaker) gather() error {
	rows, least, out := make([]int64, s.batch), make([]int64, s.batch), make([]byte, s.batch*modelRowBytes)
	length := s.cache.Rows(0)
	for i := range rows {
		row := s.rand.Int64N(length)
		rows[i] = row
		if of := int(row % modelProcesses); of < soakKept {
			least[i] = s.seen[row]
			if of == s.process {
				least[i] = max(least[i], s.done[row].Load())
			}
		}
	}
	if err := s.cache.Gather(context.Background(), cache.Request{Rows: rows, Out: out}); err != nil {
		return err
	}
	want := make([]byte, modelRowBytes)
	for i, row := range rows {
		got := out[i*modelRowBytes:][:modelRowBytes]
		v := versionOf(got)
		if newest := s.begun[row].Load(); v < least[i] || v > newest {
			return fmt.Errorf("row %d reads as version %d, want %d to %d", row, v, least[i], newest)
		}
		if versioned(want, row, v); !bytes.Equal(got, want) {
			return fmt.Errorf("row %d is no version of it: %x, want version %d, %x", row, got, v, want)
		}
		s.seen[row] = v
	}
	return nil
}

// step gathers, and updates now and then. Updates may fail because there is no owner.
func (s *soaker) step(updates bool) error {
	if err := s.gather(); err != nil {
		return fmt.Errorf("process %d: %w", s.process, err)
	}
	if updates && s.rand.IntN(4) == 0 {
		if err := s.update(s.cache, s.rand); err != nil && !errors.Is(err, cache.ErrOwner) {
			return fmt.Errorf("process %d: %w", s.process, err)
		}
	}
	return nil
}

func init() {
	// soakown BACKEND ADDRESS FILE SEED [TIER]: owns the model's cache, reads, updates and changes it until it is killed. With a tier the cache's memory
	// outlives it, in the folder of FILE: the next owner begins with what this one leaves, not with the model.
	roles["soakown"] = func(p *parent, args []string) error {
		m, err := openModel(args[2], 0)
		if err != nil {
			return err
		}
		o, err := m.options()
		if err != nil {
			return err
		}
		o.Host.Tier, o.Devices.Backend = cache.Packed, cache.Backend(args[0])
		if len(args) > 4 {
			table, err := cache.Open(args[2] + ".npy")
			if err != nil {
				return err
			}
			o.Tables = []cache.Table{table.WithName("model").WithCapacity(modelCapacity)}
			o.Host.Tier, o.State = cache.HostTier(args[4]), filepath.Join(filepath.Dir(args[2]), "state")
		}
		_, failed := os.Stat(filepath.Join(o.State, "manifest"))
		var log bytes.Buffer
		if o.State != "" {
			o.Telemetry.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}
		c, err := cache.New(o)
		if err != nil {
			return err
		}
		if o.State != "" && failed == nil && !strings.Contains(log.String(), "state is taken over") {
			return fmt.Errorf("owner %s has not taken over what there was: %q", args[3], log.String())
		}
		if _, err := serve.Listen(c, serve.Options{Address: args[1], StoppedAfter: time.Minute}); err != nil {
			return err
		}
		p.say("ready")
		seed, _ := strconv.Atoi(args[3])
		s, budget := newSoaker(m, c, uint64(seed)), int64(modelBudget)
		for {
			switch s.rand.IntN(50) {
			case 0:
				budget = min(budget+1<<10, 1<<20)
				err = setBudget(c, budget-s.rand.Int64N(3)*10<<10)
			case 1:
				err = c.Invalidate(0, []int64{s.rand.Int64N(modelRows)})
			default:
				err = s.step(true)
			}
			if err != nil {
				return err
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	// soak ADDRESS FILE PROCESS SEED: reads and updates until it is killed.
	roles["soak"] = func(p *parent, args []string) error {
		process, _ := strconv.Atoi(args[2])
		seed, _ := strconv.Atoi(args[3])
		m, err := openModel(args[1], process)
		if err != nil {
			return err
		}
		var c *cache.Cache
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // the owner may be killed meanwhile
			c, err = cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "soak " + args[2]})
			if err == nil {
				break
			}
			if !errors.Is(err, cache.ErrOwner) || time.Now().After(end) {
				return err
			}
		}
		p.say("attached")
		failed := make(chan error)
		for i := range 3 {
			s := newSoaker(m, c, uint64(seed+i))
			go func() {
				for {
					if err := s.step(i == 0); err != nil {
						failed <- err
						return
					}
				}
			}()
		}
		return <-failed
	}
}

// writeModel writes the rows of the model's source to an .npy file.
func writeModel(t testing.TB, path string) {
	all := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", modelRows, modelRowBytes/4))
	row := make([]byte, modelRowBytes)
	for i := range int64(modelRows) {
		versioned(row, i, 0)
		all = append(all, row...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// killOwnerUpdating kills owners that are read and updated by several processes at the time, and checks what these read then, and of the next owner. With a
// tier the next owner takes over what there is of it, and some owners are killed while they do so.
func killOwnerUpdating(t *testing.T, backend cache.Backend, owners int, tier cache.HostTier) {
	folder := t.TempDir()
	if tier != "" {
		folder = tmpfstest.Folder(t)
		writeModel(t, filepath.Join(folder, "model.npy"))
	}
	file, address := filepath.Join(folder, "model"), "unix:"+filepath.Join(folder, "s")
	m, err := openModel(file, 1)
	if err != nil {
		t.Fatal(err)
	}
	var c *cache.Cache
	var threads sync.WaitGroup
	var ended atomic.Bool
	defer threads.Wait()
	defer ended.Store(true)
	failed := make(chan error, 10)
	var gathers, updates, refused atomic.Int64
	r := rand.New(rand.NewPCG(3, 3))
	before, early := int64(0), 0
	for n := range owners {
		role := []string{"soakown", string(backend), address, file, strconv.Itoa(n)}
		if tier != "" {
			role = append(role, string(tier))
			if n > 0 && n%3 == 0 {
				hasty := start(t, role...)
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
				hasty.kill()
				early++
			}
		}
		owner := start(t, role...)
		owner.expect("ready")
		if n == 0 {
			if c, err = cache.Attach(ctx, address, cache.AttachOptions{Name: "keeper"}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			for i := range 2 {
				s := newSoaker(m, c, uint64(i))
				threads.Go(func() {
					for !ended.Load() {
						if err := s.gather(); err != nil {
							failed <- err
							return
						}
						gathers.Add(1)
						if i > 0 {
							continue
						}
						switch err := s.update(c, s.rand); {
						case err == nil:
							updates.Add(1)
						case errors.Is(err, cache.ErrOwner):
							refused.Add(1)
							time.Sleep(time.Millisecond)
						default:
							failed <- err
							return
						}
					}
				})
			}
		}
		if n == 1 {
			before = statefolder.Bytes(filepath.Join(folder, "state"))
		}
		until(t, "the test is attached", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError == "" })
		other := start(t, "soak", address, file, strconv.Itoa(soakKept), strconv.Itoa(n))
		other.expect("attached")
		passed := func(of *atomic.Int64, more int64) func() bool {
			want := of.Load() + more
			return func() bool {
				select {
				case err := <-failed:
					t.Fatal(err)
				default:
				}
				return of.Load() >= want
			}
		}
		until(t, "updates go on", passed(&updates, 5))
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		owner.kill()
		until(t, "updates are refused", passed(&refused, 1))
		until(t, "reads go on", passed(&gathers, 20))
		other.cmd.Process.Kill()
		if said, err := io.ReadAll(other.out); err != nil || len(said) > 0 {
			t.Fatalf("the other client: %v, %s", err, said)
		}
	}
	if tier != "" {
		after := statefolder.Bytes(filepath.Join(folder, "state"))
		if after > 2*before {
			t.Errorf("the folder has %d bytes, and had %d", after, before)
		}
		t.Logf("%d owners more were killed while they began; the folder had %d bytes, and has %d", early, before, after)
	}
	t.Logf("%d owners killed; %d Gathers, %d updates, %d refused", owners, gathers.Load(), updates.Load(), refused.Load())
}

// TestOwner_KilledUpdating: what is read when an owner is killed in the middle of updates, and of the next owner, is old or new, never a mixture, and not older
// than what was read before.
func TestOwner_KilledUpdating(t *testing.T) { killOwnerUpdating(t, cache.BackendHost, 5, "") }

// TestOwner_KilledAndTakenOver: the next owner has every update that has returned, also of owners that are killed at any moment, and the test of them does not wait for tables to be loaded.
func TestOwner_KilledAndTakenOver(t *testing.T) {
	t.Run("in place", func(t *testing.T) { killOwnerUpdating(t, cache.BackendHost, 6, cache.InPlace) })
	t.Run("packed", func(t *testing.T) { killOwnerUpdating(t, cache.BackendHost, 6, cache.Packed) })
}

// TestGPU_OwnerKilledAndTakenOver is TestOwner_KilledAndTakenOver on a GPU, whose memory ends with the owner.
func TestGPU_OwnerKilledAndTakenOver(t *testing.T) {
	gputest.Require(t)
	killOwnerUpdating(t, cache.BackendCUDA, gputest.Few(8, 2), cache.InPlace)
}

// TestGPU_OwnerKilledUpdating is TestOwner_KilledUpdating on a GPU.
func TestGPU_OwnerKilledUpdating(t *testing.T) {
	gputest.Require(t)
	killOwnerUpdating(t, cache.BackendCUDA, gputest.Few(8, 2), "")
}
