// Package redistest starts redis-server for tests: one server, or a cluster of masters and replicas, in folders and on ports of its own.
// A test that needs it skips, with the reason, on machines without the program; if the environment variable TENSORCACHE_REQUIRE_REDIS is
// 1, it fails instead.
package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options are how servers are started. The zero value is three masters without replicas.
type Options struct {
	// Masters is the number of masters that share the slots: 3 if it is 0, no cluster but one server if it is -1.
	Masters int
	// Replicas is the number of replicas of each master.
	Replicas int
	// NodeTimeout is after how long without an answer the nodes hold one of them for dead; five seconds if it is 0.
	NodeTimeout time.Duration
	// TLS has certificate and key, PEM files, with which the servers speak TLS to clients, and only TLS.
	TLS struct{ Cert, Key, CA string }
	// Password is that of user default, "" for none. The test's Config must set it.
	Password string
	// Config are further lines of redis.conf.
	Config []string
}

// Cluster is servers that run until the test ends.
type Cluster struct {
	t testing.TB
	// Nodes are the masters, in the order of their slots, then the replicas: of the first master, of the second, and so on.
	Nodes []*Node
}

// Node is one server.
type Node struct {
	Addr    string // HOST:PORT
	ID      string // in its cluster
	t       testing.TB
	cmd     *exec.Cmd
	folder  string
	exited  chan struct{}
	stopped bool
}

const program = "redis-server"

// Start starts servers and waits until they serve. They end with the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("TENSORCACHE_REQUIRE_REDIS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("%s is not installed: %v", program, err)
	}
	single := o.Masters < 0
	masters := max(o.Masters, 1)
	if o.Masters == 0 {
		masters = 3
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 5 * time.Second
	}
	c := &Cluster{t: t}
	n := masters * (1 + o.Replicas)
	ports := freePorts(t, 2*n)
	id := func(i int) string { return fmt.Sprintf("%040x", i+1) }
	var nodes strings.Builder
	for i := range n {
		role, slots := "master -", ""
		if i < masters {
			slots = fmt.Sprintf(" %d-%d", i*16384/masters, (i+1)*16384/masters-1)
		} else {
			role = "slave " + id((i-masters)/o.Replicas)
		}
		fmt.Fprintf(&nodes, "%s 127.0.0.1:%d@%d %s 0 0 %d connected%s\n", id(i), ports[i], ports[n+i], role, i+1, slots)
	}
	for i := range n {
		node := &Node{t: t, ID: id(i), Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])), folder: t.TempDir()}
		port := fmt.Sprintf("port %d", ports[i])
		if o.TLS.Cert != "" {
			port = fmt.Sprintf("port 0\ntls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\ntls-replication yes\ntls-cluster yes\n", ports[i], o.TLS.Cert, o.TLS.Key, o.TLS.CA)
		}
		conf := port + "\nbind 127.0.0.1\nsave \"\"\nappendonly no\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n" + strings.Join(o.Config, "\n") + "\n"
		if !single {
			// The longer the time-out, the later nodes hear of each other's replicas: it is set when they have.
			conf += fmt.Sprintf("cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port %d\ncluster-node-timeout %d\n", ports[n+i], min(o.NodeTimeout, time.Second).Milliseconds())
			// Each node's own line says myself.
			own := strings.Replace(nodes.String(), id(i)+fmt.Sprintf(" 127.0.0.1:%d@%d ", ports[i], ports[n+i]), id(i)+fmt.Sprintf(" 127.0.0.1:%d@%d myself,", ports[i], ports[n+i]), 1)
			own += fmt.Sprintf("vars currentEpoch %d lastVoteEpoch 0\n", n)
			if err := os.WriteFile(filepath.Join(node.folder, "nodes.conf"), []byte(own), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(node.folder, "redis.conf"), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, node)
		node.start(t, path)
		t.Cleanup(func() { node.end() })
	}
	if o.TLS.Cert == "" && o.Password == "" {
		c.wait(single, o)
	} else {
		c.waitPorts()
	}
	return c
}

