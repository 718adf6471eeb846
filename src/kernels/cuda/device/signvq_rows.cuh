// Rows of signvq codes and exact rows as tensor cores want them, sixteen rows to a tile.
//
// In lane 4 g + c of a warp, for `round` r:
//
//   keys    pair p (of 16) is values 2 p, 2 p + 1 of group 4 r + c of 32 dims, of rows g and g + 8
//   values  number i (of 16) is dim i of unit 8 r + g, of rows 2 c, 2 c + 1, 2 c + 8, 2 c + 9
//
// so that a lane has whole words of a row, and one scale and zero for all of them. A code becomes a number in
// three instructions: its two bits are put behind the one of 1.0 (1 + code / 4), and
// (4 scale) (1 + code / 4) + (zero - 4 scale) is the number.
#pragma once

#include "kernels/cuda/device/signvq_step.cuh"

namespace quire::cuda {

constexpr int kTileRows = 16;
constexpr float kNothing = -__builtin_inff();  // log of no mass

__device__ __forceinline__ uint32_t join_halves(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t x;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(low), "r"(high), "r"(selector));
  return x;
}
constexpr uint32_t kLowHalves = 0x5410;
constexpr uint32_t kHighHalves = 0x7632;

// Of numbers 1 + code / 4: factor and summand.
struct CodeLine {
  __half2 factor;
  __half2 summand;
};
// Scales and zeros of the lower and of the upper half.
__device__ __forceinline__ CodeLine code_line(uint32_t low, uint32_t high) {
  const uint32_t scales = join_halves(low, high, kLowHalves);
  const uint32_t zeros = join_halves(low, high, kHighHalves);
  const __half2 factor = __hmul2(*reinterpret_cast<const __half2*>(&scales), __float2half2_rn(4.0f));
  return {factor, __hsub2(*reinterpret_cast<const __half2*>(&zeros), factor)};
}
// x & 0x03000300 | 0x3c003c00 in one instruction, which takes one constant that is not in a register.
__device__ __forceinline__ uint32_t one_and_quarters(uint32_t x, uint32_t ones) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, 0x03000300, %2, 0xea;" : "=r"(bits) : "r"(x), "r"(ones));
  return bits;
}
__device__ __forceinline__ uint32_t ones_in_register() {
  uint32_t ones;
  asm volatile("mov.b32 %0, 0x3c003c00;" : "=r"(ones));
  return ones;
}

// The codes at bits `at` and 16 + at, which the compiler knows.
__device__ __forceinline__ uint32_t decode(uint32_t codes, int at, const CodeLine& line, uint32_t ones) {
  const uint32_t moved = at <= 8 ? codes << (8 - at) : codes >> (at - 8);
  const uint32_t bits = one_and_quarters(moved, ones);
  const __half2 x = __hfma2(*reinterpret_cast<const __half2*>(&bits), line.factor, line.summand);
  return *reinterpret_cast<const uint32_t*>(&x);
}

// Codes of a group of one key: [signs, codes, codes, parameters].
struct KeyGroup {
  uint4 words;
  CodeLine line;

  __device__ __forceinline__ explicit KeyGroup(const uint4& from)
      : words(from), line(code_line(from.w, from.w)) {
    words.x = ~from.x;  // 1: negative
  }
  __device__ __forceinline__ uint32_t pair(int p, uint32_t ones) const {
    return decode(p < 8 ? words.y : words.z, p % 8 * 2, line, ones) ^ (words.x << (15 - p) & 0x80008000u);
  }
};

// Units of two values' rows.
struct ValuePair {
  uint32_t first;   // codes 0 to 7
  uint32_t second;  // codes 8 to 15
  CodeLine line;

  __device__ __forceinline__ ValuePair(const uint2& low, const uint2& high)
      : first(join_halves(low.x, high.x, kLowHalves)),
        second(join_halves(low.x, high.x, kHighHalves)),
        line(code_line(low.y, high.y)) {}
  __device__ __forceinline__ uint32_t number(int i, uint32_t ones) const {
    return decode(i < 8 ? first : second, i % 8 * 2, line, ones);
  }
};

