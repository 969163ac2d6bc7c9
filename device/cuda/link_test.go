package cuda

import "testing"

func TestLinkBytes(t *testing.T) {
	for link, want := range map[string]int64{
		"32.0 GT/s PCIe x16": 63_015_384_615, "16.0 GT/s PCIe x8": 15_753_846_153, "5.0 GT/s PCIe x4": 2_000_000_000,
		"": 0, "Unknown": 0, "16.0 GT/s PCIe x0": 0, "-1 GT/s PCIe x16": 0, "NaN GT/s PCIe x16": 0, "8.0 GT/s PCIe x9999": 0,
	} {
		if got := linkBytes(link); got != want {
			t.Errorf("linkBytes(%q) = %d, want %d", link, got, want)
		}
	}
}
