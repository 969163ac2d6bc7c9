package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/flaghelp"
	"github.com/tensorcache/tensorcache/serve/daemon"
)

// TestConfig_BadInput: each mistake is named by its flag, or by file, line and key, and nothing else is printed.
func TestConfig_BadInput(t *testing.T) {
	users := func(text string) string { return write(t, "users.yaml", []byte(text)) }
	t.Parallel()
	f := features(t, "f.npy", 100, 4)
	good := []string{"--features", f, "--resp", ":0"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--features or --table must name at least one table\n--listen, --resp or --http must be given: without any nobody reaches the cache"},
		{[]string{"--features", f}, "--listen, --resp or --http must be given: without any nobody reaches the cache"},
		{[]string{"serve"}, `argument ("serve") must be a command or the value of a flag: tensorcached --help lists them`},
		{append(good, "--gpu-memory", "x"), `--gpu-memory ("x") must be a positive percentage of the table or a size such as 64MiB`},
		{append(good, "--gpu-memory", "100"), "--gpu-memory (100): "},
		{append(good, "--gpu-memory", "1MiB,2MiB"), "--gpu-memory (2 of them) must be one, or one for each of the 1 devices"},
		{append(good, "--gpu-memory", "1MiB,x", "--devices", "2"), `--gpu-memory ("x") must be a positive percentage of the table or a size such as 64MiB`},
		{append(good, "--codec", "zip"), "--codec: unknown codec"},
		{append(good, "--link", "-1"), `--link ("-1") must be GB/s above 0, or none`},
		{append(good, "--host-tier", "x"), `--host-tier ("x") must be inplace or packed`},
		{append(good, "--device", "tpu"), `--device ("tpu") must be auto, host or cuda`},
		{append(good, "--devices", "9"), `--devices (9) must be 1 to 8`},
		{append(good, "--devices", "x"), `--devices ("x") must be a whole number`},
		{append(good, "--gpus", "0,0"), `--gpus ("0,0") must be all, or numbers of GPUs with commas between them, each once`},
		{append(good, "--gpus", "0,1", "--devices", "3"), `--devices (3) and --gpus (0,1) contradict each other`},
		{append(good, "--placement", "x"), `--placement ("x") must be auto, partition or replicate`},
		{append(good, "--rates", "local=x"), `--rates ("local=x"): `},
		{append(good, "--host-nodes", "-1"), `--host-nodes ("-1") must be any, or numbers of memory nodes with commas between them, each once`},
		{append(good, "--overlay", "x"), `--overlay ("x") must be a size such as 64MiB`},
		{append(good, "--workers", "-1"), `--workers (-1) must not be negative`},
		{append(good, "--policy", "pagerank"), `--policy ("pagerank") must be one of freq, `},
		{append(good, "--refresh-interval", "-1s"), `--refresh-interval (-1s) must not be negative`},
		{append(good, "--refresh-interval", "1"), `--refresh-interval ("1") must be a time such as 100ms`},
		{append(good, "--refresh-churn", "2"), `--refresh-churn (2) must be 0 to 1`},
		{append(good, "--refresh-bytes", "x"), `--refresh-bytes ("x") must be a size such as 64MiB`},
		{append(good, "--sample-rate", "2"), `--sample-rate (2) must be 0 to 1`},
		{append(good, "--sample-keys", "-1"), `--sample-keys (-1) must be 0 to 1`},
		{append(good, "--snapshot", "/nowhere/s"), `--snapshot (/nowhere/s) must be in a folder that there is`},
		{append(good, "--snapshot-interval", "-1s"), `--snapshot-interval (-1s) must not be negative`},
		{append(good, "--drain-timeout", "-1s"), `--drain-timeout (-1s) must not be negative`},
		{append(good, "--listen", "tcp:1"), `--listen: address ("tcp:1") must be unix:PATH`},
		{append(good, "--listen", "unix:x", "--max-attached", "0"), `--max-attached (0) must be 1 to 1024`},
		{append(good, "--listen", "unix:x", "--max-lanes", "0"), `--max-lanes (0) must be 1 to 1024`},
		{append(good, "--listen", "unix:x", "--max-scratch", "x"), `--max-scratch ("x") must be a size such as 64MiB`},
		{append(good, "--listen", "unix:x", "--max-scratch", "1KiB"), `--max-scratch (1KiB) must be at least 1MiB`},
		{append(good, "--listen", "unix:x", "--stopped-after", "1ms"), `--stopped-after (1ms) must be at least 100ms`},
		{append(good, "--resp-clients", "0"), `--resp-clients (0) must be at least 1`},
		{append(good, "--resp-memory", "1MB"), `--resp-memory (1MB) must be at least 1MiB`},
		{append(good, "--resp", "6379"), `--resp ("6379") must be [HOST]:PORT: `},
		{append(good, "--resp", ":70000"), `--resp (":70000") must have a port of 0 to 65535`},
		{append(good, "--resp", "0.0.0.0:0"), `--resp (0.0.0.0:0) lets other machines connect: it must have a password (--resp-password-file), or --insecure`},
		{append(good, "--resp-tls-cert", f), `--resp-tls-cert and --resp-tls-key must be given together`},
		{append(good, "--resp-tls-cert", f, "--resp-tls-key", f), `--resp-tls-cert (` + f + `): `},
		{append(good, "--resp-password-file", "/nowhere"), `--resp-password-file: open /nowhere: no such file or directory`},
		{append(good, "--resp-admin-password-file", write(t, "empty", []byte("\n"))), "--resp-admin-password-file ("},
		{append(good, "--http", "[::]:0"), `--http ([::]:0) lets other machines connect: it must have a token (--http-token-file), or --insecure`},
		{append(good, "--http-token-file", f), `--http-token-file means nothing without --http`},
		{[]string{"--features", f, "--http", ":0", "--resp-password-file", f}, `--resp-password-file means nothing without --resp`},
		{append(good, "--resp-timeout", "-1s"), `--resp-timeout (-1s) must not be negative`},
		{[]string{"--features", f, "--http", ":0", "--resp-users", f}, "--resp-users ("},
		{append(good, "--resp-users", "/nowhere"), `--resp-users: open /nowhere: no such file or directory`},
		{append(good, "--resp-users", users("users: []")), `--resp-users (@) must have a list users with at least one element`},
		{append(good, "--resp-users", users("users:\n- {name: a, pasword_file: x}")), `--resp-users (@): [2:13] unknown field "pasword_file"`},
		{append(good, "--resp-users", users("users:\n- {name: a b, password_sha256: [00]}")), "--resp-users (@): name of user 0 (\"a b\") must be 1 to 256 printable characters without spaces\n" +
			"--resp-users (@): password_sha256 of user \"a b\" must be 64 hexadecimal digits"},
		{append(good, "--resp-users", users("users:\n- {name: a, read: [f]}")), `--resp-users (@): user "a" must have a password_file or password_sha256`},
		{append(good, "--resp-users", users("users:\n- {name: a, password_file: /nowhere}")), `--resp-users (@): password_file of user "a": open /nowhere: no such file or directory`},
		{append(good, "--log-level", "loud"), `--log-level ("loud") must be debug, info, warn, error or off`},
		{append(good, "--otlp-endpoint", "localhost:4317"), `--otlp-endpoint ("localhost:4317") must be a URL such as http://localhost:4318`},
		{append(good, "--otlp-endpoint", "https://me:secret@host"), `--otlp-endpoint (https://me:xxxxx@host) must have no password: OTEL_EXPORTER_OTLP_HEADERS has credentials`},
		{append(good, "--otlp-protocol", "http"), `--otlp-protocol ("http") must be grpc or http/protobuf`},
		{append(good, "--traces-exporter", "jaeger"), `--traces-exporter ("jaeger") must be otlp, console or none`},
		{append(good, "--metrics-exporter", "x"), `--metrics-exporter ("x") must be otlp, console or none`},
		{append(good, "--trace-ratio", "2"), `--trace-ratio ("2") must be a share of the traces, 0 to 1`},
		{append(good, "--features", f), `--table: name of table 1 ("f") must not be given twice; name=… gives another`},
		{[]string{"--features", features(t, "2024.npy", 2, 2), "--resp", ":0"}, `--table: name of table 0 ("2024") must not be a number: a key would name another table by it; name=… gives another`},
		{[]string{"--features", "/nowhere.npy", "--resp", ":0"}, "npy: "},
		{append(good, "--table", "file"), `invalid argument "file" for "--table" flag: "file" must be key=value`},
		{append(good, "--table", ""), `invalid argument "" for "--table" flag: a table's description must not be empty: it is key=value,…, such as file=FILE`},
		{append(good, "--table", "file="), `invalid argument "file=" for "--table" flag: value of key "file" must not be empty`},
		{append(good, "--table", "file=a,file=b"), `invalid argument "file=a,file=b" for "--table" flag: key "file" must be given once`},
		{append(good, "--table", "size=3"), `invalid argument "size=3" for "--table" flag: unknown key "size" of a table must be file, name, codec, capacity, gpu_memory, dtype, columns, durable, log, cold, cold_cache, cold_cache_bytes, resident, max_target, max_overflow, retarget or buddy`},
		{append(good, "--table", "name=a"), `invalid argument "name=a" for "--table" flag: a table must have a file, or else name, dtype, columns and capacity`},
		{append(good, "--table", "file=a,columns=3"), `invalid argument "file=a,columns=3" for "--table" flag: a table with a file must have no dtype and no columns`},
		{append(good, "--table", "file=a,capacity=-1"), `invalid argument "file=a,capacity=-1" for "--table" flag: capacity ("-1") must be a number of rows`},
		{append(good, "--table", "file=a,resident=24"), `invalid argument "file=a,resident=24" for "--table" flag: resident ("24") must be auto, or bytes of a slot: a multiple of 16 up to 1048576`},
		{append(good, "--table", "file=a,resident=auto,max_overflow=2"), `invalid argument "file=a,resident=auto,max_overflow=2" for "--table" flag: max_overflow ("2") must be a share of the rows, above 0 and at most 1`},
		{append(good, "--table", "file=a,resident=auto,retarget=x"), `invalid argument "file=a,resident=auto,retarget=x" for "--table" flag: retarget ("x") must be true or false`},
		{append(good, "--table", "file=a,max_target=64"), `invalid argument "file=a,max_target=64" for "--table" flag: max_target, max_overflow, retarget and buddy must be of a table with resident`},
		{append(good, "--table", "file=a,buddy=peer"), `invalid argument "file=a,buddy=peer" for "--table" flag: max_target, max_overflow, retarget and buddy must be of a table with resident`},
		{append(good, "--table", "file=a,resident=auto,buddy=gpu"), `invalid argument "file=a,resident=auto,buddy=gpu" for "--table" flag: buddy ("gpu") must be host, peer or auto`},
		{append(good, "--table", "file=a,codec=x"), `invalid argument "file=a,codec=x" for "--table" flag: codec: unknown codec`},
		{append(good, "--table", "dtype=float31"), `invalid argument "dtype=float31" for "--table" flag: dtype ("float31") must be a type of elements such as float32`},
		{append(good, "--config", "/nowhere"), "config: open /nowhere: no such file or directory"},
		{append(good, "--config", write(t, "empty.yaml", nil)), "config @: must hold one YAML mapping: it is empty, or has comments only"},
		{append(good, "--config", write(t, "c.yaml", []byte("gpu_memory: 1MiB\n\ngpu_memori: 2MiB\n"))), `config @:3: unknown key "gpu_memori"`},
		{append(good, "--config", write(t, "c.json", []byte("{\n\"devices\": \"x\"}"))), `config @:2: key "devices": --devices ("x") must be a whole number`},
		{append(good, "--config", write(t, "t.yaml", []byte("tables:\n- file: a\n- nme: b\n"))), `config @:1: key "tables": element 1: invalid argument "nme=b" for "--table" flag: unknown key "nme" of a table`},
		{append(good, "--config", write(t, "m.yaml", []byte("gpu_memory:\n  slots: 3\n"))), `config @: line 1: key "gpu_memory": value (slots: 3) must be a string, number, boolean or list`},
	} {
		stdout, stderr, status := runs(t, append([]string{"--log-level", "off"}, c.args...)...)
		want := "tensorcached: " + c.want
		if len(c.args) > 0 {
			want = strings.ReplaceAll(want, "config @", "config "+c.args[len(c.args)-1])
			want = strings.ReplaceAll(want, "--resp-users (@)", "--resp-users ("+c.args[len(c.args)-1]+")")
		}
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, want) {
			t.Errorf("%q: status %d, stdout %q, stderr\n%swant\n%s", c.args, status, stdout, stderr, want)
		}
	}
}

