// The forward pass of a Llama model in double precision over the weights as the file decodes them: pairs of
// RoPE are neighbours, as in the file, and nothing is cached.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "property/model/tiny_model.h"
#include "property/reference.h"

namespace quire::test {

using Vector = std::vector<double>;

class ReferenceForward {
 public:
  ReferenceForward(const TinySpec& spec, const GgufFile& file) : spec_(spec) {
    for (const TensorInfo& tensor : file.tensors()) {
      std::vector<float> values(tensor.n_rows() * tensor.row_length());
      dequantize_row(tensor.type, tensor.data, values.data(), values.size());
      weights_[tensor.name].assign(values.begin(), values.end());
    }
  }

  // [token][vocabulary]
  std::vector<Vector> logits(const std::vector<int32_t>& tokens) const {
    std::vector<Vector> x;
    for (const int32_t token : tokens) {
      const double* row = weight("token_embd.weight").data() + static_cast<size_t>(token) * spec_.width;
      x.emplace_back(row, row + spec_.width);
    }
    for (size_t layer = 0; layer < spec_.n_layers; ++layer) {
      attend(x, "blk." + std::to_string(layer) + ".");
      feed_forward(x, "blk." + std::to_string(layer) + ".");
    }
    std::vector<Vector> out;
    const char* head = spec_.untied ? "output.weight" : "token_embd.weight";
    for (const Vector& row : x) out.push_back(product(head, norm(row, "output_norm.weight")));
    return out;
  }

 private:
  const Vector& weight(const std::string& name) const { return weights_.at(name); }

  Vector product(const std::string& name, const Vector& x) const {
    const Vector& matrix = weight(name);
    Vector out(matrix.size() / x.size(), 0.0);
    for (size_t row = 0; row < out.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) out[row] += matrix[row * x.size() + i] * x[i];
    }
    return out;
  }

  // The product with `name`.weight, and `name`.bias where there is one.
  Vector projection(const std::string& name, const Vector& x) const {
    Vector out = product(name + ".weight", x);
    const auto bias = weights_.find(name + ".bias");
    for (size_t i = 0; bias != weights_.end() && i < out.size(); ++i) out[i] += bias->second[i];
    return out;
  }

  Vector norm(const Vector& x, const std::string& name) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double inverse =
        1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(1e-5f));
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * inverse * weight(name)[i];
    return out;
  }

  void rotate(Vector& heads, size_t n_heads, size_t position) const {
    const size_t n = spec_.rotated();
    for (size_t i = 0; i < n / 2; ++i) {
      const double base = spec_.rope_base == 0 ? 10000.0 : spec_.rope_base;
      double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(n));
      if (spec_.rope_scale != 0) frequency /= spec_.rope_scale;
      if (spec_.rope_factors) frequency /= weight("rope_freqs.weight")[i];
      const double angle = static_cast<double>(position) * frequency;
      for (size_t head = 0; head < n_heads; ++head) {
        double* pair = heads.data() + head * spec_.head_dim + 2 * i;
        const double a = pair[0];
        pair[0] = a * std::cos(angle) - pair[1] * std::sin(angle);
        pair[1] = a * std::sin(angle) + pair[1] * std::cos(angle);
      }
    }
  }

  void attend(std::vector<Vector>& x, const std::string& prefix) const {
    const size_t dim = spec_.head_dim;
    std::vector<Vector> k, v;
    for (size_t token = 0; token < x.size(); ++token) {
      const Vector normed = norm(x[token], prefix + "attn_norm.weight");
      Vector q = projection(prefix + "attn_q", normed);
      k.push_back(projection(prefix + "attn_k", normed));
      v.push_back(projection(prefix + "attn_v", normed));
      rotate(q, spec_.n_heads, token);
      rotate(k.back(), spec_.n_kv_heads, token);
      Vector heads;
      for (size_t head = 0; head < spec_.n_heads; ++head) {
        const size_t column = head / (spec_.n_heads / spec_.n_kv_heads) * dim;
        const Vector out = attend_head(q.data() + head * dim, k, v, column);
        heads.insert(heads.end(), out.begin(), out.end());
      }
      const Vector out = product(prefix + "attn_output.weight", heads);
      // Keys and values of later tokens come from x as it was: theirs is not yet changed.
      for (size_t i = 0; i < out.size(); ++i) x[token][i] += out[i];
    }
  }

  Vector attend_head(const double* q, const std::vector<Vector>& k, const std::vector<Vector>& v,
                     size_t column) const {
    Vector weights;
    double top = -1e300;
    for (const Vector& key : k) {
      double score = 0;
      for (size_t d = 0; d < spec_.head_dim; ++d) score += q[d] * key[column + d];
      weights.push_back(score / std::sqrt(static_cast<double>(spec_.head_dim)));
      top = std::max(top, weights.back());
    }
    double sum = 0;
    for (double& value : weights) sum += value = std::exp(value - top);
    Vector out(spec_.head_dim, 0.0);
    for (size_t t = 0; t < v.size(); ++t) {
      for (size_t d = 0; d < spec_.head_dim; ++d) out[d] += weights[t] / sum * v[t][column + d];
    }
    return out;
  }

  void feed_forward(std::vector<Vector>& x, const std::string& prefix) const {
    for (Vector& row : x) {
      const Vector normed = norm(row, prefix + "ffn_norm.weight");
      Vector gate = product(prefix + "ffn_gate.weight", normed);
      const Vector up = product(prefix + "ffn_up.weight", normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Vector out = product(prefix + "ffn_down.weight", gate);
      for (size_t i = 0; i < out.size(); ++i) row[i] += out[i];
    }
  }

  TinySpec spec_;
  std::map<std::string, Vector> weights_;
};

}  // namespace quire::test
