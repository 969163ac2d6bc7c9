package redistest

import (
	"strings"
	"testing"
	"time"
)

func TestStart_IsACluster(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	c := Start(t, Options{Replicas: 1})
	t.Logf("three masters and three replicas after %v", time.Since(begin))
	for i, n := range c.Nodes {
		info, err := n.Ask("INFO replication")
		want := "role:master"
		if i >= 3 {
			want = "role:slave"
		}
		if err != nil || !strings.Contains(info, want) {
			t.Errorf("node %d: %v %s", i, err, info)
		}
	}
	if got, err := c.Nodes[0].Ask("CLUSTER INFO"); err != nil || !strings.Contains(got, "cluster_size:3") || !strings.Contains(got, "cluster_known_nodes:6") {
		t.Errorf("%v %s", err, got)
	}
}
