//go:build linux

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tensorcache/tensorcache/internal/version"
	"github.com/tensorcache/tensorcache/serve/daemon"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err != nil {
		t.Skipf("there are no sources here: %v", err)
	}
	return string(b)
}

// loadable checks a configuration with its files replaced by ones that are there.
func loadable(t *testing.T, text string) *daemon.Config {
	t.Helper()
	dir, table := t.TempDir(), features(t, "f.npy", 100, 4)
	token := write(t, "token", []byte("secret"))
	text = regexp.MustCompile(`file: \S+\.npy`).ReplaceAllString(text, "file: "+table)
	text = regexp.MustCompile(`snapshot: \S+`).ReplaceAllString(text, "snapshot: "+dir+"/snapshot")
	text = regexp.MustCompile(`http_token_file: \S+`).ReplaceAllString(text, "http_token_file: "+token)
	text = strings.ReplaceAll(text, "gpus: all\n", "")
	c, err := daemon.Load([]string{"--config", write(t, "c.yaml", []byte(text))})
	if err == nil {
		err = c.Validate()
	}
	if err == nil {
		_, err = c.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDeploy_Config(t *testing.T) {
	t.Parallel()
	c := loadable(t, deployed(t, "tensorcached.yaml"))
	if c.Listen != defaultSocket {
		t.Errorf("the socket is %s", c.Listen)
	}
}

// tool returns the path of a program that checks files, or ends the test: it skips, or with TENSORCACHE_REQUIRE_DEPLOY=1 fails.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("TENSORCACHE_REQUIRE_DEPLOY") == "1" {
			t.Fatal(err)
		}
		t.Skipf("there is no %s here", name)
	}
	return path
}

// TestDeploy_Unit: systemd finds no fault with the unit file, and finds one that is put in.
func TestDeploy_Unit(t *testing.T) {
	t.Parallel()
	text := deployed(t, "tensorcached.service")
	analyze := tool(t, "systemd-analyze")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) string {
		path := filepath.Join(t.TempDir(), "tensorcached.service")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/local/bin/tensorcached", self)), 0o644); err != nil {
			t.Fatal(err)
		}
		// Its exit status is also of other units of the machine.
		out, _ := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=one", path).CombinedOutput()
		return string(out)
	}
	if out := check(text); strings.Contains(out, "tensorcached.service") {
		t.Errorf("%s", out)
	}
	for of, fault := range map[string]string{"WatchdogSec=1min": "WatchdogSec=soon", "Restart=on-failure": "Restart=perhaps"} {
		if out := check(strings.Replace(text, of, fault, 1)); !strings.Contains(out, "tensorcached.service") {
			t.Errorf("no fault found with %s: %s", fault, out)
		}
	}
}

// TestDeploy_Dockerfile: buildah builds the image, with this program in place of the first stage's and a base that has the C library alone, and the image serves a table as its
// user. It does not take a file that is not there.
func TestDeploy_Dockerfile(t *testing.T) {
	t.Parallel()
	text := deployed(t, "Dockerfile")
	path, store := tool(t, "buildah"), t.TempDir()
	buildah := func(args ...string) *exec.Cmd {
		return exec.Command(path, append([]string{"--root", store + "/root", "--runroot", store + "/run", "--storage-driver", "vfs"}, args...)...)
	}
	defer buildah("rmi", "--all", "--force").Run() // its folders may be read-only
	must := func(args ...string) string {
		t.Helper()
		out, err := buildah(args...).Output()
		if err != nil {
			var stderr []byte
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				stderr = failed.Stderr
			}
			t.Fatalf("buildah %q: %v\n%s%s", args, err, out, stderr)
		}
		return strings.TrimSpace(string(out))
	}
	copied := func(to string, files ...string) (dir string) {
		dir = t.TempDir()
		for _, file := range files {
			b, err := os.ReadFile(file)
			at := filepath.Join(dir, cmp.Or(to, file))
			if err := errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	libraries, _ := exec.Command("ldd", self).Output() // none of a static program
	base := must("from", "scratch")
	must("copy", base, copied("", regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1)...), "/")
	must("commit", base, "docker.io/library/"+regexp.MustCompile(`(?m)^FROM (\S+)$`).FindStringSubmatch(text)[1])

	stage := copied("src/build/tensorcached", self)
	if err := os.CopyFS(stage, os.DirFS(copied("etc/ssl/certs/ca-certificates.crt", "../../LICENSE"))); err != nil {
		t.Fatal(err)
	}
	build := []string{"bud", "--isolation", "chroot", "--build-context", "build=" + stage, "-f", "../../deploy/Dockerfile", "-t", "tensorcached", copied("LICENSE", "../../LICENSE")}
	must(build...)
	build[len(build)-1] = t.TempDir()
	if out, err := buildah(build...).CombinedOutput(); err == nil {
		t.Errorf("an image without its licence was built:\n%s", out)
	}

	container := must("from", "localhost/tensorcached")
	if of := must("inspect", "--format", "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.Config.StopSignal}}", container); of != "[/usr/local/bin/tensorcached] 1000:1000 SIGTERM" {
		t.Errorf("entry point, user and signal %q", of)
	}
	data := copied("users.npy", features(t, "users.npy", 1000, 16))
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	p := launch(t, buildah("run", "--isolation", "chroot", "--env", asCommand+"=1", "--volume", data+":/data:ro", container, "--",
		"/usr/local/bin/tensorcached", "--features", "/data/users.npy", "--device", "host", "--gpu-memory", "32KiB", "--http", "127.0.0.1:0"))
	if s := p.stats(); len(s.Tables) != 1 || s.Tables[0].RowsCached == 0 {
		t.Errorf("%+v", s)
	}
	p.signal(syscall.SIGTERM) // upon which buildah kills what it has isolated by chroot
	p.wait()
}