// TestConfig_Keys: every flag is a key of the file, and its default is one that the file can say.
func TestConfig_Keys(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	n := 0
	daemon.Flags(new(daemon.Config)).VisitAll(func(f *pflag.Flag) {
		if f.Name != "features" && f.Name != "table" {
			fmt.Fprintf(&text, "%s: %q\n", strings.ReplaceAll(f.Name, "-", "_"), f.DefValue)
			n++
		}
	})
	c, err := daemon.Load([]string{"--config", write(t, "all.yaml", []byte(text.String()+"tables:\n- {file: a.npy, name: x, capacity: 5}\n- {file: d.npy, resident: auto, max_target: 1KiB, max_overflow: 0.1, retarget: true, buddy: peer}\nfeatures: [b.npy, c.npy]\n"))})
	if err != nil || n < 40 {
		t.Fatalf("%d keys: %v", n, err)
	}
	if fmt.Sprint(c.Tables) != fmt.Sprint([]daemon.TableSpec{{File: "a.npy", Name: "x", Capacity: 5},
		{File: "d.npy", Resident: true, Slots: cache.ResidentOptions{MaxTarget: 1024, MaxOverflow: 0.1, Retarget: true, Buddy: cache.BuddyPeer}}, {File: "b.npy"}, {File: "c.npy"}}) {
		t.Errorf("tables: %+v", c.Tables)
	}
}

