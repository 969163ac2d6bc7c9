package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/serve/resp"
)

// userFile is what --resp-users names: YAML or JSON.
type userFile struct {
	Users []struct {
		Name         string   `yaml:"name"`
		PasswordFile string   `yaml:"password_file"`
		SHA256       []string `yaml:"password_sha256"` // in hexadecimal digits
		Read         []string `yaml:"read"`            // tables, or "*"
		Write        []string `yaml:"write"`
		Admin        bool     `yaml:"admin"`
	} `yaml:"users"`
}

// readUsers reads the file of --resp-users, "" for none. The error names all that is wrong.
func readUsers(path string) (all []resp.User, err error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--resp-users: %w", err)
	}
	var file userFile
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&file); err != nil && err != io.EOF {
		return nil, fmt.Errorf("--resp-users (%s): %w", path, err)
	}
	var f faults.List
	f.If(len(file.Users) == 0, "--resp-users (%s) must have a list users with at least one element", path)
	seen := map[string]bool{}
	for i, u := range file.Users {
		to := resp.User{Name: u.Name, Read: u.Read, Write: u.Write, Admin: u.Admin}
		f.If(!resp.UserName(u.Name), "--resp-users (%s): name of user %d (%q) must be 1 to 256 printable characters without spaces", path, i, u.Name)
		f.If(seen[u.Name], "--resp-users (%s): user %q must not occur twice", path, u.Name)
		seen[u.Name] = true
		if u.PasswordFile != "" {
			password, err := secret(fmt.Sprintf("--resp-users (%s): password_file of user %q", path, u.Name), u.PasswordFile, "")
			f.Add(err)
			to.Passwords = append(to.Passwords, sha256.Sum256([]byte(password)))
		}
		for _, text := range u.SHA256 {
			digest, err := hex.DecodeString(text)
			if err != nil || len(digest) != sha256.Size {
				f.Addf("--resp-users (%s): password_sha256 of user %q must be %d hexadecimal digits", path, u.Name, 2*sha256.Size)
				continue
			}
			to.Passwords = append(to.Passwords, resp.Digest(digest))
		}
		f.If(u.PasswordFile == "" && len(u.SHA256) == 0, "--resp-users (%s): user %q must have a password_file or password_sha256", path, u.Name)
		if u.Admin {
			to.Read, to.Write = []string{"*"}, []string{"*"}
		}
		all = append(all, to)
	}
	return all, f.Err()
}

// audit returns what changes of rows are recorded by, and what to close in the end. Other programs may truncate the file: each line is appended.
func (c *Config) audit(log *slog.Logger) (*slog.Logger, io.Closer, error) {
	if c.AuditLog == "" {
		return log, io.NopCloser(nil), nil
	}
	f, err := os.OpenFile(c.AuditLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("--audit-log: %w", err)
	}
	return slog.New(slog.NewJSONHandler(f, nil)), f, nil
}
