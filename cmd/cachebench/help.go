package main

import "github.com/tensorcache/tensorcache/internal/flaghelp"

// flagGroups are the flags of all commands as --help lists them, under headings. A flag that several commands have is in the same group in each.
var flagGroups = []flaghelp.Group{
	{Heading: "Data", Flags: "features dtype cast row-elements generate graph vertices data-seed name trace format trace-type-params from to popularity tables base keep-base-every data"},
	{Heading: "Workload", Flags: `ids workload fanouts weighted bag pooled tokens rows orders heads layers phase text-tokens batch-size batches train-batches drift
		gets misses limit partial mix turnover degree row-bytes seed`},
	{Heading: "Cache", Flags: `target-hit gpu-memory policy codec cold link no-equal-rows resident max-overflow buddy refresh-batches refresh-interval refresh-churn refresh-bytes
		sample-rate sizes unit-size refresh-requests mrc shards-rate shards-ids points attach`},
	{Heading: "Tiers", Flags: `host-tier host-memory host-nodes prefetch cold-cache cold-cache-bytes page order stage scratch log rows-per-second
		cold-bandwidth cold-reads-per-second cold-latency`},
	{Heading: "Devices", Flags: "device devices gpus device-memory placement rates host-threads workers scale measure declare batch table-bytes runs"},
	{Heading: "Output", Flags: `out capture explain sweep seeds check verify bounds alpha title date json metrics-addr log-level config force help version`},
}
