#include "policy/select_quest.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops.h"
#include "policy/highest.h"

namespace quire {

namespace {

// As published.
constexpr size_t kLeastShortPages = 3;

// [head_dim] largest, [head_dim] least of keys [head_dim][64], tokens first..first + n - 1 of the page.
void find_bounds(const float* keys, size_t head_dim, size_t first, size_t n, float* bounds) {
  for (size_t d = 0; d < head_dim; ++d, keys += kTokensPerPage) {
    const auto [least, largest] = std::minmax_element(keys + first, keys + first + n);
    bounds[d] = *largest;
    bounds[head_dim + d] = *least;
  }
}

class SelectQuest : public Selector {
 public:
  explicit SelectQuest(const PolicyChoice& choice)
      : budget_(choice.budget),
        page_tokens_(choice.number("page")),
        dense_layers_(choice.number("dense")),
        by_head_(choice.number("queries") == 1) {}

  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectQuest>(*this); }

  bool selects(size_t layer, size_t n_tokens) const override {
    return layer >= dense_layers_ && budget_.of(n_tokens) < n_tokens &&
           short_pages(n_tokens) <= bounded_pages(n_tokens);
  }

  // The last short page, which holds the newest tokens and may be unfinished, is read in any case and is one
  // of the budget's.
  void select(const HeadStep& step, Selection& selection) override {
    const size_t n_tokens = step.view->n_tokens;
    const size_t last = bounded_pages(n_tokens);
    selection.mark_range(step.kv_head, last * page_tokens_, n_tokens);
    std::vector<float> scores;
    std::vector<float> room;
    std::vector<float> values;
    score_bounds(step, page_tokens_, last, scores);
    const auto choose = [&] {
      choose_highest({values.data(), last}, short_pages(n_tokens) - 1, room, [&](size_t i) {
        selection.mark_range(step.kv_head, i * page_tokens_, (i + 1) * page_tokens_);
      });
    };
    const size_t n_tiles = scores.size() / step.group / kPageTokens;
    if (!by_head_) {
      best_log_probabilities(scores.data(), n_tiles, step.group, values);
      return choose();
    }
    values.resize(n_tiles * kPageTokens);
    for (size_t h = 0; h < step.group; ++h) {
      for (size_t tile = 0; tile < n_tiles; ++tile) {
        std::copy_n(scores.data() + (tile * step.group + h) * kPageTokens, kPageTokens,
                    values.data() + tile * kPageTokens);
      }
      choose();
    }
  }

  uint64_t digest_bytes_read(const LayerView& view) const override {
    return bounded_pages(view.n_tokens) * bound_bytes(view.layout->key_format, view.layout->head_dim);
  }

  // A short page gets its bounds when its last row has come, from the rows as they are stored: what has been
  // cut off before leaves no trace.
  void append(Store& store, size_t layer, size_t kv_head, size_t first, size_t n) override {
    const LayerView view = store.view(layer, first + n);
    const RowLayout& layout = *view.layout;
    const size_t dim = layout.head_dim;
    const size_t per_page = kTokensPerPage / page_tokens_;
    std::vector<float> bounds(2 * dim);
    std::vector<float> keys(kTokensPerPage * dim + kSpareBytes / sizeof(float));
    size_t unpacked = view.pages.size();
    for (size_t i = first / page_tokens_; (i + 1) * page_tokens_ <= first + n; ++i) {
      const size_t page = i / per_page;
      if (unpacked != page) {
        ops().unpack[static_cast<size_t>(layout.key_format)](view.keys(kv_head, page), kTokensPerPage * dim,
                                                             keys.data());
        unpacked = page;
      }
      find_bounds(keys.data(), dim, i % per_page * page_tokens_, page_tokens_, bounds.data());
      std::byte* digest =
          store.open_digest(layer, kv_head, page) + i % per_page * bound_bytes(layout.key_format, dim);
      ops().store_values[static_cast<size_t>(layout.key_format)](digest, 0, 1, static_cast<int>(2 * dim),
                                                                 bounds.data(), 2 * dim);
    }
  }

 private:
  size_t short_pages(size_t n_tokens) const {
    return std::max(budget_.of(n_tokens) / page_tokens_, kLeastShortPages);
  }
  // Short pages before the one that holds the newest token.
  size_t bounded_pages(size_t n_tokens) const { return (n_tokens - 1) / page_tokens_; }

  RowBudget budget_;
  size_t page_tokens_;
  size_t dense_layers_;
  bool by_head_;
};

}  // namespace

// U is the dot product of what is positive and what is negative of q with the two rows of bounds.
void score_bounds(const HeadStep& step, size_t page_tokens, size_t n_bounds, std::vector<float>& scores) {
  const LayerView& view = *step.view;
  const size_t dim = view.layout->head_dim;
  const size_t per_page = kTokensPerPage / page_tokens;
  std::vector<float> parts(step.group * 2 * dim);
  for (size_t i = 0; i < step.group * dim; ++i) {
    float* to = parts.data() + i / dim * 2 * dim + i % dim;
    to[0] = std::max(step.q[i], 0.0f);
    to[dim] = std::min(step.q[i], 0.0f);
  }
  const size_t n_tiles = (n_bounds + kPageTokens - 1) / kPageTokens;
  scores.assign(n_tiles * step.group * kPageTokens, kNoScore);
  for (size_t first = 0; first < n_bounds; first += per_page) {
    const size_t n = std::min(per_page, n_bounds - first);
    float* to = scores.data() + first / kPageTokens * step.group * kPageTokens + first % kPageTokens;
    ops().score_rows[static_cast<size_t>(view.layout->key_format)](
        parts.data(), 2 * dim, static_cast<int>(step.group), static_cast<int>(2 * dim),
        view.digest(step.kv_head, first / per_page), static_cast<int>(n), to);
  }
}

void clear_bounds(size_t page_tokens, Format key_format, size_t head_dim, size_t n_rows, std::byte* digest) {
  const size_t n_full = n_rows / page_tokens;
  const size_t bytes = bound_bytes(key_format, head_dim);
  std::memset(digest + n_full * bytes, 0, (kTokensPerPage / page_tokens - n_full) * bytes);
}

std::unique_ptr<Selector> make_quest_selector(const PolicyChoice& choice) {
  return std::make_unique<SelectQuest>(choice);
}

}  // namespace quire
