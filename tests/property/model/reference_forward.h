// The forward pass of every family in double precision over the weights as the file decodes them: pairs of
// RoPE lie as in the file, and nothing is cached.
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
      if (!spec_.family().scales_embedding) continue;
      for (double& value : x.back()) value *= std::sqrt(static_cast<double>(spec_.width));
    }
    for (size_t layer = 0; layer < spec_.n_layers; ++layer) {
      attend(x, layer, "blk." + std::to_string(layer) + ".");
      feed_forward(x, "blk." + std::to_string(layer) + ".");
    }
    std::vector<Vector> out;
    const char* head = spec_.untied ? "output.weight" : "token_embd.weight";
    for (const Vector& row : x) {
      out.push_back(product(head, norm(row, "output_norm.weight")));
      for (double& logit : out.back())
        logit = capped(logit, or_else(spec_.logit_softcap, spec_.family().logit_softcap));
    }
    return out;
  }

 private:
  const Vector& weight(const std::string& name) const { return weights_.at(name); }

  static double or_else(double value, double otherwise) { return value == 0 ? otherwise : value; }
  static double capped(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

  // Of a layer; 0: none.
  size_t window(size_t layer) const {
    const size_t n = spec_.window_tokens == 0 ? spec_.family().window_tokens : spec_.window_tokens;
    const size_t period = spec_.window_period == 0 ? spec_.family().window_period : spec_.window_period;
    return period != 0 && layer % period == period - 1 ? 0 : n;
  }

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

  // Part `index` of a product that the family has in one tensor, [first, first + n) of its rows.
  static Vector part(const Vector& x, size_t first, size_t n) {
    return {x.begin() + static_cast<ptrdiff_t>(first), x.begin() + static_cast<ptrdiff_t>(first + n)};
  }

  void norm_heads(Vector& heads, const std::string& name) const {
    if (!spec_.family().head_norms) return;
    for (size_t first = 0; first < heads.size(); first += spec_.head_dim) {
      const Vector head = norm(part(heads, first, spec_.head_dim), name);
      std::copy(head.begin(), head.end(), heads.begin() + static_cast<ptrdiff_t>(first));
    }
  }

  // What is added to the stream.
  Vector branch(const std::string& name, const Vector& x, const std::string& norm_name) const {
    const Vector out = product(name, x);
    return spec_.family().post_norms ? norm(out, norm_name) : out;
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

  double frequency(size_t pair, size_t layer) const {
    const size_t n = spec_.rotated();
    const bool own = window(layer) != 0 && spec_.family().window_rope_base != 0;
    const double base = own ? spec_.family().window_rope_base : or_else(spec_.rope_base, 10000);
    const double plain = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(n));
    if (own) return plain;
    const double divisor = spec_.rope_factors ? weight("rope_freqs.weight")[pair] : 1;
    return plain / or_else(spec_.rope_scale, 1) / divisor;
  }

  void rotate(Vector& heads, size_t n_heads, size_t position, size_t layer) const {
    const size_t half = spec_.rotated() / 2;
    const bool neighbours = spec_.family().neighbouring_pairs && !spec_.half_split;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency(i, layer);
      for (size_t head = 0; head < n_heads; ++head) {
        double& a = heads[head * spec_.head_dim + (neighbours ? 2 * i : i)];
        double& b = heads[head * spec_.head_dim + (neighbours ? 2 * i + 1 : i + half)];
        const double before = a;
        a = before * std::cos(angle) - b * std::sin(angle);
        b = before * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  struct Projections {
    Vector q, k, v;
  };

  Projections project(const Vector& x, const std::string& prefix) const {
    if (!spec_.family().fused) {
      return {projection(prefix + "attn_q", x), projection(prefix + "attn_k", x),
              projection(prefix + "attn_v", x)};
    }
    const size_t n_q = spec_.n_heads * spec_.head_dim;
    const size_t n_kv = spec_.n_kv_heads * spec_.head_dim;
    const Vector all = product(prefix + "attn_qkv.weight", x);
    return {part(all, 0, n_q), part(all, n_q, n_kv), part(all, n_q + n_kv, n_kv)};
  }

  void attend(std::vector<Vector>& x, size_t layer, const std::string& prefix) const {
    const size_t dim = spec_.head_dim;
    std::vector<Vector> k, v;
    for (size_t token = 0; token < x.size(); ++token) {
      Projections p = project(norm(x[token], prefix + "attn_norm.weight"), prefix);
      norm_heads(p.q, prefix + "attn_q_norm.weight");
      norm_heads(p.k, prefix + "attn_k_norm.weight");
      rotate(p.q, spec_.n_heads, token, layer);
      rotate(p.k, spec_.n_kv_heads, token, layer);
      k.push_back(p.k);
      v.push_back(p.v);
      const size_t first = window(layer) == 0 ? 0 : token + 1 - std::min(token + 1, window(layer));
      Vector heads;
      for (size_t head = 0; head < spec_.n_heads; ++head) {
        const size_t column = head / (spec_.n_heads / spec_.n_kv_heads) * dim;
        const Vector out = attend_head(p.q.data() + head * dim, k, v, column, first);
        heads.insert(heads.end(), out.begin(), out.end());
      }
      const Vector out = branch(prefix + "attn_output.weight", heads, prefix + "post_attention_norm.weight");
      // Keys and values of later tokens come from x as it was: theirs is not yet changed.
      for (size_t i = 0; i < out.size(); ++i) x[token][i] += out[i];
    }
  }

  // Over the tokens from `first` on.
  Vector attend_head(const double* q, const std::vector<Vector>& k, const std::vector<Vector>& v,
                     size_t column, size_t first) const {
    const double scale = or_else(spec_.query_scale, 1 / std::sqrt(static_cast<double>(spec_.head_dim)));
    const double cap = or_else(spec_.score_softcap, spec_.family().score_softcap);
    Vector weights;
    double top = -1e300;
    for (size_t t = first; t < k.size(); ++t) {
      double score = 0;
      for (size_t d = 0; d < spec_.head_dim; ++d) score += q[d] * k[t][column + d];
      weights.push_back(capped(score * scale, cap));
      top = std::max(top, weights.back());
    }
    double sum = 0;
    for (double& value : weights) sum += value = std::exp(value - top);
    Vector out(spec_.head_dim, 0.0);
    for (size_t t = first; t < v.size(); ++t) {
      for (size_t d = 0; d < spec_.head_dim; ++d) out[d] += weights[t - first] / sum * v[t][column + d];
    }
    return out;
  }

  double activation(double x) const {
    if (spec_.family().activation == Activation::kSilu) return x / (1 + std::exp(-x));
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }

  void feed_forward(std::vector<Vector>& x, const std::string& prefix) const {
    const bool fused = spec_.family().fused;
    for (Vector& row : x) {
      const Vector normed = norm(row, prefix + "ffn_norm.weight");
      const Vector up = product(prefix + "ffn_up.weight", normed);
      Vector gate = fused ? part(up, 0, spec_.ffn_width) : product(prefix + "ffn_gate.weight", normed);
      const size_t shift = fused ? spec_.ffn_width : 0;
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = activation(gate[i]) * up[shift + i];
      const Vector out = branch(prefix + "ffn_down.weight", gate, prefix + "post_ffw_norm.weight");
      for (size_t i = 0; i < out.size(); ++i) row[i] += out[i];
    }
  }

  TinySpec spec_;
  std::map<std::string, Vector> weights_;
};

}  // namespace quire::test
