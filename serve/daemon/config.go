package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/flagfile"
	"github.com/tensorcache/tensorcache/internal/telemetry"
)

// Config is the configuration of the program. Its fields are those of Flags; docs/service.md describes them.
type Config struct {
	File   string // that the rest was read from, "" if none
	Tables []TableSpec

	Budget, Codec, Link, HostTier      string
	Device, GPUs, Placement, Rates     string
	HostNodes, Overlay, HostMemory     string
	Devices, Workers, HostThreads      int
	NoEqualRows                        bool
	Seed                               uint64
	Policy                             string
	Cold                               bool
	RefreshInterval                    time.Duration
	RefreshChurn, SampleRate, SampleOf float64
	RefreshBytes                       string

	State            string
	Snapshot         string
	SnapshotInterval time.Duration
	DrainTimeout     time.Duration
	LameDuck         time.Duration
	MaxPressure      float64 // share of time

	Listen       string
	MaxAttached  int
	MaxLanes     int
	MaxScratch   string
	StoppedAfter time.Duration
	EvictStopped bool

	RESP                        string
	RESPClients                 int
	RESPMemory                  string
	RESPCert, RESPKey           string
	RESPPassword, RESPAdminPass string // files
	RESPUsers, AuditLog         string // files
	RESPTimeout                 time.Duration
	HTTP, HTTPToken             string // address, file
	Insecure                    bool
	LogLevel, LogFormat, Name   string
	Telemetry                   telemetry.Settings
	Force                       bool

	set         *pflag.FlagSet // that the fields are the values of
	leastBudget int64          // bytes that Budget stands for at least, of a table that is added without one
}

// features is the flag --features: tables of which nothing but the file is said.
type features struct{ to *[]TableSpec }

func (f *features) String() string { return "" }
func (f *features) Type() string   { return "filesSlice" }

// Set implements pflag.Value.
func (f *features) Set(text string) error {
	for path := range strings.SplitSeq(text, ",") {
		if path == "" {
			return errors.New("a file's name must not be empty")
		}
		*f.to = append(*f.to, TableSpec{File: path})
	}
	return nil
}

// records is the flag --table.
type records struct{ to *[]TableSpec }

func (r *records) String() string { return "" }
func (r *records) Type() string   { return "key=value,…" }

// Set implements pflag.Value.
func (r *records) Set(text string) error {
	t, err := parseTable(text)
	if err == nil {
		*r.to = append(*r.to, t)
	}
	return err
}

// reloadable are the flags whose values SIGHUP changes.
var reloadable = map[string]bool{
	"gpu-memory": true, "policy": true, "refresh-interval": true, "refresh-churn": true, "refresh-bytes": true, "snapshot-interval": true, "log-level": true,
	"drain-timeout": true, "lame-duck": true, "max-memory-pressure": true,
}