// TestDeploy_Chart: the chart is of this version.
func TestDeploy_Chart(t *testing.T) {
	t.Parallel()
	var chart struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "helm/Chart.yaml")), &chart); err != nil || chart.Version != version.Number || chart.AppVersion != version.Number {
		t.Errorf("the chart is of %+v, this is %s: %v", chart, version.Number, err)
	}
}

// TestDeploy_AppArmor: the profile parses, and one with a fault does not.
func TestDeploy_AppArmor(t *testing.T) {
	t.Parallel()
	text, parser := deployed(t, "apparmor"), tool(t, "apparmor_parser")
	for of, bad := range map[string]bool{text: false, strings.Replace(text, "capability ipc_lock", "capability lock_ipc", 1): true} {
		if out, err := exec.Command(parser, "--skip-kernel-load", "--skip-cache", write(t, "profile", []byte(of))).CombinedOutput(); (err != nil) != bad {
			t.Errorf("with a fault %v: %v\n%s", bad, err, out)
		}
	}
}

// TestDeploy_YAML: yamllint finds no fault with the files, and finds one that is put in.
func TestDeploy_YAML(t *testing.T) {
	t.Parallel()
	files := map[string]string{"kubernetes.yaml": "", "tensorcached.yaml": ""}
	for name := range files {
		files[name] = deployed(t, name)
	}
	lint := tool(t, "yamllint")
	const rules = "{extends: relaxed, rules: {line-length: disable, key-duplicates: enable, truthy: enable}}"
	for name, text := range files {
		for _, bad := range []bool{false, true} {
			if bad {
				text += "\nbudget: 1GiB\nbudget: 2GiB\n" // twice
			}
			out, err := exec.Command(lint, "--strict", "-d", rules, write(t, name, []byte(text))).CombinedOutput()
			if (err != nil) != bad {
				t.Errorf("%s, with a fault %v: %v\n%s", name, bad, err, out)
			}
		}
	}
}

// container is what the test reads of a container.
type container struct {
	Name  string
	Args  []string
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	Resources struct{ Claims []struct{ Name string } }
}

