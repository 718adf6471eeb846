// Small models of any family with random weights, written as GGUF files in memory.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/families.h"
#include "property/random_rows.h"
#include "unit/weights/gguf_writer.h"
#include "weights/gguf.h"

namespace quire::test {

struct TinySpec {
  std::string architecture = "llama";
  size_t n_layers = 2;
  size_t n_heads = 4;
  size_t n_kv_heads = 2;
  size_t head_dim = 64;
  size_t width = 256;
  size_t ffn_width = 256;
  size_t vocabulary = 40;
  size_t context_tokens = 1024;
  TensorType type = TensorType::F32;  // of every matrix
  bool untied = false;
  bool rope_factors = false;
  bool biases = false;      // of q, k and v, where the family leaves the choice
  size_t rope_dims = 0;     // 0: head_dim, with no key that says so
  double rope_base = 0;     // 0: no key
  double rope_scale = 0;    // 0: no key; else linear scaling
  bool half_split = false;  // the key that says so of a folder's rows
  double query_scale = 0;   // 0: no key, of these too
  double score_softcap = 0;
  double logit_softcap = 0;
  size_t window_tokens = 0;
  size_t window_period = 0;

  // What a test wants otherwise in the file.
  std::set<std::string> without;                          // keys and tensors left out
  std::map<std::string, std::vector<uint64_t>> reshaped;  // tensors of another shape
  std::function<void(GgufWriter&)> extra;                 // entries and tensors added

