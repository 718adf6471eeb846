#include "policy/retention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace quire {

namespace {

// Row indices, those of the oldest tokens first.
std::vector<uint32_t> by_age(const HeadRows& rows) {
  std::vector<uint32_t> order(rows.positions.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return rows.positions[a] < rows.positions[b]; });
  return order;
}

// Moves the n entries of least `score` to the front; of equals the older row counts as less. What is no
// number, of keys that hold none, is less than all.
template <typename Score>
void least_first(std::vector<uint32_t>& rows, size_t n, const HeadRows& known, const Score& score) {
  const auto ordered = [&](uint32_t i) {
    const float x = score(i);
    return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
  };
  const auto less = [&](uint32_t a, uint32_t b) {
    const float x = ordered(a);
    const float y = ordered(b);
    if (x != y) return x < y;
    return known.positions[a] < known.positions[b];
  };
  if (n < rows.size())
    std::nth_element(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(n), rows.end(), less);
}

// Position p is newer than all but n of the sequence's tokens.
size_t first_recent(const RowStep& step, size_t n) { return step.n_total - std::min(n, step.n_total); }

// StreamingLLM: the sinks, kept beside the rows, and the newest tokens.
class WindowRetention : public Retention {
 public:
  WindowRetention(size_t window, size_t sinks) : window_(window), sinks_(sinks) {}

  size_t rows_after(const RowStep& step) const override {
    const bool nothing_left_yet = step.n_rows == step.n_total - step.n_new;
    if (nothing_left_yet && step.n_total <= sinks_ + window_) return step.n_total;
    return std::min(step.n_rows + step.n_new, window_);
  }
  void choose(const HeadRows& rows, const RowStep& step, size_t n_drop,
              std::vector<uint32_t>& dropped) const override {
    dropped.clear();
    for (uint32_t i = 0; i < rows.positions.size(); ++i) {
      if (rows.positions[i] < first_recent(step, window_)) dropped.push_back(i);
    }
    QUIRE_CHECK(dropped.size() == n_drop);
  }
  bool can_hold(const HeadRows& rows, size_t n_tokens) const override {
    if (n_tokens <= sinks_ + window_) return rows.positions.size() == n_tokens;
    return rows.positions.size() == window_ &&
           *std::ranges::min_element(rows.positions) >= n_tokens - window_;
  }

 private:
  size_t window_;
  size_t sinks_;
};

// The reserve of LogQuant without the codes: what leaves it is gone.
class LogRetention : public Retention {
 public:
  explicit LogRetention(const LogReserve& reserve) : reserve_(reserve) {}

  size_t rows_after(const RowStep& step) const override {
    return step.n_total - reserve_.n_settled(step.n_total);
  }
  void choose(const HeadRows& rows, const RowStep& step, size_t n_drop,
              std::vector<uint32_t>& dropped) const override {
    const std::vector<uint32_t> order = by_age(rows);
    std::vector<uint32_t> reserved;
    for (size_t i = 0; i < step.n_rows; ++i) reserved.push_back(rows.positions[order[i]]);
    LogReserveState state(reserve_, step.n_total - step.n_new, std::move(reserved));
    std::vector<uint32_t> settled;
    state.append(step.n_new, settled);
    QUIRE_CHECK(settled.size() == n_drop);
    std::sort(settled.begin(), settled.end());
    dropped.clear();
    for (const uint32_t i : order) {
      if (std::binary_search(settled.begin(), settled.end(), rows.positions[i])) dropped.push_back(i);
    }
  }
  bool can_hold(const HeadRows& rows, size_t n_tokens) const override {
    return rows.positions.size() == n_tokens - reserve_.n_settled(n_tokens) &&
           std::ranges::all_of(rows.positions,
                               [&](uint32_t position) { return reserve_.reserves(position, n_tokens); });
  }

 private:
  LogReserve reserve_;
};

// H2O and Keyformer: a share of the budget for the newest tokens, the rest for those with most mass.
class HeavyRetention : public Retention {
 public:
  HeavyRetention(const RowBudget& budget, double recent) : budget_(budget), recent_(recent) {}

  size_t rows_after(const RowStep& step) const override {
    return std::min(step.n_rows + step.n_new, budget_.of(step.n_total));
  }
  void choose(const HeadRows& rows, const RowStep& step, size_t n_drop,
              std::vector<uint32_t>& dropped) const override {
    const auto n_recent = static_cast<size_t>(recent_ * static_cast<double>(budget_.of(step.n_total)));
    const size_t recent = first_recent(step, n_recent);
    dropped.clear();
    for (uint32_t i = 0; i < rows.positions.size(); ++i) {
      if (rows.positions[i] < recent) dropped.push_back(i);
    }
    least_first(dropped, n_drop, rows, [&](uint32_t i) { return rows.mass[i]; });
    QUIRE_CHECK(dropped.size() >= n_drop);
    dropped.resize(n_drop);
  }
  size_t observed_queries(size_t n_new) const override { return n_new; }
  bool can_hold(const HeadRows& rows, size_t n_tokens) const override {
    return rows.positions.size() <= budget_.of(n_tokens);
  }

