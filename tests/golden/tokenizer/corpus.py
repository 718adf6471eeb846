"""Texts that the tokenizer is frozen on: many scripts, white space of every kind, look-alikes, random strings.

All of it is written for this test, or drawn from a seeded generator.
"""

import random

PROSE = [
    "It was late when the last of the carts came over the hill, and nobody asked where they'd been.",
    "She said: \"I'll go, you've seen it, he's there, we're done, I'd rather not, I'm sure, it can't\"",
    "SHE SAID: I'LL GO, YOU'VE SEEN IT, HE'S THERE, WE'RE DONE, I'D RATHER NOT, I'M SURE, IT CAN'T",
    "O'Brien's 'quoted' words 'S 'T 'RE 'VE 'M 'LL 'D 'Ll 'lL 'rE '\u017f '\u017ft 'sx 'x '' 's's '\n's",
    "Na\u00efve caf\u00e9s in Z\u00fcrich, \u0141\u00f3d\u017a, Kraków, Šibenik, Tromsø, İstanbul, Reykjavík and São Paulo.",
    "Cafe\u0301 with a combining accent, A\u030angstro\u0308m, s\u0323\u0307, Z\u0351\u036b\u0343\u036aalgo\u0302\u0306\u0327\u0328",
    "Быстрая лиса перепрыгнула через ленивую собаку; съешь ещё этих мягких булок, да выпей чаю.",
    "Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί. Ὦ ἄνδρες Ἀθηναῖοι, ᾳ ῷ",
    "قفز الثعلب السريع فوق الكلب الكسول، وعددها ١٢٣ أو ۴۵۶. بِسْمِ اللَّهِ",
    "השועל המהיר קפץ מעל הכלב העצלן. שָׁלוֹם עֲלֵיכֶם 123",
    "तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूद गई। १२३ क्षत्रिय",
    "দ্রুত শিয়াল অলস কুকুরের উপর লাফ দেয়। ১২৩ விரைவான நரி ௧௨ వేగవంతమైన నక్క",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓ ลาว: ໝາ ໑໒",
    "敏捷的棕色狐狸跳过了懒狗。二〇二四年，第３章；ㄅㄆㄇ 㐀𠀀𪜀",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナ、ﾊﾝｶｸ、々〆ー １２３",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. ㄱㄴㄷ 각",
    "სწრაფი ყავისფერი მელა გადახტა. ᲡᲬᲠᲐᲤᲘ Արագ շագանակագույն աղվեսը",
    "ፈጣኑ ቡናማ ቀበሮ ከሰነፉ ውሻ በላይ ዘለለ። ፩፪፫ ⴰⵎⴰⵣⵉⵖ ᚠᚢᚦ ᠮᠣᠩᠭᠣᠯ ខ្មែរ ១២ မြန်မာ ၁၂ བོད་ ༡༢",
    "𝐁𝐨𝐥𝐝 𝒜 𝟏𝟐𝟑 ½ ² ³ Ⅷ ⅻ ① ㊿ ㍿ ﬁ ﬂ ª º µ Ω K Å",
    "😀😃 👍🏽👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ☺️ ❤️‍🔥 1️⃣ #️⃣ text👋🏿text 🫠🪿🫨",
    "→ ≤ ∑ √2 ≈ 1.414 ∀x∈ℝ: x² ≥ 0 €5 £3 ¥100 ₿ ° ™ © ® § ¶ † ‡ • … – — ‘’ “” « » ‹ ›",
]

CODE = [
    "int main(void) {\n\tfor (int i = 0; i < 10; ++i) {\n\t\tprintf(\"%d\\n\", i);\n\t}\n\treturn 0;\n}\n",
    "def f(x):\n    if x['key'] == \"don't\":\n        return {**x, 'n': 1_000_000}\n\n\n    # end\n",
    "https://example.org:8080/a/b-c_d.html?q=1&r=%20%C3%A9#frag user.name+tag@mail.example.co.uk",
    "SELECT * FROM t WHERE a=1 AND b!='x';--\r\n\r\n<div class=\"a\">&nbsp;</div>\r\n",
    "C:\\Users\\x\\file.txt /usr/lib/x86_64-linux-gnu/libc.so.6 $HOME ~/.bashrc `ls -la` && || >> <<EOF",
    "0 00 007 12 123 1234 12345 3.14159e-10 1,000,000 0xDEADBEEF 2024-05-17T12:34:56Z v1.2.3 a1b2c3 4th",
    "((((([[[{{{<<<!!!???...,,,;;;:::---___===+++***///\\\\\\|||^^^~~~@@@###$$$%%%&&&>>>}}}]]])))))",
]

