package trace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkRead: each format, 200,000 requests.
func BenchmarkRead(b *testing.B) {
	all := requests(200_000, 1)
	for i := range all {
		all[i].Op = Get
	}
	for _, name := range []string{"x.tct", "x.tct.zst", "x.oracleGeneral", "x.oracleGeneral.zst", "x.csv", "x.arc", "x.ids"} {
		b.Run("file="+name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), name)
			w, err := Create(path, Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := errors.Join(w.Write(all), w.Close()); err != nil {
				b.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]Request, 4096)
			b.SetBytes(info.Size())
			for b.Loop() {
				r, err := Open(path, Options{})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = r.Read(buf)
				}
				if err != io.EOF {
					b.Fatal(err)
				}
				r.Close()
			}
			b.ReportMetric(float64(b.N)*float64(len(all))/b.Elapsed().Seconds()/1e6, "Mrequests/s")
		})
	}
}
