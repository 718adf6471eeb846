"""quire calibrate, and how commands find, make and refuse calibrations."""

from quire_cli import CAPITAL, MODEL, QuireTest, main, prose


class Calibrate(QuireTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.env = {"XDG_CACHE_HOME": str(self.cache), "HOME": str(self.folder / "home")}
        self.text = self.folder / "text"
        self.text.write_text(prose(2400))  # a short one: the tests are about files

    def calibrate(self, *arguments) -> dict:
        return self.ok_json("calibrate", "-m", MODEL, *arguments, env=self.env)

    def run_turbo(self, *arguments, **more):
        """A run of turbo4 on a prompt long enough to be coded."""
        return self.ok("run", "-m", MODEL, "-f", self.text, "-n", 8, "--temp", 0, "--kv", "turbo4", *arguments,
                       **{"env": self.env, **more})

    def kept(self) -> list:
        return list(self.cache.glob("quire/*"))

    def test_made_at_the_first_use_and_found_again(self):
        first = self.run_turbo()
        self.assertRegex(first.stderr.decode(), r"\Acalibrated the model in [\d.]+ s, kept in " + str(self.cache))
        files = self.kept()
        self.assertEqual([file.suffix for file in files], [".calibration"])
        second = self.run_turbo()
        self.assertNotIn(b"calibrated", second.stderr)
        self.assertEqual(second.stdout, first.stdout)
        self.assertEqual(self.kept(), files)

    def test_own_text_is_the_default_of_calibrate(self):
        result = self.calibrate()
        self.assertTrue(3000 <= result["tokens"] <= 5000, result)
        self.assertEqual(result["windows"], 1)
        self.assertEqual(result["file"], str(self.kept()[0]))
        self.assertTrue(0 < result["balance_least"] < 1 < result["balance_most"], result)
        self.assertNotIn(b"calibrated", self.run_turbo().stderr)

    def test_own_files_and_threads(self):
        first, second = self.folder / "first", self.folder / "second"
        common = ("-f", self.text, "-f", self.text)
        result = self.calibrate(*common, "-o", first, "-t", 1)
        self.assertEqual((result["file"], result["windows"]), (str(first), 2))
        self.calibrate(*common, "-o", second, "-t", 2)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(self.kept(), [])
        self.assertEqual(list(self.folder.glob("*.new-*")), [])
        done = self.run_turbo("--calibration", first)
        self.assertNotIn(b"calibrated", done.stderr)
        self.assertEqual(self.kept(), [])

    def test_text_form(self):
        done = self.ok("calibrate", "-m", MODEL, "-f", self.text, env=self.env)
        self.assertRegex(done.stdout.decode(), r"\Acalibrated on \d+ tokens in [\d.]+ s, written to " + str(self.cache))

    def test_recipes_that_need_none_make_none(self):
        for recipe in ("full", "kivi4", "turbo4(frame=rotated)"):
            self.ok("run", "-m", MODEL, "-p", CAPITAL, "-n", 1, "--kv", recipe, env=self.env)
        self.assertFalse(self.cache.exists())

    def test_a_place_that_cannot_be_written_is_a_note(self):
        self.cache.write_text("a file where the folder would be")
        done = self.run_turbo()
        self.assertRegex(done.stderr.decode(), r"\Acalibrated the model in [\d.]+ s, not kept: [^\n]+\n")
        homeless = self.run_turbo(env={"XDG_CACHE_HOME": "", "HOME": ""})
        self.assertIn(b"no home folder", homeless.stderr)
        self.assertEqual(homeless.stdout, done.stdout)

    def test_damage(self):
        path = self.folder / "damaged"
        self.calibrate("-f", self.text, "-o", path)
        whole = path.read_bytes()
        run = ("run", "-m", MODEL, "-p", CAPITAL, "--kv", "turbo4", "--calibration")
        for data, says in ((whole[:-9], "cut short"), (whole[:5000] + b"\xff\xff\xff\xff" + whole[5004:], "checksum"),
                           (b"GGUF" + whole, "no calibration file"), (b"", "no calibration file")):
            path.write_bytes(data)
            self.refused(*run, path, says=says, env=self.env)
        self.refused(*run, self.folder / "missing", says="missing", env=self.env)
        self.refused(*run, self.folder, says="directory", env=self.env)

    def test_bad_input(self):
        self.text.write_text("too short")
        self.refused("calibrate", "-m", MODEL, "-f", self.text, says="256", env=self.env)
        self.refused("calibrate", "-m", MODEL, "-f", self.folder / "none", says="none", env=self.env)
        self.refused("calibrate", says="--model", env=self.env)
        self.refused("calibrate", "-m", MODEL, "-t", 0, says="--threads", env=self.env)
        self.assertEqual(self.kept(), [])
        self.text.write_text(prose(2000))
        for output in (self.folder, "/dev/null", self.folder / "none" / "file"):
            self.refused("calibrate", "-m", MODEL, "-f", self.text, "-o", output, says="cannot write", env=self.env)


if __name__ == "__main__":
    main()