__device__ __forceinline__ uint4 load_four(const uint8_t* from) {
  return __ldg(reinterpret_cast<const uint4*>(from));
}
// To shared memory.
__device__ __forceinline__ void copy_sixteen(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_eight(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

// Sums of a warp: eight heads, of which a lane has heads 2 c and 2 c + 1, and of outputs numbers 2 i and 2 i
// + 1 of its unit for these. Scores are logarithms to base 2.
template <int kRounds>
struct TileSums {
  float top[2] = {kNothing, kNothing};
  float sum[2] = {0.0f, 0.0f};  // of the lane's own rows
  float out[8 * kRounds][4] = {};

  // Scores of rows g (heads 2 c, 2 c + 1) and g + 8 become weights relative to the tops. A top is raised
  // where a score exceeds it by so much that f16 would tell.
  __device__ __forceinline__ void weigh(float (&scores)[4]) {
    const float best[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
    if (__any_sync(kAllLanes, best[0] > top[0] + 8.0f || best[1] > top[1] + 8.0f)) raise(best);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = top[i % 2] == kNothing ? 0.0f : power_of_two(scores[i] - top[i % 2]);
      sum[i % 2] += scores[i];
    }
  }
  __device__ __forceinline__ void raise(const float (&best)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = fmaxf(top[i], best[i]);
      for (int lanes = 4; lanes < 32; lanes *= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, lanes));
      const float share = most == kNothing ? 0.0f : power_of_two(top[i] - most);
      top[i] = most;
      sum[i] *= share;
#pragma unroll
      for (int j = 0; j < 8 * kRounds; ++j) {
        out[j][i] *= share;
        out[j][i + 2] *= share;
      }
    }
  }
};

// Queries of eight heads as a lane has them: those of head g, pairs 2 i and 2 i + 1.
template <int kRounds>
using TileQueries = uint32_t[8 * kRounds][2];

// Where a lane's parts of a row lie, behind where it begins.
template <int kRounds>
struct LaneOffsets {
  const uint8_t* keys[kRounds];
  const uint8_t* values[kRounds];

  __device__ __forceinline__ LaneOffsets(const uint8_t* rows, int head_dim) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      keys[r] = rows + 16 * min(4 * r + lane_index() % 4, (head_dim + 31) / 32 - 1);
      values[r] = rows + signvq_key_bytes(head_dim) + 8 * min(8 * r + lane_index() / 4, head_dim / 16 - 1);
    }
  }
};

// Tiles on their way to shared memory, where every lane finds what it asked for itself.
template <int kRounds>
struct TileRing {
  static constexpr int kTiles = 3;
  static constexpr int kTileBytes = kRounds * kTileRows * 128;
  static constexpr int kBytes = kTiles * kTileBytes;  // of a warp
};

// A tile of coded rows.
template <int kRounds>
struct CodedTile {
  uint4 keys[kRounds][2];
  uint2 values[kRounds][4];

  // Asks for a tile. list: of its rows. Lanes that have no group or unit take the last one; nothing comes of
  // what they load, as their queries are zeros and their outputs nobody's.
  static __device__ __forceinline__ void fetch(const LaneOffsets<kRounds>& at, const uint32_t* list,
                                               uint32_t slot) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const uint2 pairs[2] = {*reinterpret_cast<const uint2*>(list + 2 * c),
                            *reinterpret_cast<const uint2*>(list + 2 * c + 8)};
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const uint32_t to = slot + r * kTileRows * 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        copy_sixteen(to + 512 * i + 16 * lane_index(), at.keys[r] + (uint64_t)list[g + 8 * i] * kListedBytes);
        copy_eight(to + 1024 + 512 * i + 8 * lane_index(),
                   at.values[r] + (uint64_t)pairs[i].x * kListedBytes);
        copy_eight(to + 1280 + 512 * i + 8 * lane_index(),
                   at.values[r] + (uint64_t)pairs[i].y * kListedBytes);
      }
    }
  }
  __device__ __forceinline__ void take(const uint8_t* slot) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const uint8_t* from = slot + r * kTileRows * 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) keys[r][i] = reinterpret_cast<const uint4*>(from + 512 * i)[lane_index()];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[r][i] = reinterpret_cast<const uint2*>(from + 1024 + 256 * i)[lane_index()];
    }
  }
  __device__ __forceinline__ void score(const TileQueries<kRounds>& queries, float (&scores)[4]) const {
    const uint32_t ones = ones_in_register();
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const KeyGroup first(keys[r][0]);
      const KeyGroup second(keys[r][1]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t rows[4] = {first.pair(2 * i, ones), second.pair(2 * i, ones),
                                  first.pair(2 * i + 1, ones), second.pair(2 * i + 1, ones)};
        multiply_add(__half{}, scores, rows, queries[8 * r + i]);
      }
    }
  }
  __device__ __forceinline__ void add_values(const uint32_t (&weights)[2],
                                             float (&out)[8 * kRounds][4]) const {
    const uint32_t ones = ones_in_register();
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const ValuePair first(values[r][0], values[r][1]);
      const ValuePair second(values[r][2], values[r][3]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t columns[4] = {first.number(2 * i, ones), first.number(2 * i + 1, ones),
                                     second.number(2 * i, ones), second.number(2 * i + 1, ones)};
        multiply_add(__half{}, out[8 * r + i], columns, weights);
      }
    }
  }
};