 private:
  RowBudget budget_;
  double recent_;
};

// Scores get Gumbel noise, and a temperature that rises from 1 over the generated tokens. The paper draws the
// noise anew at every step; one draw a row keeps what a step sees of a row from the steps before it.
class KeyformerRetention : public HeavyRetention {
 public:
  KeyformerRetention(const RowBudget& budget, const PolicyChoice& keep)
      : HeavyRetention(budget, keep.value("recent")),
        tau_(keep.value("tau")),
        steps_(keep.value("steps")),
        seed_(static_cast<uint64_t>(keep.value("seed"))) {}

  Observation observation(size_t n_generated) const override {
    const double share = std::min(1.0, static_cast<double>(n_generated) / steps_);
    return {1 + (tau_ - 1) * share, true, seed_};
  }

 private:
  double tau_;
  double steps_;
  uint64_t seed_;
};

// SnapKV: what the last queries of a prompt like, smoothed along the text. A step of one token drops nothing.
class SnapKvRetention : public Retention {
 public:
  explicit SnapKvRetention(const PolicyChoice& keep)
      : budget_(keep.budget), window_(keep.number("window")), kernel_(keep.number("kernel")) {}

  size_t rows_after(const RowStep& step) const override {
    const size_t n = step.n_rows + step.n_new;
    return step.n_new == 1 ? n : std::min(n, std::max(budget_.of(step.n_total), window_));
  }
  void choose(const HeadRows& rows, const RowStep& step, size_t n_drop,
              std::vector<uint32_t>& dropped) const override {
    std::vector<uint32_t> older = by_age(rows);
    const size_t recent = first_recent(step, window_);
    std::erase_if(older, [&](uint32_t i) { return rows.positions[i] >= recent; });
    const std::vector<float> smooth = smoothed(rows, older);
    least_first(older, n_drop, rows, [&](uint32_t i) { return smooth[i]; });
    QUIRE_CHECK(older.size() >= n_drop);
    dropped.assign(older.begin(), older.begin() + static_cast<ptrdiff_t>(n_drop));
  }
  size_t observed_queries(size_t n_new) const override { return n_new == 1 ? 0 : std::min(n_new, window_); }
  bool forgets() const override { return true; }
  bool can_hold(const HeadRows& rows, size_t n_tokens) const override {
    return rows.positions.size() >= std::min(n_tokens, window_);
  }

 private:
  // [row] mean over the kernel around each row of `order`, which is that of the text; what lies beyond its
  // ends counts as 0, the window too.
  std::vector<float> smoothed(const HeadRows& rows, const std::vector<uint32_t>& order) const {
    const auto n = static_cast<ptrdiff_t>(order.size());
    const auto half = static_cast<ptrdiff_t>(kernel_ / 2);
    std::vector<float> out(rows.mass.size());
    for (ptrdiff_t i = 0; i < n; ++i) {
      float sum = 0;
      for (ptrdiff_t j = std::max<ptrdiff_t>(0, i - half); j <= std::min(n - 1, i + half); ++j) {
        sum += rows.mass[order[static_cast<size_t>(j)]];
      }
      out[order[static_cast<size_t>(i)]] = sum / static_cast<float>(kernel_);
    }
    return out;
  }

  RowBudget budget_;
  size_t window_;
  size_t kernel_;
};

}  // namespace

std::shared_ptr<const Retention> make_retention(const PolicyChoice& keep, size_t sink_tokens) {
  switch (keep.policy) {
    case Policy::kWindow: return std::make_shared<WindowRetention>(keep.number("window"), sink_tokens);
    case Policy::kLog: return std::make_shared<LogRetention>(log_reserve(keep, 0));
    case Policy::kHeavyHitters: return std::make_shared<HeavyRetention>(keep.budget, keep.value("recent"));
    case Policy::kKeyformer: return std::make_shared<KeyformerRetention>(keep.budget, keep);
    case Policy::kSnapKv: return std::make_shared<SnapKvRetention>(keep);
    default: check_failed(__FILE__, __LINE__, "the policy is one of keep=");
  }
}

bool is_partial(const PolicyChoice& keep) {
  return keep.policy == Policy::kLog && keep.number("partial") > 0;
}

LogReserve log_reserve(const PolicyChoice& keep, size_t sink_tokens) {
  // Half the bytes of a row are its key: what a reserve of whole rows takes, one of keys has for more of
  // them.
  const size_t reserve = is_partial(keep) ? keep.number("reserve") * 3 / 2 : keep.number("reserve");
  return LogReserve(static_cast<ReserveRule>(keep.number("rule")), reserve, sink_tokens);
}

}  // namespace quire
