"""The same greedy text whatever the threads and the steps of the prefill; every instruction set runs."""

from quire_cli import CAPITAL, MODEL, SANITIZED, QuireTest, call, main, prose

N_TOKENS = 30 if SANITIZED else 150
ISAS = ("scalar", "avx2", "avx512")


class Determinism(QuireTest):
    def greedy(self, prompt: str, n: int, *arguments, **more) -> list[int]:
        return self.run_json(prompt, n, "--ignore-eos", *arguments, **more)["tokens"]

    def test_threads(self):
        prompt = prose(300 if SANITIZED else 1200)
        one = self.greedy(prompt, N_TOKENS, "-t", 1)
        self.assertEqual(len(one), N_TOKENS)
        for threads in (2, 3):
            self.assertEqual(self.greedy(prompt, N_TOKENS, "-t", threads), one, f"{threads} threads")

    def test_steps_of_the_prefill(self):
        prompt = prose(300 if SANITIZED else 1200)
        for precise, steps in (([], (1, 7, 64, 512)), (["--precise"], (7, 64))):
            whole = self.greedy(prompt, 24, *precise)
            for step in steps:
                result = self.run_json(prompt, 24, "--ignore-eos", "--chunk", step, *precise)
                self.assertEqual(result["tokens"], whole, f"steps of {step} {precise}")
                self.assertEqual(result["prefill_mode"], "chunked")

    def test_each_instruction_set(self):
        for isa in ISAS:
            env = {"QUIRE_FORCE_ISA": isa}
            if call("run", "-m", MODEL, "-p", "a", "-n", 0, env=env).returncode != 0:
                self.refused("run", "-m", MODEL, "-p", "a", "-n", 0, env=env, says=isa)
                continue
            result = self.run_json(CAPITAL, 3, env=env)
            self.assertEqual((result["isa"], result["text"].split(".")[0]), (isa, " Paris"))

    def test_unknown_instruction_set(self):
        self.refused("run", "-m", MODEL, "-p", "a", env={"QUIRE_FORCE_ISA": "sse9"}, says="sse9")


if __name__ == "__main__":
    main()
