#include "kernels/pack.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/ops.h"

namespace quire {

namespace {

uint16_t read_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

void put_u16(uint8_t* p, size_t index, uint16_t value) { std::memcpy(p + 2 * index, &value, 2); }

// Where the parts of a body lie; -1: the kind has no such part.
struct BodyLayout {
  int fifth;
  int sixth;
  int codes;
};

constexpr BodyLayout kBodies[] = {
    {-1, -1, 32}, {-1, -1, 64}, {32, -1, 96}, {64, -1, 128},
    {-1, -1, 32}, {-1, -1, 32}, {32, -1, 96}, {32, 96, 160},
};

// Puts one row's 32 codes of up to 6 bits into a body.
void put_codes(PanelKind kind, const uint8_t* codes, size_t lane, uint8_t* body) {
  const BodyLayout& layout = kBodies[static_cast<size_t>(kind)];
  for (size_t v = 0; v < 4; ++v) {
    for (size_t j = 0; j < 4; ++j) {
      const uint8_t low = codes[4 * v + j] & 15;
      const uint8_t high = codes[16 + 4 * v + j] & 15;
      body[layout.codes + 64 * v + 4 * lane + j] = static_cast<uint8_t>(low | high << 4);
    }
  }
  const auto put_plane = [&](int offset, int bit) {
    if (offset < 0) return;
    for (size_t column = 0; column < 32; ++column) {
      const size_t at = 4 * lane + column % 4;  // bit of the group's word
      uint8_t& byte = body[offset + 8 * (column / 4) + at / 8];
      byte = static_cast<uint8_t>((byte & ~(1u << (at % 8))) | ((codes[column] >> bit) & 1u) << (at % 8));
    }
  };
  put_plane(layout.fifth, 4);
  put_plane(layout.sixth, 5);
}

uint8_t get_code(PanelKind kind, const uint8_t* body, size_t lane, size_t column) {
  const BodyLayout& layout = kBodies[static_cast<size_t>(kind)];
  if (kind == PanelKind::kQ8_0) return body[layout.codes + 64 * (column / 4) + 4 * lane + column % 4];
  const size_t v = column / 4;
  const uint8_t byte = body[layout.codes + 64 * (v % 4) + 4 * lane + column % 4];
  unsigned code = v < 4 ? byte & 15u : byte >> 4;
  const size_t at = 4 * lane + column % 4;
  const auto plane_bit = [&](int offset) { return (body[offset + 8 * v + at / 8] >> (at % 8)) & 1u; };
  if (layout.fifth >= 0) code |= plane_bit(layout.fifth) << 4;
  if (layout.sixth >= 0) code |= plane_bit(layout.sixth) << 5;
  return static_cast<uint8_t>(code);
}

// The 4-bit codes of Q4_0 and Q4_1 lie in a file block as in a panel vector: byte i holds values i and i
// + 16.
void copy_nibbles(const uint8_t* codes, size_t lane, uint8_t* vectors) {
  for (size_t v = 0; v < 4; ++v) std::memcpy(vectors + 64 * v + 4 * lane, codes + 4 * v, 4);
}

// ---- one 32-column block of one row, per file type
// ---------------------------------------------------------

void pack_q4(PanelKind kind, const uint8_t* block, size_t lane, uint8_t* body) {
  const size_t n_scales = kind == PanelKind::kQ4_1 ? 2 : 1;
  for (size_t i = 0; i < n_scales; ++i) put_u16(body, 16 * i + lane, read_u16(block + 2 * i));
  copy_nibbles(block + 2 * n_scales, lane, body + 32 * n_scales);
}

// Q5_0: d, qh u32, qs[16]; Q5_1: d, m, qh, qs. Bit j of qh is the fifth bit of value j.
void pack_q5(PanelKind kind, const uint8_t* block, size_t lane, uint8_t* body) {
  const size_t n_scales = kind == PanelKind::kQ5_1 ? 2 : 1;
  for (size_t i = 0; i < n_scales; ++i) put_u16(body, 16 * i + lane, read_u16(block + 2 * i));
  uint32_t fifth;
  std::memcpy(&fifth, block + 2 * n_scales, 4);
  const uint8_t* nibbles = block + 2 * n_scales + 4;
  uint8_t codes[32];
  for (size_t j = 0; j < 16; ++j) {
    codes[j] = static_cast<uint8_t>((nibbles[j] & 15u) | ((fifth >> j) & 1u) << 4);
    codes[j + 16] = static_cast<uint8_t>((nibbles[j] >> 4) | ((fifth >> (j + 16)) & 1u) << 4);
  }
  put_codes(kind, codes, lane, body);
}

void pack_q8(const uint8_t* block, size_t lane, uint8_t* body) {
  put_u16(body, lane, read_u16(block));
  for (size_t g = 0; g < 8; ++g) {
    uint32_t four;
    std::memcpy(&four, block + 2 + 4 * g, 4);
    four ^= 0x80808080u;  // signed code -> code + 128
    std::memcpy(body + 32 + 64 * g + 4 * lane, &four, 4);
  }
}

// ---- one 256-column block of one row
// -----------------------------------------------------------------------

// The eight 6-bit scales and mins of Q4_K and Q5_K share 12 bytes: the low six bits of scales 0-3 and mins
// 0-3 fill bytes 0-3 and 4-7, whose top two bits belong to scales and mins 4-7, the rest of which are the
// nibbles of bytes 8-11.
void k_scale(const uint8_t* packed, size_t i, uint8_t* scale, uint8_t* min) {
  if (i < 4) {
    *scale = packed[i] & 63;
    *min = packed[i + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((packed[i + 4] & 15u) | (packed[i - 4] >> 6) << 4);
    *min = static_cast<uint8_t>((packed[i + 4] >> 4) | (packed[i] >> 6) << 4);
  }
}

// d, dmin, scales[12], (Q5_K: qh[32]), qs[128]. 32 bytes of qs hold two sub-blocks: low nibbles the even
// one, high nibbles the odd one; bit i of qh[j] is the fifth bit of value j of sub-block i.
void pack_q45_k(PanelKind kind, const uint8_t* block, size_t lane, uint8_t* header) {
  const PanelShape& shape = kPanelShapes[static_cast<size_t>(kind)];
  put_u16(header, lane, read_u16(block));
  put_u16(header, 16 + lane, read_u16(block + 2));
  const bool five = kind == PanelKind::kQ5_K;
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = block + (five ? 48 : 16);
  for (size_t i = 0; i < 8; ++i) {
    uint8_t* body = header + shape.header_bytes + i * shape.body_bytes;
    k_scale(block + 4, i, body + lane, body + 16 + lane);
    uint8_t codes[32];
    for (size_t j = 0; j < 32; ++j) {
      const uint8_t byte = nibbles[32 * (i / 2) + j];
      codes[j] = i % 2 == 0 ? byte & 15 : byte >> 4;
      if (five) codes[j] = static_cast<uint8_t>(codes[j] | ((fifth[j] >> i) & 1u) << 4);
    }
    put_codes(kind, codes, lane, body);
  }
}

// ql[128], qh[64], scales i8[16], d. Each half of 128 values: sub-blocks 0..3 of 32 take the low nibbles of
// ql[0..31], ql[32..63], then the high nibbles of the same, and bits 0-1, 2-3, 4-5, 6-7 of qh[0..31].
void pack_q6_k(const uint8_t* block, size_t lane, uint8_t* header) {
  const PanelShape& shape = kPanelShapes[static_cast<size_t>(PanelKind::kQ6_K)];
  put_u16(header, lane, read_u16(block + 208));
  for (size_t i = 0; i < 8; ++i) {
    uint8_t* body = header + shape.header_bytes + i * shape.body_bytes;
    const size_t half = i / 4;
    const size_t part = i % 4;
    const uint8_t* low = block + 64 * half + 32 * (part % 2);
    const uint8_t* high = block + 128 + 32 * half;
    body[lane] = block[192 + 2 * i];
    body[16 + lane] = block[192 + 2 * i + 1];
    uint8_t codes[32];
    for (size_t j = 0; j < 32; ++j) {
      const unsigned nibble = part < 2 ? low[j] & 15u : low[j] >> 4;
      codes[j] = static_cast<uint8_t>(nibble | ((high[j] >> (2 * part)) & 3u) << 4);
    }
    put_codes(PanelKind::kQ6_K, codes, lane, body);
  }
}

void pack_floats(PanelKind kind, const uint8_t* row, size_t lane, size_t n_columns, uint8_t* panel) {
  const size_t bytes = kind == PanelKind::kF32 ? 4 : 2;
  for (size_t column = 0; column < n_columns; ++column) {
    std::memcpy(panel + (column * kPanelRows + lane) * bytes, row + column * bytes, bytes);
  }
}

void pack_row(PanelKind kind, const uint8_t* row, size_t lane, size_t n_columns, uint8_t* panel) {
  if (kind >= PanelKind::kF32) return pack_floats(kind, row, lane, n_columns, panel);
  static constexpr size_t kFileBlockBytes[] = {18, 20, 22, 24, 34, 144, 176, 210};
  const PanelShape& shape = kPanelShapes[static_cast<size_t>(kind)];
  const size_t step = static_cast<size_t>(shape.header_bytes + shape.blocks * shape.body_bytes);
  const size_t n_blocks = n_columns / (kBlockColumns * static_cast<size_t>(shape.blocks));
  for (size_t b = 0; b < n_blocks; ++b, row += kFileBlockBytes[static_cast<size_t>(kind)], panel += step) {
    switch (kind) {
      case PanelKind::kQ4_0:
      case PanelKind::kQ4_1: pack_q4(kind, row, lane, panel); break;
      case PanelKind::kQ5_0:
      case PanelKind::kQ5_1: pack_q5(kind, row, lane, panel); break;
      case PanelKind::kQ8_0: pack_q8(row, lane, panel); break;
      case PanelKind::kQ4_K:
      case PanelKind::kQ5_K: pack_q45_k(kind, row, lane, panel); break;
      case PanelKind::kQ6_K: pack_q6_k(row, lane, panel); break;
      default: break;
    }
  }
}

float half_at(const uint8_t* p, size_t index) { return f16_to_f32(read_u16(p + 2 * index)); }

// scale * code + offset, by the formulas of panel.h.
float decode(PanelKind kind, const uint8_t* header, const uint8_t* body, size_t lane, size_t column) {
  const auto code = static_cast<float>(get_code(kind, body, lane, column));
  switch (kind) {
    case PanelKind::kQ4_0: return half_at(body, lane) * (code - 8);
    case PanelKind::kQ5_0: return half_at(body, lane) * (code - 16);
    case PanelKind::kQ8_0: return half_at(body, lane) * (code - 128);
    case PanelKind::kQ4_1:
    case PanelKind::kQ5_1: return half_at(body, lane) * code + half_at(body, 16 + lane);
    case PanelKind::kQ4_K:
    case PanelKind::kQ5_K:
      return half_at(header, lane) * body[lane] * code - half_at(header, 16 + lane) * body[16 + lane];
    case PanelKind::kQ6_K: {
      const auto scale = static_cast<int8_t>(body[16 * (column / 16) + lane]);
      return half_at(header, lane) * static_cast<float>(scale) * (code - 32);
    }
    default: return 0;
  }
}

float decode_float(PanelKind kind, const uint8_t* panel, size_t index) {
  if (kind == PanelKind::kF16) return half_at(panel, index);
  if (kind == PanelKind::kBF16) return bf16_to_f32(read_u16(panel + 2 * index));
  float value;
  std::memcpy(&value, panel + 4 * index, 4);
  return value;
}

}  // namespace

PanelKind panel_kind(TensorType type) {
  switch (type) {
    case TensorType::F32: return PanelKind::kF32;
    case TensorType::F16: return PanelKind::kF16;
    case TensorType::BF16: return PanelKind::kBF16;
    case TensorType::Q4_0: return PanelKind::kQ4_0;
    case TensorType::Q4_1: return PanelKind::kQ4_1;
    case TensorType::Q5_0: return PanelKind::kQ5_0;
    case TensorType::Q5_1: return PanelKind::kQ5_1;
    case TensorType::Q8_0: return PanelKind::kQ8_0;
    case TensorType::Q4_K: return PanelKind::kQ4_K;
    case TensorType::Q5_K: return PanelKind::kQ5_K;
    case TensorType::Q6_K: return PanelKind::kQ6_K;
  }
  throw Error("weights of type " + std::string(tensor_type_name(type)) + " cannot be packed");
}

size_t panel_bytes(PanelKind kind, size_t n_columns) {
  if (kind == PanelKind::kF32) return n_columns * kPanelRows * 4;
  if (kind > PanelKind::kF32) return n_columns * kPanelRows * 2;
  const PanelShape& shape = kPanelShapes[static_cast<size_t>(kind)];
  return n_columns / (kBlockColumns * static_cast<size_t>(shape.blocks)) *
         static_cast<size_t>(shape.header_bytes + shape.blocks * shape.body_bytes);
}

PackedMatrix pack(TensorType type, const std::byte* rows, size_t n_rows, size_t n_columns, Team& team,
                  std::span<const uint32_t> order) {
  PackedMatrix matrix;
  matrix.kind = panel_kind(type);
  matrix.n_rows = n_rows;
  matrix.n_columns = n_columns;
  matrix.panel_bytes = panel_bytes(matrix.kind, n_columns);
  const uint64_t total = checked_mul(matrix.n_panels(), matrix.panel_bytes, "the size of a weight matrix");
  matrix.data = Memory(checked_add(total, kSpareBytes, "the size of a weight matrix"));
  const uint64_t source_bytes = row_bytes(type, n_columns);
  team.run([&](Worker& worker) {
    worker.share(static_cast<int64_t>(matrix.n_panels()), 4, [&](int64_t begin, int64_t end) {
      for (auto p = static_cast<size_t>(begin); p < static_cast<size_t>(end); ++p) {
        uint8_t* panel = matrix.data.as<uint8_t>() + p * matrix.panel_bytes;
        const size_t n = std::min<size_t>(kPanelRows, n_rows - p * kPanelRows);
        if (n < kPanelRows) std::memset(panel, 0, matrix.panel_bytes);
        for (size_t lane = 0; lane < n; ++lane) {
          const size_t row = p * kPanelRows + lane;
          const size_t source = order.empty() ? row : order[row];
          const auto* bytes = reinterpret_cast<const uint8_t*>(rows) + source * source_bytes;
          pack_row(matrix.kind, bytes, lane, n_columns, panel);
        }
      }
    });
  });
  return matrix;
}

void PackedMatrix::unpack_row(size_t row, float* out) const {
  const uint8_t* bytes = panel(row / kPanelRows);
  const size_t lane = row % kPanelRows;
  if (!is_quantized()) {
    for (size_t c = 0; c < n_columns; ++c) out[c] = decode_float(kind, bytes, c * kPanelRows + lane);
    return;
  }
  const PanelShape& shape = kPanelShapes[static_cast<size_t>(kind)];
  const size_t super_columns = kBlockColumns * static_cast<size_t>(shape.blocks);
  const size_t step = static_cast<size_t>(shape.header_bytes + shape.blocks * shape.body_bytes);
  for (size_t c = 0; c < n_columns; ++c) {
    const uint8_t* header = bytes + c / super_columns * step;
    const size_t block = c % super_columns / kBlockColumns;
    const uint8_t* body = header + shape.header_bytes + block * static_cast<size_t>(shape.body_bytes);
    out[c] = decode(kind, header, body, lane, c % kBlockColumns);
  }
}

}  // namespace quire
