//go:build linux

package serve_test

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// liar stands between a client and an owner, and changes one value of one message of the owner.
type liar struct {
	owner string // path
	kind  string // method of the notice, or of the request whose answer is changed
	leaf  int
	value json.RawMessage
	told  atomic.Bool
}

// serve relays the messages of one client.
func (l *liar) serve(client *net.UnixConn) {
	defer client.Close()
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.owner, Net: "unix"})
	if err != nil {
		return
	}
	defer socket.Close()
	down, up := wire.NewConn(client), wire.NewConn(socket)
	var asked atomic.Uint64 // ID of the request whose answer is changed
	go func() {
		defer socket.Close()
		for {
			m, err := down.Read(wire.MaxJSON + wire.MaxPayload)
			if err != nil {
				return
			}
			if m.Method == l.kind {
				asked.Store(m.ID)
			}
			if up.Write(m) != nil {
				return
			}
		}
	}()
	for {
		m, err := up.Read(wire.MaxJSON + wire.MaxPayload)
		if err != nil {
			return
		}
		if m.Method == l.kind || m.Method == "" && m.ID != 0 && m.ID == asked.Load() {
			l.change(m)
		}
		err = down.Write(m)
		m.CloseFiles()
		if err != nil {
			return
		}
	}
}

// change replaces the value number leaf of a message, in the order of keys.
func (l *liar) change(m *wire.Message) {
	var all any
	if json.Unmarshal(m.Body, &all) != nil || l.told.Swap(true) {
		return
	}
	n := 0
	var walk func(any) any
	walk = func(v any) any {
		if n++; n-1 == l.leaf {
			return l.value
		}
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				v[key] = walk(v[key])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	all = walk(all)
	m.Body, _ = json.Marshal(all)
}

// FuzzAttach_Owner: whatever an owner says of its memory, attaching succeeds or fails, and the client does not crash. Reading is not tried: what memory holds is not
// checked, and one layout may be taken for another if the lengths are the same.
func FuzzAttach_Owner(f *testing.F) {
	methods := []string{wire.Hello, wire.Attach, wire.Memory, wire.Views, wire.Ready}
	for kind := range methods {
		for i, value := range []string{"-1", "1000000000000", "null", `"x"`, "[]", "{}", "2", "18446744073709551615"} {
			for leaf := i; leaf < 60; leaf += 11 {
				f.Add(uint8(kind), uint8(leaf), value)
			}
		}
	}
	table, err := cache.FromSlice("rows", make([]int64, 800), 8)
	if err != nil {
		f.Fatal(err)
	}
	c := open(f, 100, func(o *cache.Options) {
		o.Tables = append(o.Tables, table.ResidentWith(cache.ResidentOptions{Target: 16}))
		o.Shared, o.Codec, o.Host.Tier, o.Devices.Count, o.Budget, o.Refresh.Accesses = true, "ibp8", cache.Packed, 2, 30_000, 1
	})
	folder, err := os.MkdirTemp("", "serve")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(folder) })
	s := listen(f, c, serve.Options{Address: "unix:" + filepath.Join(folder, "s"), MaxClients: 1000})
	path := filepath.Join(folder, "liar")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	var now atomic.Pointer[liar]
	go func() {
		for {
			client, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go now.Load().serve(client)
		}
	}()
	f.Fuzz(func(t *testing.T, kind, leaf uint8, value string) {
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(value)
		}
		now.Store(&liar{owner: strings.TrimPrefix(s.Address(), "unix:"), kind: methods[int(kind)%len(methods)], leaf: int(leaf), value: raw})
		a, err := cache.Attach(ctx, "unix:"+path, cache.AttachOptions{Lanes: 2})
		if err != nil {
			return
		}
		a.Stats()
		a.Close()
	})
}
