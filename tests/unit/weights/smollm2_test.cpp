// The real model, against what the PyPI package `gguf` says of it. Skipped where the file is not there.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.h"
#include "weights/gguf.h"

namespace quire {
namespace {

const char kPath[] = QUIRE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPath)) GTEST_SKIP() << kPath << " is not there";
  }
};

// The fastest of some runs: the machine is shared.
template <typename Call>
double best_ms(const Call& call) {
  double best = 1e9;
  for (int run = 0; run < 10; ++run) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
    best = std::min(best, passed.count());
  }
  return best;
}

TEST_F(SmolLm2, Metadata) {
  const GgufFile file = GgufFile::open(kPath);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), 33u);
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_uint("llama.block_count"), 30u);
  EXPECT_EQ(file.get_uint("llama.attention.head_count_kv"), 3u);
  EXPECT_EQ(file.get_float("llama.rope.freq_base"), 100000.0);
  EXPECT_FALSE(file.get_bool("tokenizer.ggml.add_bos_token"));
  const auto tokens = file.get_string_array("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[1], "<|im_start|>");
  EXPECT_EQ(file.get_string_array("tokenizer.ggml.merges").size(), 48900u);
  const auto types = file.get_int_array("tokenizer.ggml.token_type");
  ASSERT_EQ(types.size(), 49152u);
  EXPECT_EQ(types[1], 3);  // control
}

TEST_F(SmolLm2, Tensors) {
  const GgufFile file = GgufFile::open(kPath);
  ASSERT_EQ(file.tensors().size(), 272u);
  std::map<std::string, int> n_of_type;
  for (const TensorInfo& tensor : file.tensors()) ++n_of_type[tensor_type_name(tensor.type)];
  EXPECT_EQ(n_of_type, (std::map<std::string, int>{{"F32", 61}, {"Q4_1", 210}, {"Q8_0", 1}}));
  const TensorInfo& embedding = file.tensor("token_embd.weight");
  EXPECT_EQ(embedding.shape, (std::vector<uint64_t>{576, 49152}));
  EXPECT_EQ(embedding.file_offset, 1785664u);
  EXPECT_EQ(embedding.size_bytes, 30081024u);
  const TensorInfo& down = file.tensor("blk.0.ffn_down.weight");
  EXPECT_EQ(down.shape, (std::vector<uint64_t>{1536, 576}));
  EXPECT_EQ(down.row_length(), 1536u);
  EXPECT_EQ(down.n_rows(), 576u);
  EXPECT_EQ(down.size_bytes, 552960u);
}

TEST_F(SmolLm2, RowsDecodeAsInTheGgufPackage) {
  const GgufFile file = GgufFile::open(kPath);
  const auto sum_of_row = [&](const char* name, uint64_t row) {
    const TensorInfo& tensor = file.tensor(name);
    std::vector<float> values(tensor.row_length());
    dequantize_row(tensor.type, tensor.data + row * row_bytes(tensor.type, values.size()), values.data(),
                   values.size());
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  EXPECT_EQ(sum_of_row("token_embd.weight", 1000), 1.9784250259399414);
  EXPECT_EQ(sum_of_row("blk.7.ffn_down.weight", 300), 0.68243408203125);
  EXPECT_EQ(sum_of_row("output_norm.weight", 0), 1038.33203125);
}

TEST_F(SmolLm2, OpeningAndFingerprintAreCheap) {
  const double open_ms = best_ms([] { GgufFile::open(kPath); });
  const GgufFile file = GgufFile::open(kPath);
  const double fingerprint_ms = best_ms([&] { (void)file.fingerprint(); });
  RecordProperty("open_us", static_cast<int>(open_ms * 1000));
  RecordProperty("fingerprint_us", static_cast<int>(fingerprint_ms * 1000));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(open_ms, 10.0);
  EXPECT_LT(fingerprint_ms, 5.0);
#endif
  EXPECT_EQ(file.fingerprint(), GgufFile::open(kPath).fingerprint());
}

}  // namespace
}  // namespace quire
