//go:build cuda && linux

package serve_test

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

func init() {
	// opens: says whether a GPU opens.
	roles["opens"] = func(p *parent, args []string) error {
		_, err := openDevice()
		if err == nil {
			p.say("opened")
		}
		return err
	}
}

// TestGPU_TwoClients measures two clients on one GPU beside one alone: by themselves, when they take turns, and with NVIDIA's multi-process service, where it
// can be started. Nothing else may run on the GPU.
func TestGPU_TwoClients(t *testing.T) {
	gputest.Require(t)
	t.Run("turns", twoClients)
	t.Run("service", func(t *testing.T) {
		if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
			t.Skip("there is no nvidia-cuda-mps-control")
		}
		dir := t.TempDir()
		t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
		t.Setenv("CUDA_MPS_LOG_DIRECTORY", dir)
		if out, err := exec.Command("nvidia-cuda-mps-control", "-d").CombinedOutput(); err != nil {
			t.Skipf("the service does not start: %v, %s", err, out)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // it was seen not to end
			defer cancel()
			quit := exec.CommandContext(ctx, "nvidia-cuda-mps-control")
			quit.WaitDelay = time.Second
			quit.Stdin = strings.NewReader("quit -t 10\n")
			if out, err := quit.CombinedOutput(); err != nil {
				t.Logf("the service does not end: %v, %s", err, out)
			}
		}()
		if line, err := start(t, "opens").out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "opened" {
			t.Skipf("no GPU opens with the service: %v, %s", err, line)
		}
		twoClients(t)
	})
}

func twoClients(t *testing.T) {
	rows, n := gputest.Few(4_000_000, 20_000), gputest.Few(200_000, 5000)
	address := ownRows(t, rows)
	seconds := strconv.FormatFloat(float64(gputest.Few(20, 0))/10, 'g', -1, 64)
	var both [2]*child
	for i := range both {
		both[i] = start(t, "take", address, strconv.Itoa(rows), strconv.Itoa(n), "0", "2", "2")
		both[i].takes()
	}
	rate := func(of ...*child) (sum float64) {
		for _, c := range of {
			c.say(seconds)
		}
		for _, c := range of {
			sum += c.takes().Rate
		}
		return sum
	}
	alone := (rate(both[0]) + rate(both[1])) / 2
	together := rate(both[:]...)
	t.Logf("batches of %d random rows of %d bytes, an eighth of them cached: a client alone %.1f M rows/s, two %.1f, %.2f times as many", n, wideBytes, alone/1e6, together/1e6, together/alone)
	if together == 0 || alone == 0 {
		t.Error("a client reads nothing")
	}
	for _, c := range both {
		c.kill()
	}
}
