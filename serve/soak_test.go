//go:build linux && long

package serve_test

import (
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
)

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
		go func() {
			line, err := out.ReadString('\n')
			if err == nil || !c.killed.Load() {
				failed <- fmt.Sprintf("a child that says %q has ended", strings.TrimSpace(line))
			}
		}()
		return c
	}
	owner := minded(begin("soakown", "host", address, file), "ready")
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
			next := begin("soakown", "host", address, file) // with the versions that there are when it starts
			if r.IntN(2) == 0 {                             // a client ends while there is no owner
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
	notGrown(t, before, 4<<20+(kills+owners)*1<<10) // of each child the test keeps that it has ended
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if one := s.Tables[0]; one.Lookups != one.Gathers*modelBatch {
		t.Errorf("%d lookups in %d Gathers of %d rows", one.Lookups, one.Gathers, modelBatch)
	}
	t.Logf("%d owners and %d clients; the test looked up %d rows", owners, kills, s.Tables[0].Lookups)
}
