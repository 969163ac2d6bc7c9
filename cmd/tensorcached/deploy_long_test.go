//go:build long && linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestLong_Helm: helm finds no fault with the chart. What it writes has a configuration that tensorcached takes, and containers without root on a read-only file system. It takes no
// service that everybody reaches unless that is said. Building helm takes minutes the first time.
func TestLong_Helm(t *testing.T) {
	helm, err := filepath.Abs("../../build/helm")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", helm, "helm.sh/helm/v3/cmd/helm")
	build.Dir, build.Env = "../../tools/helm", append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building helm: %v\n%s", err, out)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(helm, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("lint", "--strict", "--set", "secret=cache", "../../deploy/helm"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("template", "cache", "../../deploy/helm"); err == nil || !strings.Contains(out, "secret must name a secret") {
		t.Errorf("a service for everybody was made: %s", out)
	}
	for _, set := range []string{"secret=cache,data.claim=tables", "insecure=true,gpus=0,ports.resp=0"} {
		out, err := run("template", "cache", "../../deploy/helm", "--set", set)
		if err != nil {
			t.Fatalf("%s: %v\n%s", set, err, out)
		}
		kinds := 0
		for d := yaml.NewDecoder(bytes.NewReader([]byte(out))); ; kinds++ {
			var doc struct {
				Kind string
				Data map[string]string
				Spec struct {
					Template struct {
						Spec struct {
							SecurityContext map[string]any `yaml:"securityContext"`
							Containers      []struct {
								SecurityContext map[string]any `yaml:"securityContext"`
								Resources       struct{ Limits map[string]any }
							}
						}
					}
				}
			}
			if d.Decode(&doc) != nil {
				break
			}
			switch pod := &doc.Spec.Template.Spec; doc.Kind {
			case "ConfigMap":
				text := strings.NewReplacer("/secret/password", write(t, "password", []byte("x")), "/secret/token", write(t, "token", []byte("x"))).Replace(doc.Data["tensorcached.yaml"])
				if c := loadable(t, text); c.Insecure != (set[0] == 'i') || c.RESP == "" != strings.Contains(set, "resp=0") {
					t.Errorf("%s: %+v", set, c)
				}
			case "StatefulSet":
				one := pod.Containers[0]
				if pod.SecurityContext["runAsNonRoot"] != true || one.SecurityContext["readOnlyRootFilesystem"] != true || one.SecurityContext["allowPrivilegeEscalation"] != false {
					t.Errorf("%s: %+v", set, pod)
				}
				if (one.Resources.Limits["nvidia.com/gpu"] == nil) != strings.Contains(set, "gpus=0") {
					t.Errorf("%s: %v", set, one.Resources)
				}
			}
		}
		if kinds != 3 {
			t.Errorf("%s: %d manifests", set, kinds)
		}
	}
}
