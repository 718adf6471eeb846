// A signvq step on the device, and what the CPU's bytes, its rule of choice and double precision say of it.
#pragma once

#include "kernels/cuda/signvq_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/device_graph.h"
#include "cuda/device_test.h"
#include "cuda/page_order.h"
#include "format/frame.h"
#include "format/signvq.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
using cuda::DeviceBuffer;

struct SignVqCase {
  std::vector<int> n_pages;  // sealed, of every sequence
  std::vector<int> tails;    // exact rows behind them
  int n_kv_heads = 2;
  int group = 4;
  int head_dim = 128;
  int n_kept = 64;
  cuda::SparseBudget budget = {.share = 0.075, .rows = 0, .mass = 0, .candidates = 1};
  Format format = Format::kF16;
  float query_size = 2.0f;
  float uneven = 1;           // times the first four dims of keys and queries
  int n_multiprocessors = 0;  // to plan for; 0: the device's
  int first_pages = 0;        // that were sealed when the rows to keep were chosen; 0: all

  size_t n_sequences() const { return n_pages.size(); }
  size_t n_pairs() const { return n_pages.size() * static_cast<size_t>(n_kv_heads); }
  size_t d() const { return static_cast<size_t>(head_dim); }
};

class SignVqStep {
 public:
  SignVqStep(const SignVqCase& c, uint64_t seed);

  void run();
  void check() const;
  // The step in a graph, replayed for lengths that the device gets between.
  void run_graph(const std::vector<SignVqCase>& cases);
  const std::vector<float>& out() const { return out_; }

 private:
  struct Row {
    std::vector<float> key, value;
  };
  // Everything of a step on the device.
  struct OnDevice {
    explicit OnDevice(const SignVqStep& step);
    void lay_pages(const SignVqStep& step);
    DeviceBuffer pages, laid, table, lengths, queries, statistics, codebook, positions, exact, tails,
        tail_lengths, kept_pages, out, log_sums, n_read, marks, mean_queries, workspace;
    cuda::SignVqAttention attention{};
    cuda::SignVqPlan plan{};
  };

  void make_statistics();
  void make_sealed();
  void make_exact();
  void read(const OnDevice& device);
  size_t pair_of(size_t s, size_t head) const { return s * static_cast<size_t>(c_.n_kv_heads) + head; }
  size_t n_coded(size_t s) const { return static_cast<size_t>(c_.n_pages[s]) * 64; }
  size_t n_kept(size_t s) const { return c_.n_pages[s] > 0 ? static_cast<size_t>(c_.n_kept) : 0; }
  const uint8_t* page(size_t s, size_t head, size_t at) const {
    return bytes_.data() + (sealed_.at(s, at) * static_cast<size_t>(c_.n_kv_heads) + head) * head_bytes_;
  }
  const float* query(size_t pair, size_t g) const {
    return queries_.data() + (pair * static_cast<size_t>(c_.group) + g) * c_.d();
  }
  Frame frame(size_t pair) const {
    return {c_.head_dim, means_.data() + pair * c_.d(), balances_.data() + pair * c_.d(), nullptr};
  }
  bool marked(size_t pair, size_t token) const {
    return (marks_[pair * sealed_.stride + token / 64] >> (token % 64) & 1) != 0;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.head_dim)); }
  Row coded_row(size_t s, size_t head, size_t token) const;
  Row exact_row(size_t page, size_t head, size_t row) const;
  std::vector<int> sums(size_t s, size_t head, float* unit) const;
  std::vector<bool> choice(size_t s, size_t head, int shift) const;
  void check_choice(size_t s, size_t head) const;
  void check_output(size_t s, size_t head) const;

  SignVqCase c_;
  Random random_;
  PageOrder sealed_, tail_;
  size_t key_bytes_, head_bytes_, book_size_;
  std::vector<float> means_, balances_, codebooks_, queries_;
  std::vector<int32_t> positions_;  // [pair][64]
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> exact_;      // [page][kv_head][keys, values][64][head_dim]
  std::vector<int32_t> kept_pages_;  // behind those of the tails
  std::vector<float> out_, log_sums_, mean_queries_;
  std::vector<int32_t> n_read_;
  std::vector<uint64_t> marks_;
};

}  // namespace quire::test
