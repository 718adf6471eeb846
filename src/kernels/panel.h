// How quantized weights lie in memory after loading: panels of 16 rows, so that 16 rows are the 16 lanes
// of one register and a product needs no sum across lanes. Shared by the packer and the kernels.
//
// A panel holds blocks of 32 columns one after another. A body stores the 32 x 16 codes as groups of
// four columns, group g holding columns 4g..4g+3 of all rows:
//
//   byte 4 * row + j of a group  =  code of (row, column 4g + j)          row 0..15, j 0..3
//
//   4-bit codes: vector v (64 B) keeps group v in its low nibbles and group v + 4 in its high nibbles
//   fifth bit:   word g (64 bit) keeps bit 4 of group g, bit 4 * row + j of the word for that byte
//   sixth bit:   the same again for bit 5
//   8-bit codes: group g is vector g, as code + 128
//
// Weight = scale * code + offset. Where a file keeps no offset the format implies one (-8 scale for Q4_0).
// The bytes a weight takes equal the file's, but for the K formats' packed 6-bit scales, which become bytes.
#pragma once

#include <stdint.h>

namespace quire {

constexpr int kPanelRows = 16;
constexpr int kBlockColumns = 32;  // columns that share one scale of the activations

enum class PanelKind : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kF32, kF16, kBF16 };
constexpr int kPanelKinds = 11;

// Sizes of a quantized panel kind: every `blocks` blocks of 32 columns share a header, each has a body.
struct PanelShape {
  int blocks;
  int header_bytes;
  int body_bytes;
};

//   header                        body
//   Q4_0  -                       scale f16[16], codes 256
//   Q4_1  -                       scale f16[16], offset f16[16], codes 256
//   Q5_0  -                       scale f16[16], fifth 64, codes 256
//   Q5_1  -                       scale f16[16], offset f16[16], fifth 64, codes 256
//   Q8_0  -                       scale f16[16], codes 512
//   Q4_K  d f16[16], dmin f16[16] scale u8[16], min u8[16], codes 256
//   Q5_K  d f16[16], dmin f16[16] scale u8[16], min u8[16], fifth 64, codes 256
//   Q6_K  d f16[16]               scale i8[2][16] (columns 0-15, 16-31), fifth 64, sixth 64, codes 256
constexpr PanelShape kPanelShapes[] = {
    {1, 0, 32 + 256}, {1, 0, 64 + 256},  {1, 0, 32 + 64 + 256},  {1, 0, 64 + 64 + 256},
    {1, 0, 32 + 512}, {8, 64, 32 + 256}, {8, 64, 32 + 64 + 256}, {8, 32, 32 + 128 + 256},
};

// Activations on the fast path: 16-bit codes with one scale for 32 columns, split into two planes of bytes so
// that byte dot products take them: code = 256 * high + low, both signed. (8 bits alone are measured in
// docs/adr/0005: KL 3e-3 to the reference on a small model, where 16 bits give 1e-7.) In tiles of tokens; a
// block of a tile of T tokens is
//
//   int8 high[T][32], int8 low[T][32], float scale[T], float sum[T], float sum_first[T], float sum_second[T]
//
// where sum = scale * (sum of the 32 codes), first and second of columns 0-15 and 16-31.
constexpr int kTileTokens = 8;             // the prefill tile; decode uses tiles of one
constexpr int kActivationBlockBytes = 80;  // per token
constexpr float kLargestCode = 32512.0f;   // 127 * 256: high stays within [-127, 127]

}  // namespace quire
