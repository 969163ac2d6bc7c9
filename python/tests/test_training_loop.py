"""The parts of lab/python, and a small run of it on the CPU."""

import importlib.util
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "lab" / "python"
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch_geometric") is None:
    raise unittest.SkipTest("torch or torch_geometric is not installed")
sys.path.insert(0, str(BENCHMARKS))

import torch  # noqa: E402

import methods  # noqa: E402
import model  # noqa: E402
import training_loop  # noqa: E402
from features import Features  # noqa: E402
from graph import MEAN_DEGREE, Sampler, power_law  # noqa: E402

CPU = torch.device("cpu")
SMALL = ["--quick", "--device", "cpu", "--workers", "1"]


def setUpModule() -> None:
    """On a busy machine, threads that wait for each other are slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unittest.addModuleCleanup(torch.set_num_threads, threads)


class TestGraph(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = power_law(50_000, CPU)
        self.degree = self.graph.indptr.diff()

    def test_shape(self) -> None:
        g = self.graph
        self.assertEqual((int(g.indptr[0]), int(g.indptr[-1])), (0, len(g.indices)))
        self.assertAlmostEqual(len(g.indices) / g.nodes, MEAN_DEGREE, delta=0.1)
        self.assertTrue(0 <= int(g.indices.min()) and int(g.indices.max()) < g.nodes)
        # The law: edges point to a node about as often as it has edges itself, and a tenth of the nodes has about half of them.
        pointed = torch.bincount(g.indices, minlength=g.nodes)
        self.assertGreater(torch.corrcoef(torch.stack((pointed, self.degree)).float())[0, 1], 0.98)
        self.assertTrue(0.45 < pointed.sort(descending=True).values[: g.nodes // 10].sum() / len(g.indices) < 0.65)

    def test_sample(self) -> None:
        g, fanouts = self.graph, [15, 10, 5]
        sampler = Sampler(g, fanouts)
        seeds = g.training_nodes[:64]
        b = sampler.sample(seeds, 3)
        self.assertTrue(torch.equal(b.ids[:64], seeds))
        self.assertEqual(len(b.ids.unique()), len(b.ids))
        self.assertEqual((b.nodes[-1], b.edges[-1]), (len(b.ids), len(b.src)))
        self.assertTrue((sampler.local == -1).all())
        # Every node but those of the last hop has as many edges as it has, up to the fan-out.
        drawn = torch.bincount(b.dst, minlength=len(b.ids))
        for h, fanout in enumerate(fanouts):
            part = slice(b.nodes[h - 1] if h else 0, b.nodes[h])
            self.assertTrue(torch.equal(drawn[part], self.degree[b.ids[part]].clamp(max=fanout)))
        self.assertEqual(int(drawn[b.nodes[-2] :].sum()), 0)
        # No edge is drawn oftener than the graph has it.
        edges = torch.arange(g.nodes).repeat_interleave(self.degree) * g.nodes + g.indices
        have, count = edges.unique(return_counts=True)
        asked, times = (b.ids[b.dst] * g.nodes + b.ids[b.src]).unique(return_counts=True)
        at = torch.searchsorted(have, asked).clamp(max=len(have) - 1)
        self.assertTrue(torch.equal(have[at], asked) and bool((times <= count[at]).all()))
        self.assertEqual(set(sampler.sample(seeds, 3).ids.tolist()), set(b.ids.tolist()))
        self.assertNotEqual(set(sampler.sample(seeds, 4).ids.tolist()), set(b.ids.tolist()))

    def test_sample_is_uniform(self) -> None:
        node = int((self.degree - 40).abs().argmin())  # of about 40 edges
        sampler, edges = Sampler(self.graph, [10]), int(self.degree[node])
        counts = torch.zeros(self.graph.nodes)
        for seed in range(600):
            b = sampler.sample(torch.tensor([node]), seed)
            counts += torch.bincount(b.ids[b.src], minlength=self.graph.nodes)
        first, last = self.graph.indptr[node : node + 2].tolist()
        want = torch.bincount(self.graph.indices[first:last], minlength=self.graph.nodes) * 600 * 10 / edges
        self.assertLess(float((counts - want).abs().max()), 0.35 * 600 * 10 / edges)


class TestGPUSampler(unittest.TestCase):
    def test_same_edges(self) -> None:
        """The kernels draw the edges that torch's operations draw."""
        if not torch.cuda.is_available() or methods.cupy is None:
            self.skipTest("needs a GPU and CuPy")
        from gpu_sampler import GPUSampler

        graph, fanouts = power_law(50_000, torch.device("cuda")), [15, 10, 5]
        one, other = Sampler(graph, fanouts), GPUSampler(graph, fanouts)
        for count, seed in ((1, 1), (64, 3), (1000, 4), (1000, 5)):
            seeds = graph.training_nodes[:count] if count <= len(graph.training_nodes) else torch.arange(count, device="cuda")
            want, got = one.sample(seeds, seed), other.sample(seeds, seed)
            self.assertEqual((want.nodes, want.edges), (got.nodes, got.edges))
            self.assertTrue(torch.equal(got.ids[:count], seeds))
            self.assertTrue((other.local == -1).all())
            for h in range(len(fanouts)):
                edges = slice(want.edges[h], want.edges[h + 1])
                pairs = [(b.ids[b.dst[edges]] * graph.nodes + b.ids[b.src[edges]]).sort().values for b in (want, got)]
                self.assertTrue(torch.equal(*pairs))


