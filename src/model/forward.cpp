// The forward pass. Layer by layer over the whole span, and within a layer in chunks of tokens:
//
//   x -> norm -> q k v -> biases, norms of heads, RoPE -> Cache.append, Cache.attend -> output (norm), += x
//     -> norm -> gate, up -> down (norm), += x
//
// Only x spans all tokens; everything else is the size of a chunk. All members of the team walk through the
// same phases, see base/team.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/linear.h"
#include "model/model.h"
#include "model/workspace.h"

namespace quire {

namespace {

// Tokens of a chunk: their quantized activations (590 KB at 1,536 columns) stay in the second-level cache
// while the weights of a layer pass by.
constexpr size_t kChunkTokens = 256;
// Rows of gate and up that are computed, combined and quantized together: one block of the next product.
constexpr size_t kHiddenBlock = 32;
constexpr int kCapLanes = 16;  // values that a soft cap takes at once

}  // namespace

Workspace::Workspace() : buffers_(std::make_unique<Buffers>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

// One forward pass as one member sees it.
class ForwardPass {
 public:
  ForwardPass(const Model& model, Workspace::Buffers& buffers, Worker& worker,
              RowObserver* observer = nullptr)
      : model_(model),
        config_(model.config_),
        buffers_(buffers),
        worker_(worker),
        own_(buffers.members[static_cast<size_t>(worker.rank())]),
        observer_(worker.rank() == 0 ? observer : nullptr) {}

  // x and the angles of the step's tokens, the first of which has the position `first`.
  void embed(std::span<const int32_t> tokens, size_t first) {
    worker_.share(static_cast<int64_t>(tokens.size()), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        float* x = buffers_.x.data() + i * config_.width;
        model_.embedding_.unpack_row(static_cast<size_t>(tokens[i]), x);
        if (config_.embedding_scale != 1) scale(x, config_.width, config_.embedding_scale);
        turn(config_.rope, first + i, i, buffers_.angles);
        if (config_.window_rope) turn(*config_.window_rope, first + i, i, buffers_.window_angles);
      }
    });
  }

  void run_layer(size_t index, Cache& cache, size_t n_total) {
    const Layer& layer = model_.layers_[index];
    cache.begin_layer(worker_, index);
    for (size_t first = 0; first < n_total; first += kChunkTokens) {
      const size_t n = std::min(kChunkTokens, n_total - first);
      float* x = buffers_.x.data() + first * config_.width;
      attention(layer, index, cache, first, n, x);
      feed_forward(layer, n, x);
    }
    cache.end_layer(worker_, index);
  }

  // Logits of hidden states x [n][width], n at most a chunk.
  void head(const float* x, size_t n, float* out) {
    const PackedMatrix& matrix = model_.head_.empty() ? model_.embedding_ : model_.head_;
    const Activations normed = normalise(x, n, model_.output_norm_, {&matrix});
    multiply(worker_, model_.precision_, normed, {{&matrix, out, config_.vocabulary}});
    if (config_.logit_softcap != 0) cap_logits(n * config_.vocabulary, out);
  }

 private:
  static void scale(float* x, size_t n, float factor) {
    for (size_t i = 0; i < n; ++i) x[i] *= factor;
  }

  static void turn(const Rope& rope, size_t position, size_t i, Angles& angles) {
    rope.turn(position, angles.cosine.data() + i * rope.half(), angles.sine.data() + i * rope.half());
  }

  void cap_logits(size_t n, float* logits) {
    constexpr size_t kBlock = 4096;
    worker_.share(static_cast<int64_t>((n + kBlock - 1) / kBlock), 1, [&](int64_t block, int64_t) {
      const size_t first = static_cast<size_t>(block) * kBlock;
      const size_t count = std::min(kBlock, n - first);
      const size_t whole = count / kCapLanes * kCapLanes;
      ops().cap_scores(logits + first, static_cast<int>(whole), config_.logit_softcap);
      float rest[kCapLanes] = {};
      std::copy_n(logits + first + whole, count - whole, rest);
      ops().cap_scores(rest, kCapLanes, config_.logit_softcap);
      std::copy_n(rest, count - whole, logits + first + whole);
    });
  }

  bool any_reads_tiles(std::initializer_list<const PackedMatrix*> readers) const {
    return std::any_of(readers.begin(), readers.end(),
                       [&](const PackedMatrix* m) { return reads_tiles(*m, model_.precision_); });
  }