SPACES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", " \n ", "  \n\n  x", "x  \n\n  ",
    "a b", "a  b", "a   b", "a    b", " a", "  a", "   a ", "a ", "a  ", "a\n", "a \n", "a\n b", "a\n  b",
    "a\tb", "a\t\tb", "a\t b", "a \tb", "a\r\nb", "a\r\n\r\n  b", "a\rb", "a\x0bb\x0cc", "\x00\x01\x02a\x7f",
    "a\u00a0b", "a\u00a0\u00a0b", "a \u00a0b", "a\u00a0 b", "a\u2028b\u2029c", "a\u3000b\u3000\u3000c", "\u3000",
    "a\u0085b", "a\u1680b", "a\u2003b\u2009\u200ac", "a\u200bb", "a\u2060b\ufeffc", "a\u202fb\u205f c", "a\u180eb",
    "1 2", "1  2", "a 1", "a  1", "a   1  b", " 1", "  1", "\n1", "\n\n1", "1\n", "1 ", "1  ", " \t1", "\t 1",
    "! !", "!  !", "!\n", "!\n\n!", "! \n!", " !", "  !", " !\r\n", "!1a", "1!a", "a!1", " !a", " 1a", " a1",
    "\n!", "\n a", "\n\n\n   a", "   \n   \n   a", "a\u00e9\u00a01\u00a02", "'", "''", " '", "' ", " 's", "'s", "s'", "'S",
    "x's", "x 's", "x's1", "1's", "'1", "'re", "'r", "'v", "'ve", "'l", "'ll", "'lll", "'RE", "'Re", "\n's", "!'s", "''s",
]

LOOK_ALIKES = [
    "<|im_start|>user\nhi<|im_end|>\n", "say <|im_end|> now", "<|im_end|", "<|im_end|>>", "<<|im_end|>>",
    "<|im_start|><|im_end|><|endoftext|>", "< |im_end|>", "<|IM_END|>", "<|im_<|im_end|>end|>", "<repo_name",
    "<repo_name><reponame><file_sep>x<filename>y<gh_stars>1<issue_start> <empty_output>", "<|endoftext|>\n\n a",
    "  <|im_end|>  x", "1<|im_end|>2", "it<|im_end|>'s", "<|im_end|>" * 5, "<|" * 20, "<" * 30, "<jupyter_", "|im_end|>",
]

RUNS = ["a" * 33, "a" * 500, "ab" * 400, " " * 300, " " * 300 + "x", "\n" * 100, "\t" * 65 + "x", "7" * 250, "é" * 120,
        "😀" * 60, "漢" * 90, "-" * 200, "=" * 79 + "\n", "ha" * 50 + "!", "the" * 60, "Z" * 31, "Z" * 32, "\u0301" * 40,
        "antidisestablishmentarianism" * 6, "abcdefghijklmnopqrstuvwxyz" * 3, "\u0430" * 100, "\u0e01" * 70]

# Blocks that random strings draw from, first and last code point.
BLOCKS = [(0x20, 0x7e), (0x20, 0x7e), (0x00, 0x1f), (0x80, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff),
          (0x900, 0xdff), (0xe00, 0x11ff), (0x1e00, 0x2bff), (0x3000, 0x33ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
          (0xf900, 0xfffd), (0x10000, 0x1044f), (0x1d400, 0x1d7ff), (0x1f300, 0x1faff), (0xe000, 0xe0ff)]
GLUE = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "1", "23", "<|im_end|>", "\u00a0", "\u3000", "a", "the", "!", "."]


def random_text(rng: random.Random, n_pieces: int) -> str:
    """Alternates short runs of one block with pieces that sit on the borders of the expressions."""
    out = []
    for _ in range(n_pieces):
        first, last = rng.choice(BLOCKS)
        out.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 4))))
        if rng.random() < 0.6:
            out.append(rng.choice(GLUE))
    return "".join(out)


def frozen_corpus() -> list[str]:
    rng = random.Random(20240517)
    return PROSE + CODE + SPACES + LOOK_ALIKES + RUNS + [random_text(rng, 12) for _ in range(120)]