class TestModel(unittest.TestCase):
    def test_bounds(self) -> None:
        """Edges and nodes beyond those of a batch change no score of its seeds."""
        graph = power_law(5_000, CPU)
        batch = Sampler(graph, [4, 3, 2]).sample(graph.training_nodes[:20], 1)
        sage = model.SAGE(8, 3)
        x = torch.randn(len(batch.ids), 8)
        more = model.Batch(batch.ids, batch.src, batch.dst, [n + n // 20 + 2 for n in batch.nodes], [n + 9 for n in batch.edges])
        pad = torch.full((9,), more.nodes[-1])
        more.src, more.dst = torch.cat((batch.src, pad)), torch.cat((batch.dst, pad))
        self.assertTrue(model.fits(batch, more))
        self.assertFalse(model.fits(batch, batch))
        found = sage(torch.cat((x, torch.randn(more.nodes[-1] - len(x), 8))), more, bounds=True)
        torch.testing.assert_close(found[:20], sage(x, batch))

    def test_graph(self) -> None:
        """A step of the CUDA graph has the gradients of a step without it, and changes the weights; so has one of a batch that is too large for it."""
        if not torch.cuda.is_available():
            self.skipTest("needs a GPU")
        gpu = torch.device("cuda")
        graph = power_law(20_000, gpu)
        sampler = Sampler(graph, [4, 3, 2])
        batches = [sampler.sample(graph.training_nodes[i * 30 : (i + 1) * 30], i) for i in range(5)]
        larger = sampler.sample(graph.training_nodes[150:210], 6)
        one, other = model.Trainer(8, 3, gpu), model.GraphTrainer(8, 3, gpu, torch.float32, batches)

        def weights(trainer: model.Trainer) -> list[torch.Tensor]:
            return [p.detach().clone() for p in trainer.model.parameters()]

        for b in [*batches[:3], larger]:
            one.model.load_state_dict(other.model.state_dict())
            before, x = weights(other), torch.randn(len(b.ids), 8, device=gpu)
            one.step(x, b)
            other.step(x, b)
            torch.testing.assert_close(*([p.grad for p in t.model.parameters()] for t in (one, other)), rtol=1e-3, atol=1e-5)
            self.assertTrue(all(not torch.equal(*pair) for pair in zip(before, weights(other))))
        before = weights(other)
        other.step(torch.randn(len(batches[3].ids), 8, device=gpu), batches[3])
        self.assertTrue(all(not torch.equal(*pair) for pair in zip(before, weights(other))))


class TestFeatures(unittest.TestCase):
    def test_equal(self) -> None:
        for dtype in training_loop.DTYPES.values():
            table = Features(100, 8, dtype, CPU)
            table.rows[3, 2] = float("nan")
            ids = torch.tensor([3, 99, 3, 0])
            found = table.rows[ids]
            self.assertTrue(table.equal(ids, found))
            bits = found.view(torch.uint8)
            bits[1, 5] ^= 1
            self.assertFalse(table.equal(ids, found))
            self.assertFalse(table.equal(ids, found[:3]))
            self.assertFalse(table.equal(ids, found.double()))


class TestRun(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "results.json"
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())

    def test_quick(self) -> None:
        """All that a machine without GPU can run, and the fields of the results."""
        if importlib.util.find_spec("tensorcache") is None:
            self.skipTest("tensorcache is not installed")
        training_loop.main([*SMALL, "--out", str(self.out)])
        report = json.loads(self.out.read_text())
        self.assertEqual({t["dtype"] for t in report["tables"]}, {"float32", "bfloat16"})
        self.assertEqual(len(report["results"]), 2 * 4)
        for r in report["results"]:
            self.assertLessEqual({"table_rows", "row_bytes", "dtype", "budget", "method", "fetch_ms", "iteration_ms", "hit_ratio", "verified"}, r.keys())
            self.assertTrue(r["verified"] and 0 < r["fetch_ms"] < r["iteration_ms"] and r["pipelined_ms"] > 0)
            self.assertEqual(r["hit_ratio"] > 0.1, r["method"].startswith("tensorcache"))
            self.assertLessEqual(r["host_bytes"], (r["batch_rows"] + 1) * r["row_bytes"])  # both are rounded

    def test_wrong_rows(self) -> None:
        """A method that returns other rows ends the run, and nothing is written."""
        fetch = methods.CPUGather.fetch
        with unittest.mock.patch.object(methods.CPUGather, "fetch", lambda self, ids: fetch(self, ids).roll(1, 0)):
            with self.assertRaisesRegex(SystemExit, "CPU gather, copy must be the table's rows"):
                training_loop.main([*SMALL, "--codecs", "", "--loader-nodes", "0", "--out", str(self.out)])
        self.assertFalse(self.out.exists())

    def test_arguments(self) -> None:
        for wrong in (["--dtypes", "int8"], ["--budgets", "0,1"], ["--iterations", "2"], ["--nodes", "0"]):
            with self.assertRaises(SystemExit), unittest.mock.patch("sys.stderr"):
                training_loop.main([*wrong, "--device", "cpu"])


if __name__ == "__main__":
    unittest.main()
