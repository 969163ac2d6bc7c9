package ibp_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/ibp"
)

// TestTrain2_SavingsOnRealTables holds what 2-byte chunks save on real tables rounded to 16 bits against the least that they
// should; and clustered masks, net of their metadata, against one mask, also on the tables as they are.
func TestTrain2_SavingsOnRealTables(t *testing.T) {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	for _, c := range []struct {
		file, cast string
		least      float64 // of ibp2
	}{{"reddit.npz", "bf16", 43.5}, {"ncf_user.npy", "bf16", 25.5}, {"reddit.npz", "", 0}, {"ncf_user.npy", "", 0}, {"pubmed_tx.npz", "", 0}} {
		t.Run(c.file+" "+c.cast, func(t *testing.T) {
			table, err := dataset.Load(filepath.Join(dir, c.file))
			if errors.Is(err, fs.ErrNotExist) {
				t.Skipf("real tables are not here: %v", err)
			}
			if err == nil {
				table, err = table.Cast(c.cast)
			}
			if err != nil {
				t.Fatal(err)
			}
			saving := func(f codec.Family) (percent float64, metadata int64) {
				x, err := f.Train(table.Data, table.RowBytes, table.DType)
				if err != nil {
					t.Fatal(err)
				}
				dst, sum := make([]byte, x.EncodeBound()), 0
				for i := range int64(table.Rows) {
					n, err := x.Encode(dst, table.Row(i))
					if errors.Is(err, codec.ErrIncompressible) {
						n = table.RowBytes
					}
					sum += n
				}
				return 100 * (1 - float64(sum)/float64(len(table.Data))), x.MetadataBytes()
			}
			single := ibp.IBP4
			if c.cast != "" {
				single = ibp.IBP2
			}
			one, metadata := saving(single)
			many, clusterMetadata := saving(ibp.IBPC)
			four, _ := saving(ibp.IBP4)
			t.Logf("%s %.2f %% (%d B metadata), ibpc %.2f %% (%d B), ibp4 %.2f %%", single.Name, one, metadata, many, clusterMetadata, four)
			if one < c.least {
				t.Errorf("%s saves %.2f %%, want at least %.1f %%", single.Name, one, c.least)
			}
			if net := float64(max(0, clusterMetadata-metadata)) * 100 / float64(len(table.Data)); many-net < one-0.3 {
				t.Errorf("ibpc saves %.2f %%, %.2f net of its metadata, less than one mask's %.2f %%", many, many-net, one)
			}
		})
	}
}