func TestCheck_Plan(t *testing.T) {
	t.Parallel()
	args := []string{"--check", "--features", features(t, "users.npy", 1000, 16), "--table", "name=notes,dtype=float16,columns=8,capacity=500,codec=none",
		"--gpu-memory", "10%", "--device", "host", "--resp", ":0", "--listen", "unix:/tmp/x.sock", "--overlay", "1MiB"}
	out, stderr, status := runs(t, args...)
	for _, want := range []string{"users.npy", "0 of 500", "reached by unix:/tmp/x.sock: processes of this user attach", "reached by resp 127.0.0.1:0: this machine; nobody may change rows"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	out, _, _ = runs(t, append(args, "--json")...)
	var p daemon.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	memory := map[string]int64{}
	for _, m := range p.Memory {
		memory[m.What] = m.Bytes
	}
	if p.Backend != "host" || p.Budgets[0] != 7200 || len(p.Tables) != 2 || p.Tables[0].RawBytes != 64000 || p.Tables[1].RawBytes != 8000 || len(p.Problems) != 0 ||
		memory["host tier: every row"] != 72000 || memory["overlay: updated rows on their way"] != 1<<20 || memory["budget: cached rows and hashmap, 1 ×"] != 7200 {
		t.Errorf("%+v", p)
	}
	// What cannot be is said, and is the exit status; without --check the program does not begin.
	args = []string{"--features", features(t, "f.npy", 1000, 16), "--gpu-memory", "1000TiB", "--device", "host", "--resp", ":0"}
	out, stderr, status = runs(t, append(args, "--check")...)
	if status != 1 || stderr != "tensorcached: it would not work\n" || !strings.Contains(out, "problem: the budget: cached rows and hashmap, 1 × (host memory) needs about") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, out)
	}
	out, stderr, status = runs(t, args...)
	if status != 1 || out != "" || !strings.Contains(stderr, "needs about") {
		t.Errorf("without --check: status %d, stdout %q, stderr %q", status, out, stderr)
	}
}