  size_t rotated() const { return rope_dims == 0 ? head_dim : rope_dims; }
  const ModelFamily& family() const { return *find_family(architecture); }
  bool has_biases() const {
    return family().biases == Biases::kRequired || (biases && family().biases == Biases::kOptional);
  }
};

namespace tiny {

template <typename T>
void add_key(GgufWriter& file, const TinySpec& spec, const std::string& key, T value) {
  if (!spec.without.contains(key)) file.add(key, value);
}

inline void add_count(GgufWriter& file, const TinySpec& spec, const std::string& key, size_t value) {
  add_key(file, spec, key, static_cast<uint32_t>(value));
}

inline void add_number(GgufWriter& file, const TinySpec& spec, const std::string& key, double value) {
  if (value != 0) add_key(file, spec, key, static_cast<float>(value));
}

inline void add_rope_keys(GgufWriter& file, const TinySpec& spec, const std::string& prefix) {
  if (spec.rope_dims != 0) add_count(file, spec, prefix + "rope.dimension_count", spec.rope_dims);
  add_number(file, spec, prefix + "rope.freq_base", spec.rope_base);
  if (spec.rope_scale != 0) add_key(file, spec, prefix + "rope.scaling.type", "linear");
  add_number(file, spec, prefix + "rope.scaling.factor", spec.rope_scale);
  if (spec.half_split) add_key(file, spec, "quire.rope.half_split", true);
}

inline void add_keys(GgufWriter& file, const TinySpec& spec) {
  const std::string prefix = spec.architecture + ".";
  add_key(file, spec, "general.architecture", spec.architecture.c_str());
  add_key(file, spec, "general.name", "tiny");
  add_count(file, spec, prefix + "block_count", spec.n_layers);
  add_count(file, spec, prefix + "embedding_length", spec.width);
  add_count(file, spec, prefix + "feed_forward_length", spec.ffn_width);
  add_count(file, spec, prefix + "context_length", spec.context_tokens);
  add_count(file, spec, prefix + "attention.head_count", spec.n_heads);
  add_count(file, spec, prefix + "attention.head_count_kv", spec.n_kv_heads);
  add_key(file, spec, prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  if (spec.head_dim * spec.n_heads != spec.width) {
    add_count(file, spec, prefix + "attention.key_length", spec.head_dim);
    add_count(file, spec, prefix + "attention.value_length", spec.head_dim);
  }
  add_rope_keys(file, spec, prefix);
  add_number(file, spec, prefix + "attention.scale", spec.query_scale);
  add_number(file, spec, prefix + "attn_logit_softcapping", spec.score_softcap);
  add_number(file, spec, prefix + "final_logit_softcapping", spec.logit_softcap);
  if (spec.window_tokens != 0) add_count(file, spec, prefix + "attention.sliding_window", spec.window_tokens);
  if (spec.window_period != 0) {
    add_count(file, spec, prefix + "attention.sliding_window_pattern", spec.window_period);
  }
}

class Tensors {
 public:
  Tensors(GgufWriter& file, const TinySpec& spec, uint64_t seed) : file_(file), spec_(spec), random_(seed) {}

  void matrix(const std::string& name, size_t n_rows, size_t n_columns) {
    add(name, {n_columns, n_rows}, spec_.type, [&](size_t rows, size_t columns) {
      return random_rows(random_, spec_.type, rows, columns, Scales::kCentred).bytes;
    });
  }

  // Values around 1.
  void vector(const std::string& name, size_t n) {
    add(name, {n}, TensorType::F32, [&](size_t rows, size_t columns) {
      Bytes bytes(rows * columns * sizeof(float));
      for (size_t i = 0; i < rows * columns; ++i) {
        const auto value = static_cast<float>(std::exp(0.2 * random_.normal()));
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      }
      return bytes;
    });
  }

 private:
  template <typename Fill>
  void add(const std::string& name, std::vector<uint64_t> shape, TensorType type, const Fill& fill) {
    if (spec_.without.contains(name)) return;
    const auto other = spec_.reshaped.find(name);
    if (other != spec_.reshaped.end()) shape = other->second;
    size_t n_rows = 1;
    for (size_t i = 1; i < shape.size(); ++i) n_rows *= shape[i];
    file_.add_tensor(name, shape, type, fill(n_rows, shape[0]));
  }

  GgufWriter& file_;
  const TinySpec& spec_;
  Random random_;
};

inline void add_attention(Tensors& tensors, const TinySpec& spec, const std::string& prefix) {
  const size_t n_q = spec.n_heads * spec.head_dim;
  const size_t n_kv = spec.n_kv_heads * spec.head_dim;
  if (spec.family().fused) {
    tensors.matrix(prefix + "attn_qkv.weight", n_q + 2 * n_kv, spec.width);
  } else {
    tensors.matrix(prefix + "attn_q.weight", n_q, spec.width);
    tensors.matrix(prefix + "attn_k.weight", n_kv, spec.width);
    tensors.matrix(prefix + "attn_v.weight", n_kv, spec.width);
  }
  if (spec.has_biases()) {
    tensors.vector(prefix + "attn_q.bias", n_q);
    tensors.vector(prefix + "attn_k.bias", n_kv);
    tensors.vector(prefix + "attn_v.bias", n_kv);
  }
  if (spec.family().head_norms) {
    tensors.vector(prefix + "attn_q_norm.weight", spec.head_dim);
    tensors.vector(prefix + "attn_k_norm.weight", spec.head_dim);
  }
  tensors.matrix(prefix + "attn_output.weight", spec.width, n_q);
  if (spec.family().post_norms) tensors.vector(prefix + "post_attention_norm.weight", spec.width);
}

inline void add_feed_forward(Tensors& tensors, const TinySpec& spec, const std::string& prefix) {
  const bool fused = spec.family().fused;
  tensors.vector(prefix + "ffn_norm.weight", spec.width);
  if (!fused) tensors.matrix(prefix + "ffn_gate.weight", spec.ffn_width, spec.width);
  tensors.matrix(prefix + "ffn_up.weight", (fused ? 2 : 1) * spec.ffn_width, spec.width);
  tensors.matrix(prefix + "ffn_down.weight", spec.width, spec.ffn_width);
  if (spec.family().post_norms) tensors.vector(prefix + "post_ffw_norm.weight", spec.width);
}

inline void add_tensors(GgufWriter& file, const TinySpec& spec, uint64_t seed) {
  Tensors tensors(file, spec, seed);
  tensors.matrix("token_embd.weight", spec.vocabulary, spec.width);
  for (size_t i = 0; i < spec.n_layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    tensors.vector(prefix + "attn_norm.weight", spec.width);
    add_attention(tensors, spec, prefix);
    add_feed_forward(tensors, spec, prefix);
  }
  tensors.vector("output_norm.weight", spec.width);
  if (spec.untied) tensors.matrix("output.weight", spec.vocabulary, spec.width);
  if (spec.rope_factors) tensors.vector("rope_freqs.weight", spec.rotated() / 2);
}

}  // namespace tiny

// The bytes and the file that reads them.
struct TinyFile {
  explicit TinyFile(const TinySpec& spec, uint64_t seed = 1) : bytes(build(spec, seed)), gguf(open()) {}

  Bytes bytes;
  GgufFile gguf;

 private:
  static Bytes build(const TinySpec& spec, uint64_t seed) {
    GgufWriter writer;
    tiny::add_keys(writer, spec);
    tiny::add_tensors(writer, spec, seed);
    if (spec.extra) spec.extra(writer);
    return writer.build();
  }
  GgufFile open() const { return GgufFile::from_memory(bytes, "tiny.gguf"); }
};

}  // namespace quire::test