// A tile of exact rows of a page; those behind the n that there are, are the first once more.
template <int kRounds>
struct ExactTile {
  uint4 keys[kRounds][2][4];    // of rows g and g + 8: 32 numbers of group 4 r + c
  uint4 values[kRounds][4][2];  // of rows 2 c, 2 c + 1, 2 c + 8, 2 c + 9: 16 numbers of unit 8 r + g
  bool is_bf16;

  // Both begin with the tile's first row.
  __device__ __forceinline__ void load(const uint8_t* key_rows, const uint8_t* value_rows, int n,
                                       int head_dim) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const auto eight = [&](const uint8_t* rows, int row, int dim) {
      return dim < head_dim ? load_four(rows + 2 * (head_dim * (row < n ? row : 0) + dim))
                            : uint4{0, 0, 0, 0};
    };
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        keys[r][i / 4][i % 4] = eight(key_rows, g + i / 4 * 8, 32 * (4 * r + c) + i % 4 * 8);
        values[r][i / 2][i % 2] =
            eight(value_rows, 2 * c + i / 2 % 2 + i / 4 * 8, 16 * (8 * r + g) + i % 2 * 8);
      }
    }
  }
  __device__ __forceinline__ uint32_t to_f16(uint32_t pair) const {
    return is_bf16 ? pack(__half{}, __uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)) : pair;
  }
  // Two numbers of eight.
  __device__ __forceinline__ uint32_t pair(const uint4& eight, int i) const {
    return to_f16(i == 0 ? eight.x : i == 1 ? eight.y : i == 2 ? eight.z : eight.w);
  }
  __device__ __forceinline__ void score(const TileQueries<kRounds>& queries, float (&scores)[4]) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4& first = keys[r][0][i / 2];
        const uint4& second = keys[r][1][i / 2];
        const int at = i % 2 * 2;
        const uint32_t rows[4] = {pair(first, at), pair(second, at), pair(first, at + 1),
                                  pair(second, at + 1)};
        multiply_add(__half{}, scores, rows, queries[8 * r + i]);
      }
    }
  }
  __device__ __forceinline__ void add_values(const uint32_t (&weights)[2],
                                             float (&out)[8 * kRounds][4]) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        uint32_t rows[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) rows[j] = pair(values[r][j][i / 4], i % 4);
        const uint32_t columns[4] = {
            join_halves(rows[0], rows[1], kLowHalves), join_halves(rows[0], rows[1], kHighHalves),
            join_halves(rows[2], rows[3], kLowHalves), join_halves(rows[2], rows[3], kHighHalves)};
        multiply_add(__half{}, out[8 * r + i], columns, weights);
      }
    }
  }
};

// bias [2]: of the lane's heads.
template <int kRounds, class Tile>
__device__ __forceinline__ void attend_tile(const Tile& tile, int n, const TileQueries<kRounds>& queries,
                                            const float (&bias)[2], TileSums<kRounds>& sums) {
  float scores[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  tile.score(queries, scores);
  const int g = lane_index() / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = g + i / 2 * 8 < n ? scores[i] + bias[i % 2] : kNothing;
  }
  sums.weigh(scores);
  const uint32_t weights[2] = {transposed(pack(__half{}, scores[0], scores[1])),
                               transposed(pack(__half{}, scores[2], scores[3]))};
  tile.add_values(weights, sums.out);
}

}  // namespace quire::cuda