  // Puts rows [n][columns] into the form that `readers` read. `fill(i, to)` gives row i in f32, written to
  // `to` or lying elsewhere. Ends with all members ready.
  template <typename Fill>
  Activations prepare(size_t n, size_t columns, std::initializer_list<const PackedMatrix*> readers,
                      const Fill& fill) {
    Activations result;
    result.n_tokens = n;
    result.columns = columns;
    const bool tiles = any_reads_tiles(readers);
    if (n == 1) {
      grow(own_.floats, columns);
      grow(own_.tiles, tiles_bytes(1, columns));
      const float* row = fill(0, own_.floats.data());
      if (tiles) ops().quantize_tile(row, columns, 1, 1, static_cast<int>(columns), own_.tiles.data());
      result.floats = row;
      result.tiles = own_.tiles.data();
      return result;
    }
    result.floats = buffers_.floats.data();
    result.tiles = buffers_.tiles.data();
    const size_t tile_bytes = tiles_bytes(kTileTokens, columns);
    worker_.share(static_cast<int64_t>(result.n_tiles()), 1, [&](int64_t item, int64_t) {
      const auto tile = static_cast<size_t>(item);
      const size_t first = tile * kTileTokens;
      const size_t count = std::min<size_t>(kTileTokens, n - first);
      float* rows = buffers_.floats.data() + first * columns;
      for (size_t i = 0; i < count; ++i) {
        const float* row = fill(first + i, rows + i * columns);
        if (row != rows + i * columns) std::copy_n(row, columns, rows + i * columns);
      }
      if (tiles) {
        ops().quantize_tile(rows, columns, static_cast<int>(count), kTileTokens, static_cast<int>(columns),
                            buffers_.tiles.data() + tile * tile_bytes);
      }
    });
    return result;
  }

  Activations normalise(const float* x, size_t n, const std::vector<float>& weight,
                        std::initializer_list<const PackedMatrix*> readers) {
    const size_t width = config_.width;
    return prepare(n, width, readers, [&](size_t i, float* to) -> const float* {
      ops().rms_norm(x + i * width, weight.data(), config_.norm_epsilon, static_cast<int>(width), to);
      return to;
    });
  }

  void attention(const Layer& layer, size_t index, Cache& cache, size_t first, size_t n, float* x) {
    const size_t q_width = config_.n_heads * config_.head_dim;
    const size_t kv_width = config_.n_kv_heads * config_.head_dim;
    const size_t ld = q_width + 2 * kv_width;
    float* q = buffers_.qkv.data();
    float* k = q + q_width;
    float* v = k + kv_width;
    const Activations normed = normalise(x, n, layer.attention_norm, {&layer.q, &layer.k, &layer.v});
    if (observer_ != nullptr) {
      observer_->attention_input(index, cache.n_tokens() + first, n, normed.floats);
    }
    if (cache.predicts(index)) cache.predict(worker_, index, normed.floats);
    multiply(worker_, model_.precision_, normed, {{&layer.q, q, ld}, {&layer.k, k, ld}, {&layer.v, v, ld}});
    finish_heads(layer, index, first, n, q, k, v, ld);
    // The rows are complete, and stay until this member too has left the phases that read them.
    if (observer_ != nullptr) observer_->rows(index, cache.n_tokens() + first, n, q, k, v, ld);
    cache.append(worker_, index, first, n, k, v, ld);
    float* attended = buffers_.attended.data();
    cache.attend(worker_, index, first, n, q, ld, attended, q_width);
    const Activations heads = prepare(n, q_width, {&layer.output}, [&](size_t i, float*) -> const float* {
      return attended + i * q_width;
    });
    add_product(heads, layer.output, layer.output_norm, x);
  }

  static void add_bias(const std::vector<float>& bias, float* row) {
    for (size_t i = 0; i < bias.size(); ++i) row[i] += bias[i];
  }

  // Each of n_heads heads of one token in place; no weight: they stay.
  void normalise_heads(const std::vector<float>& weight, size_t n_heads, float* row) {
    if (weight.empty()) return;
    const size_t dim = config_.head_dim;
    for (size_t head = 0; head < n_heads; ++head, row += dim) {
      ops().rms_norm(row, weight.data(), config_.norm_epsilon, static_cast<int>(dim), row);
    }
  }

