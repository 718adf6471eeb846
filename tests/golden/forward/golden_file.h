// Frozen next-token distributions of a reference model, and how far a set of logits is from them.
//
// The files come from freeze.py and are described in README.md. All numbers are little-endian:
//
//   char magic[8] "QGOLD1\0\0"
//   u32  n_vocab, n_tokens, n_positions, n_top, n_buckets, 0
//   u16  tokens[n_tokens]                           the prompt
//   u32  positions[n_positions]                     rising; the distribution after tokens[0..position]
//   f32  margins[n_positions]                       logit of the most probable token minus that of the second
//   u16  top_ids[n_positions][n_top]                most probable first
//   f32  top_log_p[n_positions][n_top]
//   f32  bucket_log_p[n_positions][n_buckets]       log of the mass of all other tokens t with t mod
//   n_buckets = b
//
// Header only and on its own: the engine's tests and the programs that measure other engines both read it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace quire::golden {

static_assert(std::endian::native == std::endian::little, "the files are read as they lie");

// ln of the sum of exp(x[i]), n > 0.
inline double log_sum_exp(const float* x, size_t n) {
  const double greatest = *std::max_element(x, x + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(x[i] - greatest);
  return greatest + std::log(sum);
}

// Index of the greatest of n logits, the lowest index on a tie.
inline int argmax(const float* logits, size_t n) {
  return static_cast<int>(std::max_element(logits, logits + n) - logits);
}

struct GoldenFile {
  uint32_t n_vocab = 0;
  uint32_t n_top = 0;
  uint32_t n_buckets = 0;
  std::vector<uint16_t> tokens;
  std::vector<uint32_t> positions;
  std::vector<float> margins;       // [n_positions]
  std::vector<uint16_t> top_ids;    // [n_positions][n_top]
  std::vector<float> top_log_p;     // [n_positions][n_top]
  std::vector<float> bucket_log_p;  // [n_positions][n_buckets]

  size_t n_positions() const { return positions.size(); }
  int top1(size_t index) const { return top_ids[index * n_top]; }
  float margin(size_t index) const { return margins[index]; }

  // KL(reference || ours) in nats after position `index`, ours being the softmax of logits[n_vocab].
  //
  // Taken over the partition {each top token} + {each bucket}, so it is a lower bound of the divergence over
  // all tokens (README.md says by how little it is lower). The frozen f32 logs are scaled to sum to one
  // first: their rounding then enters squared only, and the result is never negative but for rounding in
  // double.
  double kl(const float* logits, size_t n_logits, size_t index) const {
    if (n_logits != n_vocab || index >= n_positions())
      throw std::invalid_argument("golden: no such distribution");
    const uint16_t* ids = &top_ids[index * n_top];
    const float* top_p = &top_log_p[index * n_top];
    const float* bucket_p = &bucket_log_p[index * n_buckets];
    const double norm_q = log_sum_exp(logits, n_logits);

    double total_p = 0;
    for (size_t i = 0; i < n_top; ++i) total_p += std::exp(double{top_p[i]});
    for (size_t b = 0; b < n_buckets; ++b) total_p += std::exp(double{bucket_p[b]});
    const double norm_p = std::log(total_p);

    double sum = 0;
    std::vector<char> in_top(n_vocab, 0);
    for (size_t i = 0; i < n_top; ++i) {
      in_top[ids[i]] = 1;
      sum += divergence_part(top_p[i] - norm_p, logits[ids[i]] - norm_q);
    }
    std::vector<double> mass_q(n_buckets, 0.0);
    for (size_t t = 0; t < n_vocab; ++t) {
      if (!in_top[t]) mass_q[t % n_buckets] += std::exp(logits[t] - norm_q);
    }
    for (size_t b = 0; b < n_buckets; ++b) sum += divergence_part(bucket_p[b] - norm_p, std::log(mass_q[b]));
    return sum;
  }

 private:
  // p (ln p - ln q); a part without mass in the reference counts nothing, whatever q is.
  static double divergence_part(double log_p, double log_q) {
    return std::isinf(log_p) ? 0.0 : std::exp(log_p) * (log_p - log_q);
  }
};

namespace detail {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Reads n numbers; a file too short for them is refused before memory is taken for them.
template <typename T>
std::vector<T> read_array(std::FILE* file, uint64_t n, uint64_t& left_bytes) {
  if (n > left_bytes / sizeof(T)) throw std::runtime_error("golden: the file ends early");
  std::vector<T> values(n);
  if (std::fread(values.data(), sizeof(T), n, file) != n)
    throw std::runtime_error("golden: the file ends early");
  left_bytes -= n * sizeof(T);
  return values;
}

inline uint64_t file_bytes(std::FILE* file) {
  if (std::fseek(file, 0, SEEK_END) != 0) throw std::runtime_error("golden: cannot seek");
  const long end = std::ftell(file);
  std::rewind(file);
  return end < 0 ? 0 : static_cast<uint64_t>(end);
}

}  // namespace detail

// Reads a file; throws std::runtime_error where it is not one or its numbers do not fit together.
inline GoldenFile load(const std::string& path) {
  const std::unique_ptr<std::FILE, detail::Closer> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw std::runtime_error("golden: cannot open " + path);
  uint64_t left = detail::file_bytes(file.get());
  const auto magic = detail::read_array<char>(file.get(), 8, left);
  if (std::memcmp(magic.data(), "QGOLD1\0\0", 8) != 0)
    throw std::runtime_error("golden: not a golden file: " + path);
  const auto sizes = detail::read_array<uint32_t>(file.get(), 6, left);
  const uint64_t n_tokens = sizes[1], n_positions = sizes[2];

  GoldenFile golden;
  golden.n_vocab = sizes[0];
  golden.n_top = sizes[3];
  golden.n_buckets = sizes[4];
  if (golden.n_top == 0 || golden.n_buckets == 0)
    throw std::runtime_error("golden: empty distributions: " + path);
  golden.tokens = detail::read_array<uint16_t>(file.get(), n_tokens, left);
  golden.positions = detail::read_array<uint32_t>(file.get(), n_positions, left);
  golden.margins = detail::read_array<float>(file.get(), n_positions, left);
  golden.top_ids = detail::read_array<uint16_t>(file.get(), n_positions * golden.n_top, left);
  golden.top_log_p = detail::read_array<float>(file.get(), n_positions * golden.n_top, left);
  golden.bucket_log_p = detail::read_array<float>(file.get(), n_positions * golden.n_buckets, left);
  for (uint32_t position : golden.positions) {
    if (position >= n_tokens) throw std::runtime_error("golden: position beyond the prompt: " + path);
  }
  for (uint16_t id : golden.top_ids) {
    if (id >= golden.n_vocab) throw std::runtime_error("golden: token beyond the vocabulary: " + path);
  }
  return golden;
}

}  // namespace quire::golden