// TestCheck_NoListener: the memory of a configuration without a listener is planned, and the listener is the one problem. Bad values are still errors.
func TestCheck_NoListener(t *testing.T) {
	t.Parallel()
	f := features(t, "f.npy", 1000, 16)
	args := []string{"--check", "--features", f, "--gpu-memory", "10%", "--device", "host"}
	const problem = "--listen, --resp or --http must be given: without any nobody reaches the cache"
	out, stderr, status := runs(t, args...)
	if status != 1 || stderr != "tensorcached: it would not work\n" || !strings.Contains(out, "host tier: every row") || !strings.Contains(out, "problem: "+problem+"\n") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, out)
	}
	out, _, status = runs(t, append(args, "--json")...)
	var p daemon.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || status != 1 || len(p.Tables) != 1 || len(p.Memory) == 0 || len(p.Problems) != 1 || p.Problems[0] != problem {
		t.Errorf("status %d, %v: %+v", status, err, p)
	}
	if out, stderr, status = runs(t, append(args, "--devices", "9")...); status != 1 || out != "" || stderr != "tensorcached: --devices (9) must be 1 to 8\n" {
		t.Errorf("a bad value: status %d, stdout %q, stderr %q", status, out, stderr)
	}
}

// TestCheck_Resident: the plan has slots and words of resident tables as parts of the budget, and says where what is longer lies, and when the budget does not do.
func TestCheck_Resident(t *testing.T) {
	t.Parallel()
	file := features(t, "users.npy", 1001, 25) // 100 B
	plan := func(devices string, args ...string) (p daemon.Plan, memory map[string]daemon.PlannedMemory, text string) {
		t.Helper()
		args = append([]string{"--check", "--device", "host", "--devices", devices, "--resp", ":0"}, args...)
		text, _, _ = runs(t, args...)
		out, stderr, _ := runs(t, append(args, "--json")...)
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			t.Fatal(err, stderr)
		}
		memory = map[string]daemon.PlannedMemory{}
		for _, m := range p.Memory {
			memory[m.What] = m
		}
		return p, memory, text
	}
	const slots, words, longer, loading = "slots of resident table users", "words of resident table users", "what is longer than the slots of table users", "rows of resident tables, until they are on the devices"
	p, m, text := plan("2", "--table", "file="+file+",resident=48,max_target=64", "--gpu-memory", "1MiB")
	if m[slots].Bytes != 1001*64 || m[slots].Of != "budget" || m[words].Bytes != 1001*8 || m[longer].Bytes != 1001*64+2*128 || m[longer].Of != "" || m[longer].Kind != "host" ||
		m[loading].Bytes != 100_100 || m["host tier: every row"].Bytes != 0 || len(p.Problems) != 0 || !strings.Contains(text, "resident, slots of 48 B") {
		t.Errorf("%+v\n%s", p, text)
	}
	if p, m, _ := plan("2", "--table", "file="+file+",resident=48,buddy=auto", "--gpu-memory", "1MiB"); m[longer].Of != "budget" || m[longer].Bytes != 1001*64+2*128 {
		t.Errorf("overflow places on peers: %+v", p)
	}
	if p, m, _ := plan("1", "--table", "file="+file+",resident=auto", "--gpu-memory", "1MiB"); !m[slots].AtMost || m[slots].Bytes != 1001*112 || !m[longer].AtMost || len(p.Problems) != 0 {
		t.Errorf("slots that are chosen: %+v", p)
	}
	if p, _, text := plan("1", "--table", "file="+file+",resident=48,buddy=peer", "--gpu-memory", "20KiB"); len(p.Problems) != 2 ||
		!strings.Contains(text, "problem: resident tables need 55 KiB of each device for slots and words: --gpu-memory (20 KiB) must be at least that") || !strings.Contains(text, "problem: table users: buddy=peer needs at least 2 devices") {
		t.Errorf("%+v\n%s", p, text)
	}
}

// TestCheck_Nothing: --check listens nowhere and writes nothing.
func TestCheck_Nothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, stderr, status := runs(t, "--check", "--features", features(t, "f.npy", 10, 4), "--listen", "unix:"+dir+"/s", "--snapshot", dir+"/snap", "--device", "host"); status != 0 {
		t.Fatal(stderr)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestHelp_Groups: every flag is listed under one heading, and every line of --help fits its width.
func TestHelp_Groups(t *testing.T) {
	listed := map[string]int{}
	for _, g := range flagGroups {
		for name := range strings.FieldsSeq(g.Flags) {
			listed[name]++
		}
	}
	root := newRoot()
	root.InitDefaultVersionFlag()
	for _, cmd := range append(root.Commands(), root) {
		cmd.InitDefaultHelpFlag()
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if n := listed[f.Name]; n != 1 && !f.Hidden {
				t.Errorf("%s: --%s is in %d groups", cmd.CommandPath(), f.Name, n)
			}
		})
	}
	var out bytes.Buffer
	root.SetOut(&out)
	if err := root.Help(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > flaghelp.Width+1 && !strings.HasPrefix(line, "  tensorcached ") {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