  // Of the step's tokens from `first` on: biases, the norms of heads, and RoPE on queries and keys; queries
  // take the factor of the scores along.
  void finish_heads(const Layer& layer, size_t index, size_t first, size_t n, float* q, float* k, float* v,
                    size_t ld) {
    const auto half = static_cast<int>(config_.rope_dims / 2);
    const auto dim = static_cast<int>(config_.head_dim);
    const bool windowed = config_.window_rope && config_.has_window(index);
    const Angles& angles = windowed ? buffers_.window_angles : buffers_.angles;
    worker_.share(static_cast<int64_t>(n), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const float* cosine = angles.cosine.data() + (first + i) * static_cast<size_t>(half);
        const float* sine = angles.sine.data() + (first + i) * static_cast<size_t>(half);
        add_bias(layer.q_bias, q + i * ld);
        add_bias(layer.k_bias, k + i * ld);
        add_bias(layer.v_bias, v + i * ld);
        normalise_heads(layer.q_norm, config_.n_heads, q + i * ld);
        normalise_heads(layer.k_norm, config_.n_kv_heads, k + i * ld);
        ops().rope(q + i * ld, static_cast<int>(config_.n_heads), dim, half, cosine, sine,
                   config_.query_scale);
        ops().rope(k + i * ld, static_cast<int>(config_.n_kv_heads), dim, half, cosine, sine, 1.0f);
      }
    });
  }

  // x [n][width] += activations * matrix^T, behind an RMS norm where there is one.
  void add_product(const Activations& activations, const PackedMatrix& matrix, const std::vector<float>& norm,
                   float* x) {
    const size_t width = config_.width;
    if (norm.empty()) {
      multiply(worker_, model_.precision_, activations, {{&matrix, x, width, true}});
      return;
    }
    float* branch = buffers_.branch.data();
    multiply(worker_, model_.precision_, activations, {{&matrix, branch, width}});
    worker_.share(static_cast<int64_t>(activations.n_tokens), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        float* row = branch + i * width;
        ops().rms_norm(row, norm.data(), config_.norm_epsilon, static_cast<int>(width), row);
        for (size_t d = 0; d < width; ++d) x[i * width + d] += row[d];
      }
    });
  }

  void feed_forward(const Layer& layer, size_t n, float* x) {
    const Activations normed = normalise(x, n, layer.ffn_norm, {&layer.gate, &layer.up});
    Activations hidden;
    hidden.n_tokens = n;
    hidden.columns = config_.ffn_width;
    hidden.floats = buffers_.hidden.data();
    hidden.tiles = buffers_.hidden_tiles.data();
    const size_t n_blocks = (config_.ffn_width + kHiddenBlock - 1) / kHiddenBlock;
    const auto grain =
        static_cast<int64_t>(std::max<size_t>(1, n_blocks / (8 * static_cast<size_t>(worker_.size()))));
    worker_.share(static_cast<int64_t>(n_blocks), grain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (size_t tile = 0; tile < normed.n_tiles(); ++tile) {
          hidden_block(layer, normed, static_cast<size_t>(block), tile);
        }
      }
    });
    add_product(hidden, layer.down, layer.down_norm, x);
  }

  // activation(gate) * up for 32 rows and one tile of tokens, straight into the form that `down` reads.
  void hidden_block(const Layer& layer, const Activations& normed, size_t block, size_t tile) {
    const auto tile_tokens = static_cast<size_t>(normed.tile_tokens());
    const size_t first_row = block * kHiddenBlock;
    const size_t n_rows = std::min(kHiddenBlock, config_.ffn_width - first_row);
    const size_t first = tile * tile_tokens;
    const size_t count = std::min(tile_tokens, normed.n_tokens - first);
    for (size_t row = 0; row < n_rows; row += kPanelRows) {
      const size_t panel = (first_row + row) / kPanelRows;
      multiply_panel(layer.gate, model_.precision_, normed, panel, tile, own_.gate.data() + row, kHiddenBlock,
                     false);
      multiply_panel(layer.up, model_.precision_, normed, panel, tile, own_.up.data() + row, kHiddenBlock,
                     false);
    }
    const bool gelu = config_.family->activation == Activation::kGelu;
    (gelu ? ops().gelu_multiply : ops().silu_multiply)(own_.gate.data(), own_.up.data(),
                                                       static_cast<int>(count * kHiddenBlock));
    if (reads_tiles(layer.down, model_.precision_)) {
      const size_t block_bytes = kActivationBlockBytes * tile_tokens;
      const size_t n_blocks = config_.ffn_width / kBlockColumns;
      ops().quantize_tile(own_.gate.data(), kHiddenBlock, static_cast<int>(count),
                          static_cast<int>(tile_tokens), kBlockColumns,
                          buffers_.hidden_tiles.data() + (tile * n_blocks + block) * block_bytes);
    } else {
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(own_.gate.data() + i * kHiddenBlock, n_rows,
                    buffers_.hidden.data() + (first + i) * config_.ffn_width + first_row);
      }
    }
  }

  const Model& model_;
  const ModelConfig& config_;
  Workspace::Buffers& buffers_;
  Worker& worker_;
  PrivateBuffers& own_;
  RowObserver* observer_;  // null on all members but one

 public:
  // Sizes the buffers for chunks of n tokens; called before the team runs.
  static void reserve(const Model& model, Workspace::Buffers& buffers, size_t n, int n_members) {
    const ModelConfig& config = model.config_;
    const size_t chunk = std::min(n, kChunkTokens);
    const size_t q_width = config.n_heads * config.head_dim;
    const size_t widest = std::max(config.width, q_width);
    grow(buffers.floats, chunk * widest);
    grow(buffers.tiles, tiles_bytes(chunk, widest + kBlockColumns));
    grow(buffers.qkv, chunk * (q_width + 2 * config.n_kv_heads * config.head_dim));
    grow(buffers.attended, chunk * q_width);
    grow(buffers.hidden_tiles, tiles_bytes(chunk, config.ffn_width));
    const bool floats = std::any_of(model.layers_.begin(), model.layers_.end(), [&](const Layer& layer) {
      return !reads_tiles(layer.down, model.precision_);
    });
    if (floats) grow(buffers.hidden, chunk * config.ffn_width);
    if (config.family->post_norms) grow(buffers.branch, chunk * config.width);
    buffers.members.resize(std::max(buffers.members.size(), static_cast<size_t>(n_members)));
    for (PrivateBuffers& own : buffers.members) {
      grow(own.gate, kTileTokens * kHiddenBlock);
      grow(own.up, kTileTokens * kHiddenBlock);
    }
  }
};

