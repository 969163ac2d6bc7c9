package daemon

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/serve/resp"
)

// Validate reports all that is wrong with the config, without opening the tables' files. Fields go by the names of their flags.
func (c *Config) Validate() error { return errors.Join(c.values(), c.reachable()) }

// reachable returns an error if the config has no listener. Such a config can be planned, but not run.
func (c *Config) reachable() error {
	if c.Listen == "" && c.RESP == "" && c.HTTP == "" {
		return errors.New("--listen, --resp or --http must be given: without any nobody reaches the cache")
	}
	return nil
}

// values reports what is wrong with the fields that are given.
func (c *Config) values() error {
	var f faults.List
	f.If(len(c.Tables) == 0, "--features or --table must name at least one table")
	if err := resp.CheckNames(c.names()); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			f.Addf("--table: %s; name=… gives another", strings.TrimPrefix(line, "resp: "))
		}
	}
	_, err := c.budgets(1 << 40)
	f.Add(err)
	_, err = c.policy()
	f.Add(err)
	_, err = c.level()
	f.Add(err)
	o, err := c.options()
	f.Add(err)
	if err == nil {
		f.Add(c.fields(&o))
	}
	f.If(c.SnapshotInterval < 0, "--snapshot-interval (%v) must not be negative", c.SnapshotInterval)
	f.If(c.LameDuck < 0, "--lame-duck (%v) must not be negative", c.LameDuck)
	f.If(!(c.MaxPressure >= 0 && c.MaxPressure <= 1), "--max-memory-pressure (%v) must be 0 to 1", c.MaxPressure)
	f.If(c.LogFormat != "text" && c.LogFormat != "json", "--log-format (%q) must be text or json", c.LogFormat)
	f.If(c.DrainTimeout < 0, "--drain-timeout (%v) must not be negative", c.DrainTimeout)
	if c.Snapshot != "" {
		if info, err := os.Stat(filepath.Dir(c.Snapshot)); err != nil || !info.IsDir() {
			f.Addf("--snapshot (%s) must be in a folder that there is", c.Snapshot)
		}
	}
	f.Add(c.Telemetry.Validate(func(field string) string { return telemetryFlags[field] }))
	c.validateListeners(&f)
	return f.Err()
}

// telemetryFlags are the names of settings of package telemetry.
var telemetryFlags = map[string]string{
	"Traces": "--traces-exporter", "Metrics": "--metrics-exporter", "Endpoint": "--otlp-endpoint", "Protocol": "--otlp-protocol", "Ratio": "--trace-ratio", "Rate": "--trace-rate",
}

// fields returns what package cache finds wrong with the options, apart from the tables, by the names of flags.
func (c *Config) fields(o *cache.Options) error {
	table, err := cache.FromBytes("t", 1, nil, 2)
	if err != nil {
		return err
	}
	with := *o
	with.Tables, with.Budget = []cache.Table{table.WithCapacity(1)}, 1<<20
	with.EnsureDefaults()
	if err := with.Validate(); err != nil {
		return errors.New(flagNames.Replace(err.Error()))
	}
	return nil
}

// flagNames replaces options of package cache by flags.
var flagNames = strings.NewReplacer("cache: ", "", "Devices.Backend", "--device", "Devices.Count", "--devices", "Devices.GPUs", "--gpus", "Devices.Placement", "--placement",
	"Devices.Rates", "--rates", "Host.Tier", "--host-tier", "Host.Workers", "--workers", "Host.Overlay", "--overlay", "Host.Memory", "--host-memory", "Host.Nodes", "--host-nodes",
	"Refresh.Interval", "--refresh-interval", "Refresh.MaxChurn", "--refresh-churn", "Refresh.MaxBytes", "--refresh-bytes", "Refresh.Accesses", "--sample-rate",
	"Refresh.Misses", "--sample-rate", "Refresh.Keys", "--sample-keys", "codec: unknown", "--codec: unknown")

