//go:build linux && long

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// The soak uses the model of several processes with owners that are killed, too. The next owner begins with the newest version that anybody has
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
	rows, least, out := make([]int64, modelBatch), make([]int64, modelBatch), make([]byte, modelBatch*modelRowBytes)
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
	if err := s.cache.Gather(context.Background(), 0, rows, out); err != nil {
		return err
	}
	want := make([]byte, modelRowBytes)
	for i, row := range rows {
		got := out[i*modelRowBytes:][:modelRowBytes]
		v := int64(binary.LittleEndian.Uint32(got))
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
	// soakown ADDRESS FILE SEED: owns the model's cache, reads, updates and changes it until it is killed.
	roles["soakown"] = func(p *parent, args []string) error {
		m, err := openModel(args[1], 0)
		if err != nil {
			return err
		}
		o, err := m.options()
		if err != nil {
			return err
		}
		o.Host.Tier = cache.Packed
		c, err := cache.New(o)
		if err != nil {
			return err
		}
		if _, err := serve.Listen(c, serve.Options{Address: args[0], StoppedAfter: time.Minute}); err != nil {
			return err
		}
		p.say("ready")
		seed, _ := strconv.Atoi(args[2])
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

// soakFor returns how long a soak takes: as given, or as many seconds as the variable says.
func soakFor(t *testing.T, lasts time.Duration) time.Duration {
	if v := os.Getenv("TENSORCACHE_SOAK_SECONDS"); v != "" {
		seconds, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		lasts = time.Duration(seconds) * time.Second
	}
	return lasts
}

// TestLong_Soak: for ten minutes clients of the model come, gather and update, while they and their owner are killed at any moment, some of them when
// they are stopped. Every Gather returns whole rows, none of which is older than what the same goroutine has read. This process is a client all the time:
// it attaches to every next owner and does not grow.
func TestLong_Soak(t *testing.T) {
	lasts := soakFor(t, 10*time.Minute)
	folder := t.TempDir()
	file, address := filepath.Join(folder, "model"), "unix:"+filepath.Join(folder, "s")
	m, err := openModel(file, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	failed := make(chan string, 100)
	type victim struct {
		*child
		killed *atomic.Bool
	}
	begin := func(role ...string) victim {
		return victim{start(t, append(role, strconv.Itoa(int(r.Int32())))...), new(atomic.Bool)}
	}
	minded := func(c victim, first string) victim { // what a child says later, and its end before it is killed, are errors
		c.expect(first)
		out := c.out
		c.out = nil // the test keeps all children to its end, but not their buffers
		go func() {
			line, err := out.ReadString('\n')
			if err == nil || !c.killed.Load() {
				failed <- fmt.Sprintf("a child that says %q has ended", strings.TrimSpace(line))
			}
		}()
		return c
	}
	owner := minded(begin("soakown", address, file), "ready")
	c, err := cache.Attach(ctx, address, cache.AttachOptions{Name: "keeper"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var threads sync.WaitGroup
	var ended atomic.Bool
	for i := range 2 {
		s := newSoaker(m, c, uint64(i))
		threads.Go(func() {
			for !ended.Load() {
				if err := s.step(i == 0); err != nil {
					failed <- err.Error()
					return
				}
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	defer threads.Wait()
	defer ended.Store(true)
	attached := func() bool { s, err := c.Stats(); return err == nil && s.OwnerError == "" }
	time.Sleep(time.Second)
	before := footprintNow(t)
	var clients []victim
	owners, kills := 1, 0
	kill := func(c victim) {
		if r.IntN(4) == 0 {
			c.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		c.killed.Store(true)
		c.kill()
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		for len(clients) < 3 {
			clients = append(clients, minded(begin("soak", address, file, strconv.Itoa(soakKept+r.IntN(modelProcesses-soakKept))), "attached"))
		}
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		if r.IntN(10) == 0 {
			kill(owner)
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			next := begin("soakown", address, file) // with the versions that there are when it starts
			if r.IntN(2) == 0 {                     // a client ends while there is no owner
				kill(clients[0])
				clients, kills = clients[1:], kills+1
			}
			owner, owners = minded(next, "ready"), owners+1
			until(t, "the test has attached again", attached)
		} else {
			i := r.IntN(len(clients))
			kill(clients[i])
			clients, kills = append(clients[:i], clients[i+1:]...), kills+1
		}
		select {
		case what := <-failed:
			t.Fatal(what)
		default:
		}
	}
	for _, c := range clients {
		kill(c)
	}
	ended.Store(true)
	threads.Wait()
	before.Mapped += 2                              // a budget may have brought a slab and a hashmap
	notGrown(t, before, 4<<20+(kills+owners)*4<<10) // of each child the test keeps the command
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if one := s.Tables[0]; one.Lookups != one.Gathers*modelBatch {
		t.Errorf("%d lookups in %d Gathers of %d rows", one.Lookups, one.Gathers, modelBatch)
	}
	t.Logf("%d owners and %d clients; the test looked up %d rows", owners, kills, s.Tables[0].Lookups)
}
