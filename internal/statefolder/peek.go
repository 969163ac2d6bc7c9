package statefolder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Table is what the cache that has had a folder says of one of its tables: the fields of package cache's manifest by which a table is known again.
type Table struct {
	Name     string `json:"name"`
	Source   string `json:"source"`
	Capacity int64  `json:"capacity"`
	Codec    string `json:"codec"`
}

// Peek returns the tables in a folder's manifest, without taking the folder. The error, if there is no manifest or if it is damaged, wraps ErrLost.
func Peek(path string) ([]Table, error) {
	m, err := (&Folder{path: path}).readManifest()
	if err != nil {
		return nil, err
	}
	var data struct{ Tables []Table }
	if err := json.Unmarshal(m.Data, &data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return data.Tables, nil
}

// Within returns the folders within a folder, those that were made first before others.
func Within(path string) (all []string) {
	made := map[string]time.Time{}
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		one := filepath.Join(path, e.Name())
		all = append(all, one)
		if info, err := os.Stat(filepath.Join(one, lockName)); err == nil { // nothing is ever written to it
			made[one] = info.ModTime()
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(made[a].Compare(made[b]), cmp.Compare(a, b)) })
	return all
}

// Forget has the next process find nothing in a folder.
func Forget(path string) {
	if path != "" {
		os.Remove(filepath.Join(path, manifestName))
	}
}
