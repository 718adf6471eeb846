// How the tiles of all sequences and heads are shared out among thread blocks; the same on host and device.
//
// A tile is a few tokens of one sequence, read by one warp. Tiles are numbered in one row,
//
//   | sequence 0: head 0: tiles .. | head 1: tiles .. | ... | sequence 1: head 0 .. | ...
//
// and block b of n takes the b-th part of the row, within one tile as long as every other: sequences of any
// lengths keep all blocks busy. Where a part crosses from one head's tiles to the next, the block leaves two
// partial states. `head` counts what is attended apart within a sequence: KV heads times tiles of their query
// heads.
#pragma once

#include <stdint.h>

#include "base/half.h"

namespace quire::cuda {

struct TileRange {
  int64_t begin;
  int64_t end;
};

QUIRE_INLINE int tiles_of(int n_tokens, int tile_tokens) {
  return n_tokens > 0 ? (n_tokens - 1) / tile_tokens + 1 : 0;
}

// Blocks that get work: with fewer tiles than blocks each has one.
QUIRE_INLINE int busy_blocks(int64_t n_tiles, int n_blocks) {
  return n_tiles < n_blocks ? (int)n_tiles : n_blocks;
}

// n_blocks: those that get work.
QUIRE_INLINE TileRange tiles_of_block(int block, int64_t n_tiles, int n_blocks) {
  return {block * n_tiles / n_blocks, (block + 1) * n_tiles / n_blocks};
}

// The block whose range holds a tile: the largest b with b n_tiles / n < tile + 1.
QUIRE_INLINE int block_of_tile(int64_t tile, int64_t n_tiles, int n_blocks) {
  return (int)(((tile + 1) * n_blocks - 1) / n_tiles);
}

// Where a block keeps its partial state of one (sequence, head), `pair` = sequence * heads + head. Along the
// row of tiles block and pair only grow, and never stay both: their sum is another one for every state.
QUIRE_INLINE int state_index(int block, int pair) { return block + pair; }
QUIRE_INLINE int64_t state_count(int n_blocks, int n_pairs) { return (int64_t)n_blocks + n_pairs; }

// The same with parts of one length, the last one shorter, and in 32 bits, as their arithmetic is between the
// start of a kernel and its first byte (streamed_attention.cuh). 2^31 boxes of 64 tokens would be 32 TB.
struct EqualParts {
  int length;
  int n;  // blocks that get work
};

QUIRE_INLINE int quotient_up(int n, int divisor) { return n > 0 ? (n - 1) / divisor + 1 : 0; }

// Lengths are multiples of `unit`.
QUIRE_INLINE EqualParts equal_parts(int n_tiles, int n_blocks, int unit) {
  const int length = quotient_up(quotient_up(n_tiles, n_blocks), unit) * unit;
  return {length, length > 0 ? quotient_up(n_tiles, length) : 0};
}

}  // namespace quire::cuda
