// Which rows leave a cache for good: the baselines that drop tokens. All heads of a layer drop as many rows
// in a step, each its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "policy/policy_choice.h"
#include "store/log_reserve.h"

namespace quire {

// What is known of the rows of one KV head, in the order in which they lie.
struct HeadRows {
  std::vector<uint32_t> positions;
  // Attention that observed queries gave to each, summed over the group's heads.
  std::vector<float> mass;
};

// A step of n_new tokens that ends when the sequence has n_total, in a layer that had n_rows.
struct RowStep {
  size_t n_rows;
  size_t n_new;
  size_t n_total;
};

// How the softmax of an observed query differs from that of attention.
struct Observation {
  double temperature = 1;
  bool gumbel = false;  // noise is added to the scores, drawn once for each row by its position
  uint64_t seed = 0;
};

class Retention {
 public:
  virtual ~Retention() = default;
  // Rows that are left when the step is done; at most n_rows + n_new.
  virtual size_t rows_after(const RowStep& step) const = 0;
  // The rows that leave, n_drop indices into `rows`, which the step's own are part of.
  virtual void choose(const HeadRows& rows, const RowStep& step, size_t n_drop,
                      std::vector<uint32_t>& dropped) const = 0;
  // So many of a step's last queries are observed; 0: none.
  virtual size_t observed_queries(size_t /*n_new*/) const { return 0; }
  // Mass counts from the step's own queries on.
  virtual bool forgets() const { return false; }
  virtual Observation observation(size_t /*n_generated*/) const { return {}; }
  // Whether a head can hold these rows after n_tokens, however they came: 1 to n_tokens distinct positions
  // below n_tokens. choose() relies on it.
  virtual bool can_hold(const HeadRows& rows, size_t n_tokens) const = 0;
};

// sink_tokens: of keep=window. The policy must be one of the axis keep.
std::shared_ptr<const Retention> make_retention(const PolicyChoice& keep, size_t sink_tokens);
// Of keep=log: values leave the reserve before their keys.
bool is_partial(const PolicyChoice& keep);
// What keep=log says.
LogReserve log_reserve(const PolicyChoice& keep, size_t sink_tokens);

}  // namespace quire
