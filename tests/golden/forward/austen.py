#!/usr/bin/env python3
"""Jane Austen's novels as plain text, from Debian's package r-cran-janeaustenr (R itself is not needed).

    austen.py NOVEL OUT   NOVEL: emma mansfieldpark northangerabbey persuasion prideprejudice sensesensibility

The package keeps each novel as an R character vector of lines, hard-wrapped at 70 columns. Here the lines of
a paragraph (paragraphs are parted by blank lines) are joined by one space, and paragraphs stand one to a
line, in UTF-8. The same package version gives the same bytes everywhere; tests/golden/forward/data records
the SHA-256.

Two files matter. `Rdata.rdx` is a gzipped R list that names, for each object, offset and length of its chunk
in `Rdata.rdb`. A chunk is the unpacked length (4 bytes, big-endian), then zlib data, or for xz/bz2 packages a
type byte ('2', 'Z') before the data; unpacked it is an R object in R's XDR serialization.
"""

import bz2
import gzip
import lzma
import struct
import sys
import zlib
from pathlib import Path

DATA_FOLDER = Path("/usr/lib/R/site-library/janeaustenr/data")
NOVELS = ("emma", "mansfieldpark", "northangerabbey", "persuasion", "prideprejudice", "sensesensibility")

# SEXP type numbers of R's serialization that occur in these files.
PAIRLIST, CHARS, LOGICALS, INTEGERS, STRINGS, LIST = 2, 9, 10, 13, 16, 19
NIL, GLOBAL_ENV, REFERENCE, SYMBOL = 254, 253, 255, 1
HAS_ATTRIBUTES, HAS_TAG = 0x200, 0x400


class RReader:
    """Reads the small part of R's XDR serialization (versions 2 and 3) that these files use."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0
        self.symbols: list[str] = []

    def read(self) -> object:
        """The object of a whole stream: the header, then one item."""
        if self._bytes(2) != b"X\n":
            raise ValueError("not an R XDR stream")
        version = self._int()
        self._bytes(8)  # the R that wrote it, the oldest R that can read it
        if version == 3:
            self._bytes(self._int())  # the native encoding's name
        return self._item()

    def _bytes(self, n: int) -> bytes:
        piece = self.data[self.at : self.at + n]
        if len(piece) != n:
            raise ValueError("R stream ends early")
        self.at += n
        return piece

    def _int(self) -> int:
        return struct.unpack(">i", self._bytes(4))[0]

    def _item(self) -> object:
        flags = self._int()
        kind = flags & 0xFF
        if kind in (NIL, GLOBAL_ENV):
            return None
        if kind == REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == SYMBOL:
            self.symbols.append(self._item())
            return self.symbols[-1]
        if kind == CHARS:
            n = self._int()
            return "" if n < 0 else self._bytes(n).decode("utf-8" if flags & 0x8000 else "latin-1")
        if kind == PAIRLIST:
            return self._pairs(flags)
        return self._vector(kind, flags)

    def _pairs(self, flags: int) -> dict:
        pairs = {}
        while flags & 0xFF == PAIRLIST:
            tag = self._item() if flags & HAS_TAG else len(pairs)
            pairs[tag] = self._item()
            flags = self._int()
        return pairs

    def _vector(self, kind: int, flags: int) -> object:
        n = self._int()
        if kind in (LOGICALS, INTEGERS):
            values = list(struct.unpack(f">{n}i", self._bytes(4 * n)))
        elif kind in (STRINGS, LIST):
            values = [self._item() for _ in range(n)]
        else:
            raise ValueError(f"R type {kind} is not read here")
        attributes = self._item() if flags & HAS_ATTRIBUTES else None
        if kind == LIST and attributes and "names" in attributes:
            return dict(zip(attributes["names"], values))
        return values


def unpack_chunk(chunk: bytes) -> bytes:
    """The unpacked bytes of one chunk of an .rdb file."""
    n_bytes, kind = struct.unpack(">I", chunk[:4])[0], chunk[4:5]
    if kind == b"Z":
        data = lzma.decompress(chunk[5:])
    elif kind == b"2":
        data = bz2.decompress(chunk[5:])
    else:
        data = zlib.decompress(chunk[4:])
    if len(data) != n_bytes:
        raise ValueError("the chunk unpacks to another length than it says")
    return data


def read_lines(novel: str, folder: Path = DATA_FOLDER) -> list[str]:
    """The novel's lines as the package stores them."""
    if novel not in NOVELS:
        raise ValueError(f"no novel '{novel}'; there are: {' '.join(NOVELS)}")
    index = RReader(gzip.decompress((folder / "Rdata.rdx").read_bytes())).read()
    offset, length = index["variables"][novel]
    chunk = (folder / "Rdata.rdb").read_bytes()[offset : offset + length]
    return RReader(unpack_chunk(chunk)).read()


def novel_text(novel: str, folder: Path = DATA_FOLDER) -> str:
    """The novel, one paragraph to a line."""
    paragraphs: list[list[str]] = [[]]
    for line in read_lines(novel, folder):
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return "".join(" ".join(lines) + "\n" for lines in paragraphs if lines)


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 2:
        print(f"usage: austen.py NOVEL OUT\nNOVEL: {' '.join(NOVELS)}", file=sys.stderr)
        return 2
    try:
        Path(arguments[1]).write_bytes(novel_text(arguments[0]).encode("utf-8"))
    except (OSError, ValueError) as error:
        print(f"austen.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