func (c *Config) validateListeners(f *faults.List) {
	if c.Listen != "" {
		f.Add(c.checkListen())
	}
	f.If(c.RESPClients < 1, "--resp-clients (%d) must be at least 1", c.RESPClients)
	memory, err := c.respMemory()
	f.Add(err)
	f.If(err == nil && memory < 1<<20, "--resp-memory (%s) must be at least 1MiB", c.RESPMemory)
	f.If(c.RESPTimeout < 0, "--resp-timeout (%v) must not be negative", c.RESPTimeout)
	users, err := c.users()
	f.Add(err)
	_, err = c.token()
	f.Add(err)
	f.If((c.RESPCert == "") != (c.RESPKey == ""), "--resp-tls-cert and --resp-tls-key must be given together")
	if c.RESPCert != "" && c.RESPKey != "" {
		if _, err := tls.LoadX509KeyPair(c.RESPCert, c.RESPKey); err != nil {
			f.Addf("--resp-tls-cert (%s): %w", c.RESPCert, err)
		}
	}
	if c.RESP == "" {
		for _, flag := range []string{"resp-tls-cert", "resp-password-file", "resp-admin-password-file", "resp-users", "audit-log"} {
			f.If(c.set.Lookup(flag).Value.String() != "", "--%s means nothing without --resp", flag)
		}
	} else if _, remote, err := address("--resp", c.RESP); err != nil {
		f.Add(err)
	} else if remote && !c.Insecure {
		f.If(users.Open(), "--resp (%s) lets other machines connect: it must have a password (--resp-password-file), or --insecure", c.RESP)
	}
	if c.HTTP == "" {
		f.If(c.HTTPToken != "", "--http-token-file means nothing without --http")
	} else if _, remote, err := address("--http", c.HTTP); err != nil {
		f.Add(err)
	} else if remote && !c.Insecure {
		f.If(c.HTTPToken == "", "--http (%s) lets other machines connect: it must have a token (--http-token-file), or --insecure", c.HTTP)
	}
}

// policy returns a new policy.
func (c *Config) policy() (admission.Policy, error) {
	spec, err := admission.Lookup(c.Policy)
	if err != nil || !slices.Contains(policies(), c.Policy) {
		return nil, fmt.Errorf("--policy (%q) must be one of %s", c.Policy, strings.Join(policies(), ", "))
	}
	return spec.New(admission.Inputs{})
}

// off is a level above all that are logged.
const off = slog.LevelError + 100

func (c *Config) level() (l slog.Level, err error) {
	if c.LogLevel == "off" {
		return off, nil
	}
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level (%q) must be debug, info, warn, error or off", c.LogLevel)
	}
	return l, nil
}

// options returns the options of the cache, apart from tables, budget, policy and telemetry.
func (c *Config) options() (cache.Options, error) {
	link, ok := setting.Link(c.Link)
	if c.Link == "" && c.OnProcessors() {
		link = cache.NoLink // what serves rows fastest here
	}
	var f faults.List
	f.If(!ok, "--link (%q) must be GB/s above 0, or none", c.Link)
	gpus, err := setting.GPUs(c.GPUs, c.Device)
	f.Add(err)
	f.If(len(gpus) > 0 && c.Devices != 1 && c.Devices != len(gpus), "--devices (%d) and --gpus (%s) contradict each other", c.Devices, c.GPUs)
	nodes, err := setting.HostNodes(c.HostNodes)
	f.Add(err)
	rates, err := setting.Rates(c.Rates)
	f.Add(err)
	refresh, err := c.refresh()
	f.Add(err)
	overlay := int64(0)
	if c.Overlay != "" {
		overlay, err = setting.Bytes("--overlay", c.Overlay)
		f.Add(err)
	}
	memory := int64(0)
	if c.HostMemory != "" {
		memory, err = setting.Bytes("--host-memory", c.HostMemory)
		f.Add(err)
	}
	o := cache.Options{
		Codec: cache.Codec(c.Codec), Link: link, Seed: c.Seed, Refresh: refresh,
		Devices:   cache.DeviceOptions{Backend: cache.Backend(c.Device), Count: c.Devices, GPUs: gpus, Placement: cache.PlacementMode(c.Placement), Rates: rates},
		Host:      cache.HostOptions{Tier: cache.HostTier(c.HostTier), Nodes: nodes, Threads: c.HostThreads, Overlay: overlay, Workers: c.Workers, Memory: memory, NoEqualRows: c.NoEqualRows},
		Admission: cache.AdmissionOptions{Cold: c.Cold, Restore: c.Snapshot},
	}
	if len(gpus) > 0 {
		o.Devices.Count = len(gpus)
	}
	return o, f.Err()
}