// Flags returns the flags of a config, with their defaults set. --config is not one of them.
func Flags(c *Config) *pflag.FlagSet {
	f := pflag.NewFlagSet("tensorcached", pflag.ContinueOnError)
	f.SortFlags = false
	f.Var(&features{&c.Tables}, "features", "tables: `FILE`.npy, FILE.npz[:array], FILE.safetensors[:tensor], or a folder of cachebench pack, or several: A.npy,B.npy")
	f.Var(&records{&c.Tables}, "table", "a table: `file=FILE`, and between commas name=N, codec=C, capacity=ROWS, gpu_memory=BYTES for a cache of its own, resident=auto|BYTES, buddy=host|peer|auto; of pages also cold=redis://HOST:PORT[/TABLE], cold_cache=FOLDER, cold_cache_bytes=BYTES, log=FOLDER, durable=true, with file=redis://HOST:PORT/TABLE for those of a cluster alone; to begin without rows, name=N,dtype=float32,columns=128,capacity=ROWS")
	f.StringVar(&c.Budget, "gpu-memory", "5%", "device memory for cached rows, of each device: 64MiB, or 5% of the tables' raw bytes; or one for each, between commas")
	f.StringVar(&c.Codec, "codec", registry.Auto, "codec of tables that name none: "+strings.Join(registry.Usage(), ", "))
	f.StringVar(&c.Link, "link", "", "GB/s at which a GPU reads misses, for codec auto (default: measured); none: pick for this machine's processors, as --device host does by default")
	f.StringVar(&c.HostTier, "host-tier", "inplace", "layout of the rows in host memory: inplace or packed")
	f.BoolVar(&c.NoEqualRows, "no-equal-rows", false, "equal rows of host tier inplace have slots of their own; otherwise they share them, if a sample finds enough of them")
	f.StringVar(&c.Device, "device", "auto", "backend: auto, host or cuda")
	f.IntVar(&c.Devices, "devices", 1, "devices that the cache spans, 1 to 8: the first GPUs")
	f.StringVar(&c.GPUs, "gpus", "", "GPUs that the cache spans: 0,2 or all (default: the first --devices)")
	f.StringVar(&c.Placement, "placement", "auto", "which rows lie in which slabs: auto, partition or replicate")
	f.StringVar(&c.Rates, "rates", "", "speeds for --placement auto: FILE.json of cachebench devices --measure, or local=1900,peer=350,host=50 (GB/s)")
	f.StringVar(&c.HostNodes, "host-nodes", "", "memory nodes (NUMA) of the host tier: 0,1 or any (default: those nearest to the GPUs)")
	f.IntVar(&c.HostThreads, "host-threads", 0, "goroutines that help each GPU with misses (default: half the processors, at most 8); -1: none")
	f.IntVar(&c.Workers, "workers", 0, "goroutines of the host (default: one a processor)")
	f.StringVar(&c.Overlay, "overlay", "", "host memory for updated rows on their way (default: 16MiB, or what four versions of every row take)")
	f.StringVar(&c.HostMemory, "host-memory", "", "most host memory for rows and index of tables of pages, such as 8GiB: the other rows are read from their pages (default: all rows)")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of the samples that codecs are trained on")
	f.StringVar(&c.Policy, "policy", admission.Default, "admission: "+strings.Join(policies(), ", "))
	f.BoolVar(&c.Cold, "cold", false, "begin with an empty cache, apart from the snapshot")
	f.DurationVar(&c.RefreshInterval, "refresh-interval", time.Second, "time between refresh cycles, in which the cache follows its workload; 0: none")
	f.Float64Var(&c.RefreshChurn, "refresh-churn", 0.25, "most of the cache that a cycle replaces, 0 to 1")
	f.StringVar(&c.RefreshBytes, "refresh-bytes", "256MiB", "most bytes that a cycle writes")
	f.Float64Var(&c.SampleRate, "sample-rate", 0, "share of accesses that the policy observes, 0 to 1 (default: an eighth, and all misses)")
	f.Float64Var(&c.SampleOf, "sample-keys", 1./64, "share of all rows of which every access is sampled, for the estimates of other budgets, 0 to 1")
	f.StringVar(&c.State, "state", "", "`FOLDER` on a tmpfs in which host memory outlives this process: the next one with the same tables takes it over instead of loading them (default: none)")
	f.StringVar(&c.Snapshot, "snapshot", "", "file of the cached rows' numbers: restored at the start, written at intervals and at the end")
	f.DurationVar(&c.SnapshotInterval, "snapshot-interval", 5*time.Minute, "time between snapshots; 0: at the end only")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 10*time.Second, "how long work under way may take to end when the program ends")
	f.DurationVar(&c.LameDuck, "lame-duck", 5*time.Second, "with --http: how long /readyz answers 503 and the program serves on before it ends, for load balancers to notice")
	f.Float64Var(&c.MaxPressure, "max-memory-pressure", 0.25, "with --http: share of the last 10 s in which all tasks waited for memory (PSI) from which /readyz answers 503, 0 to 1; 0: never")
	f.StringVar(&c.Listen, "listen", "", "where processes of this machine attach: unix:PATH")
	f.IntVar(&c.MaxAttached, "max-attached", 64, "most processes that are attached, 1 to 1024")
	f.IntVar(&c.MaxLanes, "max-lanes", 64, "most reads that an attached process runs at a time on one device, 1 to 1024")
	f.StringVar(&c.MaxScratch, "max-scratch", "", "most memory that an attached process may allocate on each device for its reads, such as 64MiB (default: no limit)")
	f.DurationVar(&c.StoppedAfter, "stopped-after", 10*time.Second, "how long an attached process may hold back changes before they fail")
	f.BoolVar(&c.EvictStopped, "evict-stopped", false, "kill an attached process that holds back changes for longer than --stopped-after")
	f.StringVar(&c.RESP, "resp", "", "serve clients of Redis at [HOST]:PORT; without HOST from this machine only")
	f.IntVar(&c.RESPClients, "resp-clients", 1000, "most connections of --resp; fewer if the process may not have as many files open")
	f.StringVar(&c.RESPMemory, "resp-memory", "512MiB", "most `BYTES` of long commands and replies of --resp, of all connections together; the one with most is cut off")
	f.StringVar(&c.RESPCert, "resp-tls-cert", "", "certificate of --resp: FILE.pem")
	f.StringVar(&c.RESPKey, "resp-tls-key", "", "its key: FILE.pem")
	f.StringVar(&c.RESPPassword, "resp-password-file", "", "FILE with the password of user default, who reads; or set TENSORCACHED_PASSWORD")
	f.StringVar(&c.RESPAdminPass, "resp-admin-password-file", "", "FILE with the password of user admin, who also changes rows; or set TENSORCACHED_ADMIN_PASSWORD")
	f.StringVar(&c.RESPUsers, "resp-users", "", "FILE of further users of --resp, with rights by table; their passwords also serve --http where it asks for a token")
	f.DurationVar(&c.RESPTimeout, "resp-timeout", 0, "cut off clients of --resp that send nothing for so long; 0: never")
	f.StringVar(&c.AuditLog, "audit-log", "", "FILE that a line of JSON is appended to for each change of rows or tables: who, which table, how many rows, when (default: changes by clients of --resp go to the log)")
	f.StringVar(&c.HTTP, "http", "", "serve status, metrics and profiles over HTTP at [HOST]:PORT; without HOST from this machine only")
	f.StringVar(&c.HTTPToken, "http-token-file", "", "FILE with the bearer token that --http asks for")
	f.BoolVar(&c.Insecure, "insecure", false, "let other machines connect without a password or token")
	f.StringVar(&c.LogLevel, "log-level", "info", "log on stderr from this level on: debug, info, warn, error or off")
	f.StringVar(&c.LogFormat, "log-format", "text", "text (key=value) or json, one object a line")
	f.StringVar(&c.Telemetry.Endpoint, "otlp-endpoint", "", "send traces and metrics to this receiver of OTLP: http://localhost:4318 (default: what OTEL_* variables say, else nowhere)")
	f.StringVar(&c.Telemetry.Protocol, "otlp-protocol", "", "by http/protobuf or grpc (default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf)")
	f.StringVar(&c.Telemetry.Traces, "traces-exporter", "", "where traces go: otlp, console (stderr) or none (default: OTEL_TRACES_EXPORTER, else otlp if there is an endpoint)")
	f.StringVar(&c.Telemetry.Metrics, "metrics-exporter", "", "where metrics go besides --http: otlp, console (stderr) or none (default: OTEL_METRICS_EXPORTER, else otlp if there is an endpoint)")
	f.StringVar(&c.Telemetry.Rate, "trace-rate", "", "most traces a second that begin here, reads with misses first; 0: no limit (default: TENSORCACHE_TRACE_RATE, else 10)")
	f.StringVar(&c.Telemetry.Ratio, "trace-ratio", "", "share of those which is sampled, 0 to 1 (default: OTEL_TRACES_SAMPLER, else 1)")
	f.StringVar(&c.Name, "name", "tensorcached", "name of the cache in metrics and traces")
	f.BoolVar(&c.Force, "force", false, "go on where the memory is estimated not to suffice")
	flagfile.Rename(f, "tensorcached", "budget", "gpu-memory")
	c.set = f
	return f
}

