"""place=host and place=disk: the same text, the memory limit, and what is left of a disk tier whatever happens."""

import os
import resource
import signal
import subprocess
import time

from quire_cli import MODEL, QUIRE, SANITIZED, TIMEOUT_S, QuireTest, main, prose

N = 4 if SANITIZED else 16


class Tier(QuireTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text(prose(1800))
        self.slabs = self.folder / "slabs"
        self.slabs.mkdir()

    def go(self, recipe: str, *arguments) -> dict:
        return self.ok_json("run", "-m", MODEL, "-f", self.text, "-n", N, "--temp", 0, "--ignore-eos", "--kv", recipe, *arguments)

    def disk(self, settings: str = "") -> str:
        return f"place=disk(path={self.slabs}{settings})"

    def test_text_is_the_same_wherever_rows_lie(self):
        for recipe in ("full", "turbo4(frame=rotated)", "quire(frame=rotated)", "butler(budget=20%,interval=4,neighbours=on)"):
            memory = self.go(recipe)
            self.assertNotIn("tier", memory)
            host, disk, threads = "place=host(cache=300K)", self.disk(",cache=300K"), self.disk(",cache=300K,device=threads")
            for place in (host, disk, threads) if recipe == "full" else (disk,):
                run = self.go(f"{recipe},{place}")
                self.assertEqual(run["tokens"], memory["tokens"], f"{recipe} {place}")
                self.assertEqual(run["recipe"], f"{recipe},{place}")
                tier = run["tier"]
                self.assertIn(tier["device"], ("memory", "io_uring", "threads"))
                self.assertGreater(tier["outside_tokens"], 255)
                self.assertGreater(tier["outside_bytes"], 0)
                self.assertGreater(tier["fetched_bytes_per_token"], 0)
                self.assertLess(run["kv_bytes"], memory["kv_bytes"])
        self.assertEqual(os.listdir(self.slabs), [])

    def test_chunks_and_files(self):
        memory = self.go("full", "--chunk", 100)
        kv = self.folder / "a.kv"
        run = self.go(f"full,{self.disk(',cache=300K')}", "--chunk", 100, "--save-kv", kv)
        self.assertEqual(run["tokens"], memory["tokens"])
        more = [self.ok_json("run", "-m", MODEL, "--load-kv", kv, "--kv", recipe, "-n", N, "--temp", 0, "--ignore-eos")["tokens"]
                for recipe in ("full", f"full,{self.disk()}")]
        self.assertEqual(*more)

    def test_the_limit_of_memory_holds(self):
        memory = self.go("full")
        recipe = f"full,{self.disk()}"
        run = self.go(recipe, "--chunk", 128, "--kv-ram-mb", 10)
        self.assertEqual(run["tokens"], memory["tokens"])
        self.assertLessEqual(run["tier"]["peak_bytes"], 10_000_000)
        self.assertEqual(run["tier"]["limit_bytes"], 10_000_000)
        self.assertGreater(memory["kv_bytes"], 10_000_000)
        self.refused("run", "-m", MODEL, "-f", self.text, "-n", 1, "--kv", recipe, "--kv-ram-mb", 2, says="2000000")
        self.refused("run", "-m", MODEL, "-f", self.text, "-n", 1, "--kv", recipe, "--kv-ram-mb", 0.1, says="100000")

    def test_what_cannot_be_is_refused(self):
        for recipe, says in (("h2o,place=host", "drops"), ("streaming,place=host", "drops"), ("full,place=moon", "moon"),
                             ("full,place=disk", "path=FOLDER"), ("full,place=disk(path=/nowhere)", "/nowhere"),
                             (f"full,place=disk(path={MODEL})", "Not a directory"), ("full,place=host(path=/tmp)", "path"),
                             ("full,place=host(size=0)", "size="), ("full,place=host(size=9999T)", "size="),
                             ("full,place=host(ahead=-1)", "ahead"), ("full,place=host,place=host", "place"),
                             ("full,place=host(ahead=1,ahead=2)", "twice")):
            self.refused("run", "-m", MODEL, "-p", "x", "-n", 1, "--kv", recipe, says=says)
        self.refused("run", "-m", MODEL, "-p", "x", "--kv-ram-mb", -1, says="--kv-ram-mb")
        listed = self.ok("recipes").stdout.decode()
        self.assertIn("place=disk(path=...)", listed)
        self.assertIn("place=host", listed)

    def test_a_full_disk_ends_the_run(self):
        self.refused("run", "-m", MODEL, "-f", self.text, "-n", 4, "--kv", f"full,{self.disk(',size=1M')}", says="1000000 bytes (size=)")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

        done = subprocess.run([QUIRE, "run", "-m", MODEL, "-f", self.text, "-n", "4", "--kv", f"full,{self.disk()}"],
                              capture_output=True, preexec_fn=limit, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, b"")
        self.assertIn(b"could not be written at offset", done.stderr)
        self.assertEqual(os.listdir(self.slabs), [])

    def start(self, *arguments) -> tuple[subprocess.Popen, str]:
        """A run that has a slab with something in it: the process, and the slab's place in /proc."""
        process = subprocess.Popen([QUIRE, "run", "-m", MODEL, "-f", self.text, "-n", "2000", "--ignore-eos", "--temp", "0", "--json",
                                    *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and process.poll() is None:
            for name in os.listdir(f"/proc/{process.pid}/fd"):
                path = f"/proc/{process.pid}/fd/{name}"
                try:
                    if os.readlink(path).startswith(f"{self.slabs}/") and os.stat(path).st_size > 0:
                        return process, path
                except OSError:
                    continue
            time.sleep(0.01)
        self.fail(f"no slab was seen: {process.stderr.read().decode()}")

    def test_nothing_is_left_after_signals(self):
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process, _ = self.start("--kv", f"full,{self.disk()}")
            self.assertEqual(os.listdir(self.slabs), [])
            process.send_signal(sent)
            process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(os.listdir(self.slabs), [])

    def test_a_slab_that_is_cut_short_ends_the_run(self):
        for device in ("best", "threads"):
            process, slab = self.start("--kv", f"full,{self.disk(f',cache=1K,device={device}')}")
            os.truncate(slab, 0)
            out, error = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 2, error)
            self.assertEqual(out, b"")
            # What the prompt writes behind its end makes it long again, with a hole.
            self.assertRegex(error, rb"read at offset \d+: the slab has been cut short|offset \d+ are not what was written")

    def test_bytes_that_change_end_the_run(self):
        process, slab = self.start("--kv", f"full,{self.disk(',cache=1K')}")
        size = os.stat(slab).st_size
        with open(slab, "r+b", buffering=0) as file:
            for at in range(0, size, 2048):
                os.pwrite(file.fileno(), b"\x55" * 8, at)
        out, error = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out), (2, b""), error)
        self.assertIn(b"are not what was written there", error)

    def test_what_dead_processes_left_is_removed(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        dead, alive, other = (self.slabs / f"quire-slab-{name}" for name in
                              (f"{gone.pid}-0123456789abcdef", f"{os.getpid()}-0123456789abcdef", "notes"))
        for path in (dead, alive, other):
            path.write_text("x")
        self.go(f"full,{self.disk()}")
        self.assertEqual(sorted(os.listdir(self.slabs)), sorted([alive.name, other.name]))


if __name__ == "__main__":
    main()