void Model::forward(std::span<const int32_t> tokens, Cache& cache, Workspace& workspace, Team& team,
                    const std::function<void(double)>& progress, RowObserver* observer) const {
  Workspace::Buffers& buffers = *workspace.buffers_;
  const size_t n = tokens.size();
  for (const int32_t token : tokens) {
    QUIRE_CHECK(token >= 0 && static_cast<size_t>(token) < config_.vocabulary);
  }
  QUIRE_CHECK(cache.span_tokens(n) <= config_.context_tokens);
  buffers.n_tokens = n;
  if (n == 0) return;
  grow(buffers.x, n * config_.width);
  ForwardPass::reserve(*this, buffers, n, team.size());
  grow(buffers.angles, config_.rope, n);
  if (config_.window_rope) grow(buffers.window_angles, *config_.window_rope, n);
  cache.begin_step(n, team.size());
  const size_t first = cache.n_tokens();
  team.run([&](Worker& worker) {
    ForwardPass pass(*this, buffers, worker, observer);
    pass.embed(tokens, first);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      pass.run_layer(layer, cache, n);
      if (progress && worker.rank() == 0) {
        progress(static_cast<double>(layer + 1) / static_cast<double>(layers_.size()));
      }
    }
  });
  cache.end_step();
}

void Model::logits(std::span<const size_t> rows, Workspace& workspace, Team& team, float* out) const {
  Workspace::Buffers& buffers = *workspace.buffers_;
  for (const size_t row : rows) QUIRE_CHECK(row < buffers.n_tokens);
  std::vector<float> x(std::min(rows.size(), kChunkTokens) * config_.width);
  ForwardPass::reserve(*this, buffers, std::min(rows.size(), kChunkTokens), team.size());
  for (size_t first = 0; first < rows.size(); first += kChunkTokens) {
    const size_t n = std::min(kChunkTokens, rows.size() - first);
    for (size_t i = 0; i < n; ++i) {
      std::copy_n(buffers.x.data() + rows[first + i] * config_.width, config_.width,
                  x.data() + i * config_.width);
    }
    team.run([&](Worker& worker) {
      ForwardPass(*this, buffers, worker).head(x.data(), n, out + first * config_.vocabulary);
    });
  }
}

}  // namespace quire
