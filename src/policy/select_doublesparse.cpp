#include "policy/select_doublesparse.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/ops.h"
#include "policy/highest.h"
#include "policy/key_labels.h"
#include "store/page_count.h"

namespace quire {

namespace {

using Channels = std::vector<uint16_t>;
using HeadChannels = std::vector<std::vector<Channels>>;  // [layer][kv_head]

class SelectDoubleSparse : public Selector {
 public:
  SelectDoubleSparse(const PolicyChoice& choice, std::span<const size_t> n_kv_heads, size_t head_dim,
                     std::span<const float> weights)
      : budget_(choice.budget), dense_layers_(choice.number("dense")), layout_(choice, head_dim) {
    for (const size_t n : n_kv_heads) sums_.emplace_back(n, std::vector<double>(head_dim, 0.0));
    if (!layout_.keeps_channels) channels_ = of_model(n_kv_heads, head_dim, weights);
  }

  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectDoubleSparse>(*this); }

  bool selects(size_t layer, size_t n_tokens) const override {
    return layer >= dense_layers_ && budget_.of(n_tokens) < n_tokens;
  }

  void select(const HeadStep& step, Selection& selection) override {
    const LayerView& view = *step.view;
    const Channels channels = channels_of(view, step.layer, step.kv_head);
    std::vector<float> q(step.group * channels.size());
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = step.q[i / channels.size() * view.layout->head_dim + channels[i % channels.size()]];
    }
    const size_t n_pages = pages_for(view.n_tokens);
    std::vector<float> scores(n_pages * step.group * kTokensPerPage);
    std::vector<float> room;
    for (size_t page = 0; page < n_pages; ++page) {
      score_labels(layout_, q.data(), step.group, view.digest(step.kv_head, page), room,
                   scores.data() + page * step.group * kTokensPerPage);
    }
    for (size_t h = 0; h < step.group; ++h) {
      float* last = scores.data() + ((n_pages - 1) * step.group + h) * kTokensPerPage;
      std::fill(last + (view.n_tokens - 1) % kTokensPerPage + 1, last + kTokensPerPage, kNoScore);
    }
    std::vector<float> best;
    best_log_probabilities(scores.data(), n_pages, step.group, best);
    prefer_kept(view, step.kv_head, best);
    mark_highest(best, budget_.of(view.n_tokens), step.kv_head, room, selection);
  }

  uint64_t digest_bytes_read(const LayerView& view) const override {
    return view.n_tokens * layout_.row_label_bytes() +
           (layout_.keeps_channels ? layout_.n_channels * sizeof(uint16_t) : 0);
  }

  void append(Store& store, size_t layer, size_t kv_head, size_t first, size_t n) override {
    if (observes(store)) return;  // there are no channels yet
    write_rows(store, layer, kv_head, first, n, channels_of(store.view(layer, first + n), layer, kv_head));
  }

  bool observes(const Store& store) const override { return layout_.keeps_channels && store.n_tokens() == 0; }

  // Of a group, the sum over its heads of |q_j k_j| is the sum of |q_j| times |k_j|.
  void observe(const HeadStep& step, size_t first, size_t n, size_t ldq) override {
    const RowLayout& layout = *step.view->layout;
    const size_t dim = layout.head_dim;
    std::vector<double>& sums = sums_[step.layer][step.kv_head];
    if (first == 0) std::fill(sums.begin(), sums.end(), 0.0);
    std::vector<float> keys(kTokensPerPage * dim + kSpareBytes / sizeof(float));
    for (size_t i = 0; i < n; ++i) {
      const size_t slot = (first + i) % kTokensPerPage;
      if (i == 0 || slot == 0) {
        ops().unpack[static_cast<size_t>(layout.key_format)](
            step.view->keys(step.kv_head, (first + i) / kTokensPerPage), kTokensPerPage * dim, keys.data());
      }
      const float* q = step.q + i * ldq;
      for (size_t j = 0; j < dim; ++j) {
        float sum = 0;
        for (size_t h = 0; h < step.group; ++h) sum += std::fabs(q[h * dim + j]);
        sums[j] += static_cast<double>(sum) * std::fabs(keys[j * kTokensPerPage + slot]);
      }
    }
  }

  // Every page notes the channels, so that they go wherever the pages go.
  void end_layer(Store& store, size_t layer, size_t kv_head, size_t n_tokens) override {
    const Channels channels = strongest_channels(sums_[layer][kv_head], layout_.n_channels);
    write_rows(store, layer, kv_head, 0, n_tokens, channels);
  }

 private:
  HeadChannels of_model(std::span<const size_t> n_kv_heads, size_t head_dim,
                        std::span<const float> weights) const {
    HeadChannels all;
    for (const size_t n : n_kv_heads) {
      std::vector<Channels>& layer = all.emplace_back();
      for (size_t head = 0; head < n; ++head, weights = weights.subspan(head_dim)) {
        const std::vector<double> own(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(head_dim));
        layer.push_back(strongest_channels(own, layout_.n_channels));
      }
    }
    return all;
  }

  Channels channels_of(const LayerView& view, size_t layer, size_t kv_head) const {
    return layout_.keeps_channels ? layout_.take_channels(view.digest(kv_head, 0))
                                  : channels_[layer][kv_head];
  }

  void write_rows(Store& store, size_t layer, size_t kv_head, size_t first, size_t n,
                  const Channels& channels) const {
    const LayerView view = store.view(layer, first + n);
    while (n > 0) {
      const size_t page = first / kTokensPerPage;
      const size_t slot = first % kTokensPerPage;
      const size_t piece = std::min(n, kTokensPerPage - slot);
      std::byte* digest = store.open_digest(layer, kv_head, page);
      if (layout_.keeps_channels && slot == 0) layout_.put_channels(channels, digest);
      write_labels(layout_, channels, view.layout->key_format, view.keys(kv_head, page), slot, piece, digest);
      first += piece;
      n -= piece;
    }
  }

  RowBudget budget_;
  size_t dense_layers_;
  LabelLayout layout_;
  HeadChannels channels_;                               // of the model
  std::vector<std::vector<std::vector<double>>> sums_;  // [layer][kv_head][head_dim] of the first step
};

}  // namespace

std::unique_ptr<Selector> make_doublesparse_selector(const PolicyChoice& choice,
                                                     std::span<const size_t> n_kv_heads, size_t head_dim,
                                                     std::span<const float> weights) {
  return std::make_unique<SelectDoubleSparse>(choice, n_kv_heads, head_dim, weights);
}

}  // namespace quire
