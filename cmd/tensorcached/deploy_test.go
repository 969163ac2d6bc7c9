//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

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

// TestDeploy_Unit: systemd finds no fault with the unit file.
func TestDeploy_Unit(t *testing.T) {
	t.Parallel()
	text := deployed(t, "tensorcached.service")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) (string, error) {
		dir := t.TempDir()
		path := filepath.Join(dir, "tensorcached.service")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/local/bin/tensorcached", self)), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=one", path).CombinedOutput()
		return string(out), err
	}
	if out, err := check(text); err != nil || strings.Contains(out, "tensorcached.service") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := check(strings.Replace(text, "WatchdogSec=1min", "WatchdogSec=soon", 1)); !strings.Contains(out, "soon") {
		t.Skipf("systemd-analyze finds no fault with a bad unit here: %s", out)
	}
}

// TestDeploy_Dockerfile: its instructions are Docker's, and what it copies is there. A daemon that could build it is not asked for.
func TestDeploy_Dockerfile(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(deployed(t, "Dockerfile"), "\\\n", "")
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "STOPSIGNAL", "ENTRYPOINT"}
	stages := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if !slices.Contains(known, words[0]) {
			t.Errorf("instruction %s", words[0])
		}
		switch {
		case words[0] == "FROM" && len(words) == 4 && words[2] == "AS":
			stages[words[3]] = true
		case words[0] == "RUN":
			makefile, err := os.ReadFile("../../Makefile")
			if err != nil || words[1] != "make" || !strings.Contains(string(makefile), "\n"+words[2]+":") {
				t.Errorf("%s: %v", line, err)
			}
		case words[0] == "COPY" && strings.HasPrefix(words[1], "--from="):
			from := []string{"/src/build/tensorcached", "/etc/ssl/certs/ca-certificates.crt"}
			if !stages[strings.TrimPrefix(words[1], "--from=")] || !slices.Contains(from, words[2]) {
				t.Errorf("%s copies from no stage, or neither the binary nor the certificates", line)
			}
		case words[0] == "COPY":
			if _, err := os.Stat(filepath.Join("../..", words[1])); err != nil {
				t.Error(err)
			}
		case words[0] == "ENTRYPOINT":
			if want := `ENTRYPOINT ["/usr/local/bin/tensorcached"]`; strings.TrimSpace(line) != want {
				t.Errorf("%s, want %s", line, want)
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
