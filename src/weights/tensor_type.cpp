#include "weights/tensor_type.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"

namespace quire {
namespace {

struct TypeFacts {
  TensorType type;
  uint32_t n_values;
  uint32_t n_bytes;
};

// Bytes of a block: its scales (f16 d, then m or 6-bit packed scales) and its quants, as in ggml-common.h.
constexpr TypeFacts kTypes[] = {
    {TensorType::F32, 1, 4},
    {TensorType::F16, 1, 2},
    {TensorType::Q4_0, 32, 2 + 16},
    {TensorType::Q4_1, 32, 2 + 2 + 16},
    {TensorType::Q5_0, 32, 2 + 4 + 16},
    {TensorType::Q5_1, 32, 2 + 2 + 4 + 16},
    {TensorType::Q8_0, 32, 2 + 32},
    {TensorType::Q4_K, 256, 2 + 2 + 12 + 128},
    {TensorType::Q5_K, 256, 2 + 2 + 12 + 32 + 128},
    {TensorType::Q6_K, 256, 128 + 64 + 16 + 2},
    {TensorType::BF16, 1, 2},
};

// By number; 4, 5, 31 to 33 and 36 to 38 were removed from ggml but exist in old files.
constexpr const char* kGgmlNames[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
};

const TypeFacts* find_facts(uint32_t number) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [number](const TypeFacts& facts) {
    return static_cast<uint32_t>(facts.type) == number;
  });
  return found == std::end(kTypes) ? nullptr : found;
}

const TypeFacts& facts_of(TensorType type) {
  const TypeFacts* facts = find_facts(static_cast<uint32_t>(type));
  QUIRE_CHECK(facts != nullptr);
  return *facts;
}

}  // namespace

const char* tensor_type_name(TensorType type) {
  return ggml_type_name(static_cast<uint32_t>(facts_of(type).type));
}

std::optional<TensorType> tensor_type_from_number(uint32_t number) {
  const TypeFacts* facts = find_facts(number);
  if (facts == nullptr) return std::nullopt;
  return facts->type;
}

const char* ggml_type_name(uint32_t number) {
  return number < std::size(kGgmlNames) ? kGgmlNames[number] : nullptr;
}

const char* supported_tensor_types() {
  return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K";
}

uint32_t block_values(TensorType type) { return facts_of(type).n_values; }

uint32_t block_bytes(TensorType type) { return facts_of(type).n_bytes; }

uint64_t row_bytes(TensorType type, uint64_t n_values) {
  const TypeFacts& facts = facts_of(type);
  QUIRE_DCHECK(n_values % facts.n_values == 0);
  return n_values / facts.n_values * facts.n_bytes;
}

}  // namespace quire