// TestDeploy_Kubernetes: the manifest parses, its configuration is one that tensorcached takes, and what its parts name is there: volumes, ports, claims.
func TestDeploy_Kubernetes(t *testing.T) {
	t.Parallel()
	d := yaml.NewDecoder(bytes.NewReader([]byte(deployed(t, "kubernetes.yaml"))))
	kinds := []string{}
	config, templates := "", []string{}
	var pod struct {
		InitContainers, Containers []container
		Volumes                    []struct{ Name string }
		ResourceClaims             []struct {
			Name     string
			Template string `yaml:"resourceClaimTemplateName"`
		} `yaml:"resourceClaims"`
		Share bool `yaml:"shareProcessNamespace"`
	}
	for {
		var doc struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Name string }
			Data       map[string]string
			Spec       yaml.RawMessage
		}
		err := d.Decode(&doc)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, doc.APIVersion+" "+doc.Kind)
		switch doc.Kind {
		case "ConfigMap":
			config = doc.Data["tensorcached.yaml"]
		case "ResourceClaimTemplate":
			templates = append(templates, doc.Metadata.Name)
		case "Pod":
			var lower struct {
				Init []container `yaml:"initContainers"`
			}
			if err := yaml.Unmarshal(doc.Spec, &pod); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(doc.Spec, &lower); err != nil {
				t.Fatal(err)
			}
			pod.InitContainers = lower.Init
		}
	}
	if want := []string{"resource.k8s.io/v1 ResourceClaimTemplate", "v1 ConfigMap", "v1 Pod"}; !slices.Equal(kinds, want) {
		t.Fatalf("kinds %q", kinds)
	}
	c := loadable(t, config)
	all := slices.Concat(pod.InitContainers, pod.Containers)
	if len(all) != 2 || all[0].Name != "cache" || !pod.Share || len(pod.ResourceClaims) != 1 || !slices.Contains(templates, pod.ResourceClaims[0].Template) {
		t.Fatalf("%+v", pod)
	}
	if len(all[0].Ports) != 1 || !strings.HasSuffix(c.HTTP, fmt.Sprintf(":%d", all[0].Ports[0].ContainerPort)) {
		t.Errorf("port %v is not that of %s", all[0].Ports, c.HTTP)
	}
	for _, one := range all {
		shares := false
		for _, m := range one.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
				t.Errorf("container %s mounts %s, which is no volume", one.Name, m.Name)
			}
			shares = shares || strings.HasPrefix(strings.TrimPrefix(c.Listen, "unix:"), m.MountPath+"/")
		}
		if !shares || len(one.Resources.Claims) != 1 || one.Resources.Claims[0].Name != pod.ResourceClaims[0].Name {
			t.Errorf("container %s shares neither the socket's folder nor the GPU: %+v", one.Name, one)
		}
	}
}

// TestDeploy_Alerts: the rules and the dashboard of the service ask for metrics and attributes that there are, and promtool, where there is one, accepts them and their tests.
func TestDeploy_Alerts(t *testing.T) {
	t.Parallel()
	rules := deployed(t, "alerts/tensorcached.yaml")
	socket, snapshot := "unix:"+filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "snapshot")
	p := start(t, "--features", features(t, "f.npy", 1000, 4), "--gpu-memory", "4KiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--listen", socket, "--snapshot", snapshot, "--traces-exporter", "console")
	p.inline("GET f:1", "TC.GATHER f 5000", "MGET f:1 f:2")
	if _, stderr, _ := runs(t, "snapshot", "--connect", socket); stderr != "" {
		t.Error(stderr)
	}
	p.get("explain?table=f&row=x")
	_, scraped := p.get("metrics")
	var parsed struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(rules), &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed.Groups) != 1 || len(parsed.Groups[0].Rules) < 10 {
		t.Fatalf("%+v", parsed)
	}
	asked := map[string]string{} // by who asks
	for _, r := range parsed.Groups[0].Rules {
		asked[r.Alert] = r.Expr
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	b, err := os.ReadFile("../../docs/dashboards/tensorcached.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &board); err != nil || len(board.Panels) < 15 {
		t.Fatalf("%v, %d panels", err, len(board.Panels))
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			asked[p.Title] += target.Expr + "\n"
		}
	}
	for who, expr := range asked {
		for _, m := range regexp.MustCompile(`(tensorcache_\w+)(\{[^}]*\})?[\s\[=/>]`).FindAllStringSubmatch(expr+" ", -1) {
			name := m[1]
			if name == "tensorcache_errors_total" {
				continue // none has happened
			}
			if !strings.Contains(scraped, "\n"+name+"{") {
				t.Errorf("%s asks for %s, which there is not", who, name)
			}
			for _, l := range regexp.MustCompile(`(\w+)=~?"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				for value := range strings.SplitSeq(l[2], "|") {
					if l[1] != "instance" && !regexp.MustCompile(name+`\{[^}]*\b`+l[1]+`="`+value+`"`).MatchString(scraped) {
						t.Errorf("%s asks for %s of %s %q, which there is not", who, name, l[1], value)
					}
				}
			}
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool (of Debian's package prometheus) to check the rules with")
	}
	for _, args := range [][]string{{"check", "rules", "tensorcached.yaml"}, {"test", "rules", "tests.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../deploy/alerts"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(scraped)
	if out, err := check.CombinedOutput(); strings.Contains(string(out), "error while linting") {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
