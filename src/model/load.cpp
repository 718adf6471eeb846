// Loading: every tensor of the file is checked, packed, and accounted for.
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/key_bias.h"
#include "model/model.h"
#include "model/tensors.h"

namespace quire {

namespace {

// Hands out the file's tensors once each and notices what was not asked for.
class TensorSource {
 public:
  TensorSource(const GgufFile& file, Team& team) : file_(file), team_(team) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  PackedMatrix matrix(const std::string& name, size_t n_rows, size_t n_columns,
                      std::span<const uint32_t> order = {}) {
    const TensorInfo& tensor = take(name);
    check_shape(file_, tensor, n_rows, n_columns);
    PackedMatrix packed = pack(tensor.type, tensor.data, n_rows, n_columns, team_, order);
    file_.drop_pages(tensor);
    return packed;
  }

  std::vector<float> vector(const std::string& name, size_t n) { return read_vector(file_, take(name), n); }

  // Empty when the file has none.
  std::vector<float> bias(const std::string& name, std::span<const uint32_t> order) {
    return has(name) ? read_bias(file_, take(name), order) : std::vector<float>();
  }

  // A tensor that the forward pass would ignore is an error: its absence would change the answer silently.
  void refuse_rest() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (!taken_.contains(tensor.name)) {
        throw Error(file_.path() + ": tensor '" + tensor.name.substr(0, 80) +
                    "' is not part of a supported model");
      }
    }
  }

 private:
  const TensorInfo& take(const std::string& name) {
    taken_.insert(name);
    return file_.tensor(name);
  }

  const GgufFile& file_;
  Team& team_;
  std::set<std::string> taken_;
};

Layer load_layer(TensorSource& source, const ModelConfig& config, size_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const size_t q_width = config.n_heads * config.head_dim;
  const size_t kv_width = config.n_kv_heads * config.head_dim;
  const auto q_order = half_split_order(config.n_heads, config.head_dim, config.rope_dims);
  const auto k_order = half_split_order(config.n_kv_heads, config.head_dim, config.rope_dims);
  const auto v_order = half_split_order(config.n_kv_heads, config.head_dim, 0);  // as in the file
  Layer layer;
  layer.attention_norm = source.vector(prefix + "attn_norm.weight", config.width);
  layer.q = source.matrix(prefix + "attn_q.weight", q_width, config.width, q_order);
  layer.k = source.matrix(prefix + "attn_k.weight", kv_width, config.width, k_order);
  layer.v = source.matrix(prefix + "attn_v.weight", kv_width, config.width);
  layer.q_bias = source.bias(prefix + "attn_q.bias", q_order);
  layer.k_bias = source.bias(prefix + "attn_k.bias", k_order);
  layer.v_bias = source.bias(prefix + "attn_v.bias", v_order);
  layer.output = source.matrix(prefix + "attn_output.weight", config.width, q_width);
  layer.ffn_norm = source.vector(prefix + "ffn_norm.weight", config.width);
  layer.gate = source.matrix(prefix + "ffn_gate.weight", config.ffn_width, config.width);
  layer.up = source.matrix(prefix + "ffn_up.weight", config.ffn_width, config.width);
  layer.down = source.matrix(prefix + "ffn_down.weight", config.width, config.ffn_width);
  return layer;
}

}  // namespace

Model Model::load(const GgufFile& file, Team& team, Precision precision) {
  Model model;
  model.config_ = ModelConfig::read(file);
  model.precision_ = precision;
  const ModelConfig& config = model.config_;
  TensorSource source(file, team);
  for (size_t i = 0; i < config.n_layers; ++i) model.layers_.push_back(load_layer(source, config, i));
  model.output_norm_ = source.vector("output_norm.weight", config.width);
  model.embedding_ = source.matrix("token_embd.weight", config.vocabulary, config.width);
  if (source.has("output.weight"))
    model.head_ = source.matrix("output.weight", config.vocabulary, config.width);
  if (source.has("rope_freqs.weight")) {
    model.rope_factors_ = source.vector("rope_freqs.weight", config.rope_dims / 2);
    for (const float factor : model.rope_factors_) {
      if (factor > 0 && std::isfinite(factor)) continue;
      throw Error(file.path() + ": tensor 'rope_freqs.weight' holds " + std::to_string(factor) +
                  ", not a positive number");
    }
  }
  source.refuse_rest();
  const std::vector<KeyBiasCheck> checks = check_key_biases(file, config);
  model.key_bias_risks_ = layer_risks(checks, config.n_layers);
  model.key_biases_ = quire::key_biases(checks, model.rope_frequencies());
  return model;
}

std::vector<double> Model::rope_frequencies() const {
  std::vector<double> frequencies(config_.rope_dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    frequency =
        std::pow(config_.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(config_.rope_dims));
    frequency /= config_.rope_scale;
    if (!rope_factors_.empty()) frequency /= static_cast<double>(rope_factors_[i]);
  }
  return frequencies;
}

uint64_t Model::weight_bytes() const {
  uint64_t total =
      embedding_.data.size_bytes() + head_.data.size_bytes() + output_norm_.size() * sizeof(float);
  for (const Layer& layer : layers_) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.output, &layer.gate, &layer.up, &layer.down}) {
      total += matrix->data.size_bytes();
    }
    for (const std::vector<float>* vector :
         {&layer.attention_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.ffn_norm}) {
      total += vector->size() * sizeof(float);
    }
  }
  return total;
}

}  // namespace quire
