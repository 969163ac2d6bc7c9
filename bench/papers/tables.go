package papers

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// source is a table of a paper: a file of the data folder, or a stand-in.
type source struct{ name, file, standIn string }

// ibp: Invariant Bit Packing, EuroSys '26.
func (r *run) ibp(context.Context) error {
	const paper = "ibp"
	for _, c := range []struct {
		source
		claimed float64
	}{
		{source{"Pubmed", "pubmed_tx.npz", "shares"}, 7.35}, {source{"Citeseer", "", "places"}, 25.09}, {source{"Cora", "cora.npz", "places"}, 26.34},
		{source{"Reddit", "reddit.npz", "documents"}, 1.14}, {source{"Products", "", "documents"}, 1.12},
	} {
		r.o.Progress("compressing " + c.name)
		t, about, err := r.table(c.file, c.standIn)
		if err != nil {
			return err
		}
		_, lengths, err := stored(t, "ibp", r.o.Seed)
		if err != nil {
			return err
		}
		name, most, err := best(t, r.o.Seed)
		if err != nil {
			return err
		}
		ours := ratio(t, lengths)
		r.add(paper, "Table 5", "compression ratio of features, "+c.name, times(c.claimed), fmt.Sprintf("%s (%s: %s)", times(ours), name, times(most)), held(ratios(c.claimed, ours), about, c.file), about)
	}
	t, about, err := r.table("ncf_user.npy", "documents")
	if err != nil {
		return err
	}
	clustered, lengths, err := stored(t, "ibpc", r.o.Seed)
	if err != nil {
		return err
	}
	_, single, err := stored(t, "ibp4", r.o.Seed)
	if err != nil {
		return err
	}
	r.add(paper, "Figure 14", fmt.Sprintf("clusters of masks save more than one mask (%s, at most 256 clusters)", clustered.Name()), "yes",
		fmt.Sprintf("%s, one mask %s", times(ratio(t, lengths)), times(ratio(t, single))), compare(ratio(t, lengths)/ratio(t, single)-1, 0.001), about)
	bench := "go -C lab run . bench --cases %s"
	r.gpu(paper, "Tables 1 to 3, figures 5, 7 and 8", "transfers of random rows of sparse tables, all misses, beside zero-copy of raw rows", "9.7 ×", fmt.Sprintf(bench, "gather-misses,miss-fetch"))
	r.gpu(paper, "Figure 10", "lookups of 26 tables beside lookups by processors", "2.8 ×", fmt.Sprintf(bench, "embedding-bag"))
	r.gpu(paper, "Figure 11", "bytes of a key-value cache that are moved", "37 % less", "")
	return nil
}

// buddy: Buddy Compression, ISCA '20.
func (r *run) buddy(context.Context) error {
	const paper = "buddy"
	for _, c := range []struct {
		source
		claimed float64
		class   string
	}{
		{source{"features of a graph", "reddit.npz", "documents"}, 1.5, "deep learning"}, {source{"embeddings", "ncf_user.npy", "documents"}, 1.5, "deep learning"},
		{source{"bags of words", "pubmed_tx.npz", "shares"}, 1.5, "deep learning"}, {source{"a weather model", "", "weather"}, 1.9, "HPC"},
	} {
		t, about, err := r.table(c.file, c.standIn)
		if err != nil {
			return err
		}
		name, _, err := best(t, r.o.Seed)
		if err != nil {
			return err
		}
		_, lengths, err := stored(t, name, r.o.Seed)
		if err != nil {
			return err
		}
		h := buddy.NewHistogram(t.RowBytes)
		for _, n := range lengths {
			h.Add(int(n), 1)
		}
		choice := h.Least(buddy.Threshold)
		r.add(paper, "abstract, Figure 7", "capacity by fixed slots, at most 30 % of the rows longer: "+c.class+", "+c.name, times(c.claimed),
			fmt.Sprintf("%s (slots of %d of %d B, %s longer, %s)", times(choice.Gain), choice.Target, t.RowBytes, percent(100*choice.Overflow), name), held(ratios(c.claimed, choice.Gain), about, c.file), about)
	}
	r.gpu(paper, "Figures 9 and 10", "reads of rows with overflow, beside an ideal GPU with that memory, and beside managed memory", "within 2 %", "go -C lab run . bench --cases buddy-hits,buddy-overflow")
	return nil
}

// sleek and ndzip are codecs of floating-point arrays.
func (r *run) sleek(context.Context) error {
	if err := r.golden("sleek"); err != nil {
		return err
	}
	r.gpu("sleek", "evaluation, A100", "lossless decoding, beside a copy of as many bytes", "0.90", "go -C lab run . bench --cases hit-codecs --codecs sleek")
	r.gpu("sleek", "evaluation, A100", "lossless encoding, beside a copy of as many bytes", "0.79", "go -C lab run . bench --cases buddy-updates")
	r.gpu("sleek", "evaluation, A100", "decoding with bounds of 1e-1 to 1e-6 of the range, beside a copy", "0.99 to 1.40", "go -C lab run . bench --cases hit-codecs --codecs sleek-eb")
	return nil
}

func (r *run) ndzip(context.Context) error {
	return r.golden("ndzip")
}

// golden measures a codec of arrays in its paper's own blocks: rows of 4096 elements for ndzip, of 16 KiB for SLEEK. What the original programs wrote of the same arrays is
// the claim; the sizes are those of the files that they made.
func (r *run) golden(name string) error {
	const block = 4096 // elements
	for _, c := range []struct {
		file  string
		of    dtype.Type
		bytes map[string]float64
	}{
		{"sz_testfloat.npy", dtype.Float32, map[string]float64{"ndzip": 22296, "sleek": 27984}},
		{"sz_testdouble.npy", dtype.Float64, map[string]float64{"ndzip": 315536}},
	} {
		claimed := c.bytes[name]
		if claimed == 0 {
			continue
		}
		t, about, err := r.table(c.file, "weather")
		if err != nil {
			return err
		}
		rowBytes := min(block*c.of.Size(), len(t.Data))
		whole := tableOf(t.Name, t.DType, t.Data, rowBytes)
		_, lengths, err := stored(whole, name, r.o.Seed)
		if err != nil {
			return err
		}
		all, said := 0.0, fmt.Sprintf("%.0f B", claimed)
		for _, n := range lengths {
			all += float64(n)
		}
		all += float64(len(t.Data) - int(whole.Bytes()))
		if about != c.file {
			r.add(name, "the original program", "bytes of an array of "+c.of.String(), said+" (sample of SZ)", percent(100*(1-all/float64(len(t.Data))))+" saved", OtherData, about+", as the sample is not here")
			continue
		}
		r.add(name, "the original program", "bytes of an array of "+c.of.String(), said, fmt.Sprintf("%.0f B", all), compare(claimed/all-1, 0.02), about)
	}
	return nil
}