// OnProcessors says whether this machine's processors serve the rows.
func (c *Config) OnProcessors() bool {
	return c.Device == string(cache.BackendHost) || c.Device == string(cache.BackendAuto) && cuda.Usable() != nil
}

// sampled is the share of accesses that the policy observes by default, beside all misses (see cache.RefreshOptions). The service samples even where
// it does not refresh, so that an interval can be set while it runs.
const sampled = 1. / 8

// refresh returns how the cache follows its workload.
func (c *Config) refresh() (cache.RefreshOptions, error) {
	bytes, err := setting.Bytes("--refresh-bytes", c.RefreshBytes)
	o := cache.RefreshOptions{Interval: c.RefreshInterval, MaxChurn: c.RefreshChurn, MaxBytes: bytes, Keys: c.SampleOf}
	o.Accesses, o.Misses = c.Sampled()
	return o, err
}

// Sampled returns the shares of accesses and of misses that the policy observes.
func (c *Config) Sampled() (accesses, misses float64) {
	if c.SampleRate == 0 {
		return sampled, 1
	}
	return c.SampleRate, 0
}

// budgets returns the budgets in bytes, for tables of so many raw bytes: one for all devices, or one for each.
func (c *Config) budgets(raw int64) (all []int64, err error) {
	for text := range strings.SplitSeq(c.Budget, ",") {
		n, err := setting.Budget(text, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, max(n, c.leastBudget))
	}
	if len(all) > 1 && len(all) != c.devices() {
		return nil, fmt.Errorf("--gpu-memory (%d of them) must be one, or one for each of the %d devices", len(all), c.devices())
	}
	return all, nil
}

// rawBytes is what the tables take uncompressed, with all the rows that they have room for.
func rawBytes(tables []cache.Table, specs []TableSpec) (raw int64) {
	for i, t := range tables {
		raw += max(int64(t.Rows()), specs[i].Capacity) * int64(t.RowBytes())
	}
	return raw
}

// secret returns the first line of a file, or the value of an environment variable.
func secret(flag, path, variable string) (string, error) {
	value := ""
	if variable != "" {
		value = os.Getenv(variable)
	}
	if path == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("%s (%s) and %s contradict each other", flag, path, variable)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if value = strings.TrimSuffix(line, "\r"); value == "" {
		return "", fmt.Errorf("%s (%s) must have a first line that is not empty", flag, path)
	}
	return value, nil
}

// respMemory returns --resp-memory in bytes.
func (c *Config) respMemory() (int64, error) { return setting.Bytes("--resp-memory", c.RESPMemory) }

// users returns the passwords of the RESP listener.
func (c *Config) users() (resp.Users, error) {
	password, err := secret("--resp-password-file", c.RESPPassword, "TENSORCACHED_PASSWORD")
	admin, err2 := secret("--resp-admin-password-file", c.RESPAdminPass, "TENSORCACHED_ADMIN_PASSWORD")
	named, err3 := readUsers(c.RESPUsers)
	return resp.Users{Password: password, Admin: admin, Named: named}, errors.Join(err, err2, err3)
}

// token returns the token of the HTTP listener.
func (c *Config) token() (string, error) { return secret("--http-token-file", c.HTTPToken, "") }

// listen binds an address, "" for none.
func listen(flag, text string) (net.Listener, error) {
	if text == "" {
		return nil, nil
	}
	addr, _, err := address(flag, text)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", flag, text, err)
	}
	return l, nil
}

// devices returns the number of devices.
func (c *Config) devices() int {
	gpus, _ := setting.GPUs(c.GPUs, c.Device)
	return cmp.Or(len(gpus), c.Devices)
}
