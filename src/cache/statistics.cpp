#include "cache/statistics.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "format/lloyd_max.h"
#include "format/sketch.h"

namespace quire {

namespace {

// Seeds of the sketches of keys and values: pages written with them depend on these.
constexpr uint64_t kKeySketchSeed = 0x6b6579;    // "key"
constexpr uint64_t kValueSketchSeed = 0x76616c;  // "val"

// The table of a side's code, and the sketch it refers to where it has one.
Codebook book_of(const SideFormat& side, size_t head_dim, uint64_t seed, std::vector<float>& sketch) {
  if (!side.coded) return {};
  const CodebookSpec spec = codebook_spec(side.code);
  Codebook book = make_codebook(spec, static_cast<int>(head_dim));
  if (spec.kind == CodebookKind::kSketched) {
    sketch = make_sketch(seed, static_cast<int>(head_dim));
    book.sketch = sketch.data();
  }
  return book;
}

}  // namespace

CacheStatistics::CacheStatistics(const Recipe& recipe, const Geometry& geometry, ModelFacts facts)
    : recipe_(recipe), head_dim_(geometry.head_dim), facts_(std::move(facts)) {
  if (recipe.needs_calibration()) {
    if (facts_.calibration == nullptr) {
      throw Error("recipe '" + recipe.text() + "' needs the model's calibration (quire calibrate), or " +
                  (recipe.calibrates_frames() ? "frame=rotated" : "from=prompt"));
    }
    const Geometry& measured = facts_.calibration->geometry;
    if (measured.head_dim != geometry.head_dim || measured.n_kv_heads != geometry.n_kv_heads) {
      throw Error("the calibration is of a model of another shape");
    }
  }
  size_t n_heads = 0;
  for (const size_t n : geometry.n_kv_heads) {
    first_head_.push_back(n_heads);
    n_heads += n;
  }
  QUIRE_CHECK(facts_.key_biases == nullptr || facts_.key_biases->heads.size() == n_heads);
  if (!recipe.coded) return;
  if (geometry.head_dim > kMaxHeadDim) {
    throw Error("recipe '" + recipe.text() + "': head sizes above " + std::to_string(kMaxHeadDim) +
                " cannot be coded, and the model's is " + std::to_string(geometry.head_dim));
  }
  key_book_ = book_of(recipe.keys, head_dim_, kKeySketchSeed, key_sketch_);
  value_book_ = book_of(recipe.values, head_dim_, kValueSketchSeed, value_sketch_);
  const bool rotated = recipe.frame_of(recipe.keys) != FrameKind::kPlain ||
                       recipe.frame_of(recipe.values) != FrameKind::kPlain;
  if (!rotated) return;
  for (size_t layer = 0; layer < geometry.n_kv_heads.size(); ++layer) {
    for (size_t head = 0; head < geometry.n_kv_heads[layer]; ++head) {
      Signs signs{std::vector<float>(head_dim_), std::vector<float>(head_dim_)};
      const auto l = static_cast<uint32_t>(layer);
      const auto h = static_cast<uint32_t>(head);
      frame_signs(frame_seed(l, h, FrameSide::kKey), static_cast<int>(head_dim_), signs.key.data());
      frame_signs(frame_seed(l, h, FrameSide::kValue), static_cast<int>(head_dim_), signs.value.data());
      signs_.push_back(std::move(signs));
    }
  }
}

HeadFrames CacheStatistics::frames(size_t layer, size_t kv_head) const {
  const size_t index = first_head_[layer] + kv_head;
  const int dim = static_cast<int>(head_dim_);
  HeadFrames frames{{dim, nullptr, nullptr, nullptr},
                    {dim, nullptr, nullptr, nullptr},
                    false,
                    false,
                    &key_book_,
                    &value_book_,
                    nullptr};
  const FrameKind key_kind = recipe_.frame_of(recipe_.keys);
  const FrameKind value_kind = recipe_.frame_of(recipe_.values);
  frames.key_framed = key_kind != FrameKind::kPlain;
  frames.value_framed = value_kind != FrameKind::kPlain;
  if (frames.key_framed) frames.key.signs = signs_[index].key.data();
  if (frames.value_framed) frames.value.signs = signs_[index].value.data();
  const bool calibrated = recipe_.calibrates_frames();
  if (calibrated && key_kind >= FrameKind::kCalibrated) {
    frames.key.mean = facts_.calibration->key_mean.data() + index * head_dim_;
    frames.key.balance = facts_.calibration->key_balance.data() + index * head_dim_;
  }
  if (calibrated && value_kind == FrameKind::kCentred)
    frames.value.mean = facts_.calibration->value_mean.data() + index * head_dim_;
  if (facts_.key_biases != nullptr && facts_.key_biases->heads[index])
    frames.key_bias = &*facts_.key_biases->heads[index];
  return frames;
}

bool CacheStatistics::has_key_bias(size_t layer) const {
  if (facts_.key_biases == nullptr) return false;
  const auto first = facts_.key_biases->heads.begin() + static_cast<ptrdiff_t>(first_head_[layer]);
  const auto last = layer + 1 < first_head_.size()
                        ? facts_.key_biases->heads.begin() + static_cast<ptrdiff_t>(first_head_[layer + 1])
                        : facts_.key_biases->heads.end();
  return std::any_of(first, last, [](const std::optional<KeyBias>& bias) { return bias.has_value(); });
}

}  // namespace quire