// start begins the node's process.
func (n *Node) start(t testing.TB, path string) {
	t.Helper()
	log, err := os.Create(filepath.Join(n.folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(path, "redis.conf")
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = n.folder, log, log
	n.cmd.SysProcAttr = dieWithParent()
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		cmd.Wait() //nolint:errcheck // it is killed
		close(exited)
	}(n.cmd, n.exited)
}

func (n *Node) end() {
	if n.stopped {
		resume(n.cmd.Process) //nolint:errcheck // it is killed
	}
	n.cmd.Process.Kill()
	<-n.exited
}

// Kill kills the node and waits until it is gone.
func (n *Node) Kill() {
	n.cmd.Process.Kill()
	<-n.exited
}

// Pause stops the node's process; its connections stay open. Resume has it go on.
func (n *Node) Pause() {
	n.t.Helper()
	n.stopped = true
	if err := pause(n.cmd.Process); err != nil {
		n.t.Fatal(err)
	}
}

// Resume ends a Pause.
func (n *Node) Resume() {
	n.t.Helper()
	n.stopped = false
	if err := resume(n.cmd.Process); err != nil {
		n.t.Fatal(err)
	}
}

// Log returns what the node has written.
func (n *Node) Log() string {
	b, _ := os.ReadFile(filepath.Join(n.folder, "log"))
	return string(b)
}

// URL returns the address of all nodes, as redis://HOST:PORT,HOST:PORT.
func (c *Cluster) URL() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Addr)
	}
	return "redis://" + strings.Join(all, ",")
}

// wait returns when every node says that the cluster is whole, and replicas are in step.
func (c *Cluster) wait(single bool, o Options) {
	c.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for _, n := range c.Nodes {
		for {
			err := n.ready(single, o.Replicas)
			if err == nil && !single {
				err = c.known(n)
			}
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("redistest: node %s: %v\n%s", n.Addr, err, n.Log())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, n := range c.Nodes {
		if single {
			break
		}
		if _, err := n.Ask(fmt.Sprintf("CONFIG SET cluster-node-timeout %d", o.NodeTimeout.Milliseconds())); err != nil {
			c.t.Fatalf("redistest: node %s: %v", n.Addr, err)
		}
	}
}

func (n *Node) ready(single bool, replicas int) error {
	if single {
		pong, err := n.Ask("PING")
		if err == nil && !strings.HasPrefix(pong, "PONG") {
			return errors.New(pong)
		}
		return err
	}
	info, err := n.Ask("CLUSTER INFO")
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return errors.New(info)
	}
	if info, err = n.Ask("INFO replication"); err != nil {
		return err
	}
	if strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") ||
		strings.Contains(info, "role:master") && strings.Count(info, "state=online") < replicas {
		return errors.New(info)
	}
	return nil
}

// known returns an error if a node does not name all nodes to clients.
func (c *Cluster) known(n *Node) error {
	slots, err := n.Ask("CLUSTER SLOTS")
	if err != nil {
		return err
	}
	for _, other := range c.Nodes {
		if _, port, _ := net.SplitHostPort(other.Addr); !strings.Contains(slots, " "+port+" ") {
			return fmt.Errorf("node %s is not in %s", other.Addr, slots)
		}
	}
	return nil
}

// waitPorts returns when every node can be connected to.
func (c *Cluster) waitPorts() {
	c.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for _, n := range c.Nodes {
		for {
			nc, err := net.Dial("tcp", n.Addr)
			if err == nil {
				nc.Close()
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("redistest: node %s: %v\n%s", n.Addr, err, n.Log())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

var ports struct {
	sync.Mutex
	used map[int]bool
}

// freePorts returns ports that nobody listens on, each only once in this process. They are below those that systems give to outgoing
// connections, one of which might else take a port before the server does.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.used == nil {
		ports.used = map[int]bool{}
	}
	var free []int
	for len(free) < n {
		port := 10_000 + rand.IntN(22_000)
		if ports.used[port] {
			continue
		}
		ports.used[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		free = append(free, port)
	}
	return free
}