// policies returns the names of the policies that need nothing but accesses.
func policies() (names []string) {
	for _, name := range admission.Names() {
		if spec, err := admission.Lookup(name); err == nil && spec.Learns == admission.FromAccesses {
			names = append(names, name)
		}
	}
	return names
}

// Read sets the flags that a YAML or JSON file names and the command line does not. The error has the line and the key of everything that is wrong.
func (c *Config) Read(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	settings, err := flagfile.ReadYAML(b)
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	c.File = path
	return flagfile.Apply(c.set, path, settings)
}

// Load reads the arguments of a command line, and the file that --config names.
func Load(args []string) (*Config, error) {
	c := &Config{}
	f := Flags(c)
	file := f.String("config", "", "")
	f.Bool("check", false, "") // flags of the command that the program ignores when it reads them again
	f.Bool("json", false, "")
	f.String("ids", "", "")
	f.SetOutput(new(strings.Builder))
	if err := f.Parse(args); err != nil {
		return nil, flagfile.ValueError(err)
	}
	if *file != "" {
		if err := c.Read(*file); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// address returns an address to listen on, and whether other machines can reach it.
func address(flag, text string) (addr string, remote bool, err error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", false, fmt.Errorf("%s (%q) must be [HOST]:PORT: %w", flag, text, err)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n < 0 {
		return "", false, fmt.Errorf("%s (%q) must have a port of 0 to 65535", flag, text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	ip := net.ParseIP(host)
	return net.JoinHostPort(host, port), host != "localhost" && (ip == nil || !ip.IsLoopback()), nil
}
