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
    return rows(name, n_rows, 0, n_rows, n_columns, order);
  }

  // Rows first..first + n_rows - 1 of a matrix of n_total, row r being row first + order[r].
  PackedMatrix rows(const std::string& name, size_t n_total, size_t first, size_t n_rows, size_t n_columns,
                    std::span<const uint32_t> order = {}) {
    const TensorInfo& tensor = take(name);
    check_shape(file_, tensor, n_total, n_columns);
    const std::byte* data = tensor.data + first * row_bytes(tensor.type, n_columns);
    PackedMatrix packed = pack(tensor.type, data, n_rows, n_columns, team_, order);
    if (first + n_rows == n_total) file_.drop_pages(tensor);
    return packed;
  }

  std::vector<float> vector(const std::string& name, size_t n) { return read_vector(file_, take(name), n); }

  // Value i of the result is value order[i] of the file.
  std::vector<float> ordered_vector(const std::string& name, std::span<const uint32_t> order) {
    return read_ordered(file_, take(name), order);
  }

  // Empty where the family has none, or the file where the family leaves it the choice.
  std::vector<float> bias(const std::string& name, Biases biases, std::span<const uint32_t> order) {
    if (biases == Biases::kNone || (biases == Biases::kOptional && !has(name))) return {};
    return read_ordered(file_, take(name), order);
  }

  // What ModelConfig::read() has made use of.
  void pass_over(const char* name) { taken_.insert(name); }

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

// How the rows of queries, keys and values lie in the file.
struct HeadOrders {
  explicit HeadOrders(const ModelConfig& config)
      : q(half_split_order(config.n_heads, config.head_dim, config.neighbouring_dims())),
        k(half_split_order(config.n_kv_heads, config.head_dim, config.neighbouring_dims())),
        v(half_split_order(config.n_kv_heads, config.head_dim, 0)),
        head(half_split_order(1, config.head_dim, config.neighbouring_dims())) {}

  std::vector<uint32_t> q, k, v;
  std::vector<uint32_t> head;  // of one
};

void load_projections(TensorSource& source, const ModelConfig& config, const std::string& prefix,
                      const HeadOrders& orders, Layer& layer) {
  const size_t n_q = orders.q.size();
  const size_t n_kv = orders.k.size();
  if (config.family->fused) {
    const std::string name = prefix + "attn_qkv.weight";
    const size_t n_all = n_q + 2 * n_kv;
    layer.q = source.rows(name, n_all, 0, n_q, config.width, orders.q);
    layer.k = source.rows(name, n_all, n_q, n_kv, config.width, orders.k);
    layer.v = source.rows(name, n_all, n_q + n_kv, n_kv, config.width);
  } else {
    layer.q = source.matrix(prefix + "attn_q.weight", n_q, config.width, orders.q);
    layer.k = source.matrix(prefix + "attn_k.weight", n_kv, config.width, orders.k);
    layer.v = source.matrix(prefix + "attn_v.weight", n_kv, config.width);
  }
  layer.q_bias = source.bias(prefix + "attn_q.bias", config.family->biases, orders.q);
  layer.k_bias = source.bias(prefix + "attn_k.bias", config.family->biases, orders.k);
  layer.v_bias = source.bias(prefix + "attn_v.bias", config.family->biases, orders.v);
  if (config.family->head_norms) {
    layer.q_norm = source.ordered_vector(prefix + "attn_q_norm.weight", orders.head);
    layer.k_norm = source.ordered_vector(prefix + "attn_k_norm.weight", orders.head);
  }
}

void load_feed_forward(TensorSource& source, const ModelConfig& config, const std::string& prefix,
                       Layer& layer) {
  const size_t n = config.ffn_width;
  if (config.family->fused) {
    layer.gate = source.rows(prefix + "ffn_up.weight", 2 * n, 0, n, config.width);
    layer.up = source.rows(prefix + "ffn_up.weight", 2 * n, n, n, config.width);
  } else {
    layer.gate = source.matrix(prefix + "ffn_gate.weight", n, config.width);
    layer.up = source.matrix(prefix + "ffn_up.weight", n, config.width);
  }
  layer.down = source.matrix(prefix + "ffn_down.weight", config.width, n);
}

Layer load_layer(TensorSource& source, const ModelConfig& config, const HeadOrders& orders, size_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  Layer layer;
  layer.attention_norm = source.vector(prefix + "attn_norm.weight", config.width);
  load_projections(source, config, prefix, orders, layer);
  layer.output = source.matrix(prefix + "attn_output.weight", config.width, orders.q.size());
  layer.ffn_norm = source.vector(prefix + "ffn_norm.weight", config.width);
  load_feed_forward(source, config, prefix, layer);
  if (config.family->post_norms) {
    layer.output_norm = source.vector(prefix + "post_attention_norm.weight", config.width);
    layer.down_norm = source.vector(prefix + "post_ffw_norm.weight", config.width);
  }
  return layer;
}

}  // namespace

Model Model::load(const GgufFile& file, Team& team, Precision precision, const RopeOverrides& overrides) {
  Model model;
  model.config_ = ModelConfig::read(file, overrides);
  model.precision_ = precision;
  const ModelConfig& config = model.config_;
  TensorSource source(file, team);
  const HeadOrders orders(config);
  for (size_t i = 0; i < config.n_layers; ++i) {
    model.layers_.push_back(load_layer(source, config, orders, i));
  }
  model.output_norm_ = source.vector("output_norm.weight", config.width);
  model.embedding_ = source.matrix("token_embd.weight", config.vocabulary, config.width);
  if (source.has("output.weight"))
    model.head_ = source.matrix("output.weight", config.vocabulary, config.width);
  for (const char* name : {kRopeFactorsTensor, kLongFactorsTensor, kShortFactorsTensor}) {
    source.pass_over(name);
  }
  source.refuse_rest();
  const std::vector<KeyBiasCheck> checks = check_key_biases(file, config);
  model.key_bias_risks_ = layer_risks(checks, config.n_layers);
  model.key_biases_ = quire::key_biases(checks, model.rope_frequencies());
  return model;
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
         {&layer.attention_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm,
          &layer.output_norm, &layer.ffn_norm, &layer.down_norm}) {
      total += vector->size() * sizeof(float);
    }
  }
  return total;
}

}  // namespace quire
