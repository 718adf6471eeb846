// A model over a cache most of whose rows are cold: queries keep the positions of the sequence. (The
// published code gives them the number of hot tokens.)
#include <gtest/gtest.h>

#include <cmath>

#include "property/model/run_model.h"
#include "property/model/tiny_model.h"

namespace quire::test {
namespace {

TEST(Promoting, LogitsFollowThoseOfAFullRead) {
  TinySpec spec;
  spec.type = TensorType::F32;
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 32;
  spec.width = 64;
  spec.ffn_width = 96;
  const Model tiny = load(TinyFile(spec, 5).gguf, Precision::kPrecise);
  const std::vector<int32_t> tokens = random_tokens(200, 40, 7);
  const std::vector<float> full = run_model(tiny, tokens, 1, 1, "k=nested4,v=nested3,frame=rotated,tail=16");
  const std::vector<float> got = run_model(
      tiny, tokens, 1, 1, "monarch(frame=rotated,window=16,max_hot=48,cold=0,budget=100%,promote=0.3)");
  double error = 0;
  double size = 0;
  for (size_t i = 150 * tiny.config().vocabulary; i < full.size(); ++i) {
    error += std::pow(full[i] - got[i], 2);
    size += std::pow(full[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.1);  // the rounding of single scores, through layers
}

}  // namespace
}  // namespace quire::test
