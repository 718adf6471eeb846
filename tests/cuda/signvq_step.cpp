#include "cuda/signvq_step.h"

namespace quire::test {

namespace {

constexpr size_t kKept = cuda::kMostKeptRows;

}  // namespace

SignVqStep::SignVqStep(const SignVqCase& c, uint64_t seed)
    : c_(c),
      random_(seed),
      sealed_(c.n_pages, random_),
      tail_(pages_for(c.tails), random_),
      key_bytes_(static_cast<size_t>(SignVq::key_page_bytes(c.head_dim))),
      head_bytes_(key_bytes_ + static_cast<size_t>(SignVq::value_page_bytes(c.head_dim))),
      book_size_(c.d() / 4 * 64) {
  make_statistics();
  queries_ = random_.normals(c.n_pairs() * static_cast<size_t>(c.group) * c.d(), c.query_size);
  for (size_t i = 0; i < queries_.size(); ++i) queries_[i] *= i % c.d() < 4 ? c.uneven : 1;
  make_sealed();
  make_exact();
}

// Code words lie near the middle of what has their signs.
void SignVqStep::make_statistics() {
  const size_t n = c_.n_pairs() * c_.d();
  means_ = random_.normals(n, 0.5);
  balances_ = random_.normals(n, 0.3);
  for (size_t i = 0; i < n; ++i) balances_[i] = 3 * std::exp(balances_[i]) * (i % c_.d() < 4 ? c_.uneven : 1);
  for (size_t i = 0; i < c_.n_pairs() * book_size_; ++i) {
    const float size = static_cast<float>(random_.uniform(0.2, 0.4));
    codebooks_.push_back((i / 4 % 16 >> (i % 4) & 1) != 0 ? size : -size);
  }
  for (size_t pair = 0; pair < c_.n_pairs(); ++pair) {
    const size_t all_rows = n_coded(pair / static_cast<size_t>(c_.n_kv_heads));
    const size_t rows = c_.first_pages > 0 ? static_cast<size_t>(c_.first_pages) * 64 : all_rows;
    std::vector<int32_t> own;
    for (size_t i = 0; i < kKept; ++i) own.push_back(static_cast<int32_t>(rows * i / kKept));
    positions_.insert(positions_.end(), own.begin(), own.end());
  }
}

void SignVqStep::make_sealed() {
  bytes_.assign(sealed_.size * static_cast<size_t>(c_.n_kv_heads) * head_bytes_, 0xff);
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t at = 0; at < static_cast<size_t>(c_.n_pages[s]); ++at) {
      for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head) {
        std::vector<float> keys = random_.normals(64 * c_.d());
        const std::vector<float> values = random_.normals(64 * c_.d(), 3.0);
        for (size_t t = 0; t < 64; ++t) {
          to_frame(frame(pair_of(s, head)), keys.data() + t * c_.d(), keys.data() + t * c_.d());
        }
        auto* to = const_cast<uint8_t*>(page(s, head, at));
        SignVq::encode_keys(keys.data(), c_.head_dim, {}, to);
        SignVq::encode_values(values.data(), c_.head_dim, {}, to + key_bytes_);
      }
    }
  }
}

// Rows that no token has are NaN.
void SignVqStep::make_exact() {
  const auto to = c_.format == Format::kF16 ? f32_to_f16 : f32_to_bf16;
  const size_t side = 64 * c_.d();
  const size_t page_numbers = 2 * side * static_cast<size_t>(c_.n_kv_heads);
  exact_.assign((tail_.size + c_.n_sequences()) * page_numbers, 0xffff);
  const auto fill = [&](size_t page, size_t n) {
    for (size_t i = 0; i < 2 * static_cast<size_t>(c_.n_kv_heads); ++i) {
      const std::vector<float> rows = random_.normals(n * c_.d());
      for (size_t j = 0; j < n * c_.d(); ++j) exact_[page * page_numbers + i * side + j] = to(rows[j]);
    }
  };
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t first = 0; first < static_cast<size_t>(c_.tails[s]); first += 64)
      fill(tail_.at(s, first / 64), std::min<size_t>(64, static_cast<size_t>(c_.tails[s]) - first));
    kept_pages_.push_back(static_cast<int32_t>(tail_.size + s));
    fill(tail_.size + s, static_cast<size_t>(c_.n_kept));
  }
}

SignVqStep::OnDevice::OnDevice(const SignVqStep& step)
    : pages(on_device(step.bytes_)),
      table(on_device(step.sealed_.entries)),
      queries(on_device(step.queries_)),
      codebook(on_device(step.codebooks_)),
      positions(on_device(step.positions_)),
      exact(on_device(step.exact_)),
      tails(on_device(step.tail_.entries)),
      tail_lengths(on_device(step.c_.tails)),
      kept_pages(on_device(step.kept_pages_)),
      out(step.queries_.size() * sizeof(float)),
      log_sums(step.queries_.size() / step.c_.d() * sizeof(float)),
      n_read(step.c_.n_pairs() * sizeof(int32_t)),
      marks(step.c_.n_pairs() * step.sealed_.stride * sizeof(uint64_t)),
      mean_queries(step.c_.n_pairs() * step.c_.d() * sizeof(float)) {
  const SignVqCase& c = step.c_;
  std::vector<int32_t> n_tokens;
  for (const int n : c.n_pages) n_tokens.push_back(64 * n);
  lengths = on_device(n_tokens);
  std::vector<float> both = step.means_;
  both.insert(both.end(), step.balances_.begin(), step.balances_.end());
  statistics = on_device(both);
  for (DeviceBuffer* buffer : {&out, &log_sums, &n_read, &mean_queries}) buffer->fill(0xff);
  marks.fill(0);
  lay_pages(step);
  const int64_t index_bytes = cuda::signvq_index_bytes(c.head_dim);
  const int64_t head_bytes = index_bytes + int64_t{64} * cuda::signvq_row_bytes(c.head_dim);
  const int64_t side = int64_t{2} * 64 * c.head_dim;
  const float* mean = statistics.as<float>();
  cuda::SignVqAttention& a = attention;
  a.n_sequences = static_cast<int>(c.n_sequences());
  a.n_kv_heads = c.n_kv_heads;
  a.group = c.group;
  a.head_dim = c.head_dim;
  a.queries = queries.as<float>();
  a.scale = step.scale();
  a.index = {laid.as<uint8_t>(), head_bytes * c.n_kv_heads, head_bytes};
  a.rows = {laid.as<uint8_t>() + index_bytes, head_bytes * c.n_kv_heads, head_bytes};
  a.page_table = table.as<int32_t>();
  a.page_table_stride = static_cast<int>(step.sealed_.stride);
  a.n_tokens = lengths.as<int32_t>();
  a.statistics = {mean, mean + step.means_.size(), codebook.as<float>(), positions.as<int32_t>()};
  a.n_kept_rows = c.n_kept;
  a.format = c.format;
  a.exact_keys = {exact.as<uint8_t>(), 2 * side * c.n_kv_heads, 2 * side};
  a.exact_values = {exact.as<uint8_t>() + side, 2 * side * c.n_kv_heads, 2 * side};
  a.exact_table = tails.as<int32_t>();
  a.exact_table_stride = static_cast<int>(step.tail_.stride);
  a.exact_tokens = tail_lengths.as<int32_t>();
  a.kept_pages = kept_pages.as<int32_t>();
  a.budget = c.budget;
  a.out = out.as<float>();
  a.log_sums = log_sums.as<float>();
  a.n_read = n_read.as<int32_t>();
  a.marks = marks.as<uint64_t>();
  a.mean_queries = mean_queries.as<float>();
  plan = cuda::plan_signvq(a, c.n_multiprocessors > 0 ? c.n_multiprocessors : cuda::block_count());
  workspace = DeviceBuffer(plan.workspace_bytes);
  workspace.fill(0);
  a.workspace = workspace.as<void>();
}

// From the CPU's bytes to the device's, and what is not written is 0xff.
void SignVqStep::OnDevice::lay_pages(const SignVqStep& step) {
  const SignVqCase& c = step.c_;
  std::vector<int32_t> sealed;
  for (const int32_t number : step.sealed_.entries) {
    if (number >= 0) sealed.push_back(number);
  }
  const DeviceBuffer numbers = on_device(sealed);
  const auto cpu_bytes = static_cast<int64_t>(step.head_bytes_);
  const auto* from = pages.as<uint8_t>();
  const int64_t index_bytes = cuda::signvq_index_bytes(c.head_dim);
  const int64_t head_bytes = index_bytes + int64_t{64} * cuda::signvq_row_bytes(c.head_dim);
  laid = DeviceBuffer(step.sealed_.size * static_cast<size_t>(c.n_kv_heads * head_bytes));
  laid.fill(0xff);
  auto* to = laid.as<uint8_t>();
  cuda::lay_signvq_pages({from, cpu_bytes * c.n_kv_heads, cpu_bytes},
                         {from + step.key_bytes_, cpu_bytes * c.n_kv_heads, cpu_bytes},
                         {{to, head_bytes * c.n_kv_heads, head_bytes},
                          {to + index_bytes, head_bytes * c.n_kv_heads, head_bytes}},
                         numbers.as<int32_t>(), numbers.as<int32_t>(), static_cast<int>(sealed.size()),
                         c.n_kv_heads, c.head_dim, nullptr);
  cuda::wait_for(nullptr);
}

void SignVqStep::read(const OnDevice& device) {
  out_ = on_host<float>(device.out);
  log_sums_ = on_host<float>(device.log_sums);
  n_read_ = on_host<int32_t>(device.n_read);
  marks_ = on_host<uint64_t>(device.marks);
  mean_queries_ = on_host<float>(device.mean_queries);
}

void SignVqStep::run() {
  const OnDevice device(*this);
  cuda::attend_signvq(device.attention, device.plan, nullptr);
  cuda::wait_for(nullptr);
  read(device);
}

void SignVqStep::run_graph(const std::vector<SignVqCase>& cases) {
  OnDevice device(*this);
  DeviceGraph graph([&](cuda::Stream stream) { cuda::attend_signvq(device.attention, device.plan, stream); });
  for (const SignVqCase& c : cases) {
    c_.n_pages = c.n_pages;
    c_.tails = c.tails;
    std::vector<int32_t> n_tokens;
    for (const int n : c.n_pages) n_tokens.push_back(64 * n);
    device.lengths.write(n_tokens.data(), n_tokens.size() * sizeof(int32_t));
    device.tail_lengths.write(c.tails.data(), c.tails.size() * sizeof(int32_t));
    device.marks.fill(0);
    cuda::wait_for(nullptr);
    graph.replay();
    read(device);
    check();
  }
}

SignVqStep::Row SignVqStep::coded_row(size_t s, size_t head, size_t token) const {
  Row row = {std::vector<float>(c_.d()), std::vector<float>(c_.d())};
  const int t = static_cast<int>(token % 64);
  SignVq::decode_key_row(page(s, head, token / 64), c_.head_dim, t, {}, row.key.data());
  SignVq::decode_value_row(page(s, head, token / 64) + key_bytes_, c_.head_dim, t, {}, row.value.data());
  row_from_frame(frame(pair_of(s, head)), row.key.data(), row.key.data());
  return row;
}

SignVqStep::Row SignVqStep::exact_row(size_t page, size_t head, size_t row) const {
  const auto from = c_.format == Format::kF16 ? f16_to_f32 : bf16_to_f32;
  const size_t at = (page * static_cast<size_t>(c_.n_kv_heads) + head) * 128 * c_.d() + row * c_.d();
  Row stored;
  for (size_t d = 0; d < c_.d(); ++d) {
    stored.key.push_back(from(exact_[at + d]));
    stored.value.push_back(from(exact_[at + 64 * c_.d() + d]));
  }
  return stored;
}

// index_codebook_tables() and the sums of index_estimate(), from the CPU's bytes.
std::vector<int> SignVqStep::sums(size_t s, size_t head, float* unit) const {
  const size_t pair = pair_of(s, head);
  const auto group = static_cast<size_t>(c_.group);
  std::vector<float> mean(c_.d(), 0.0f);
  for (size_t g = 0; g < group; ++g) {
    for (size_t d = 0; d < c_.d(); ++d) {
      mean[d] += query(pair, g)[d] * scale() * balances_[pair * c_.d() + d] / static_cast<float>(group);
    }
  }
  const size_t n_groups = c_.d() / 4;
  std::vector<float> products(n_groups * 16);
  float total = 0;
  for (size_t g = 0; g < n_groups; ++g) {
    float most = 0;
    for (size_t word = 0; word < 16; ++word) {
      float sum = 0;
      for (size_t j = 0; j < 4; ++j) {
        sum += mean[4 * g + j] * codebooks_[pair * book_size_ + (16 * g + word) * 4 + j];
      }
      products[16 * g + word] = sum;
      most = std::max(most, std::fabs(sum));
    }
    total += most;
  }
  const float scale = total > 0x1p-100f ? (127.0f - 0.5f * static_cast<float>(n_groups)) / total : 0.0f;
  *unit = scale > 0 ? 1.0f / scale : 0.0f;
  std::vector<int> result(n_coded(s), 0);
  for (size_t t = 0; t < result.size(); ++t) {
    const uint8_t* at = page(s, head, t / 64);
    for (size_t g = 0; g < n_groups; ++g) {
      const int word = at[g / 2 * 64 + t % 64] >> (4 * (g % 2)) & 15;
      result[t] += static_cast<int>(std::rint(scale * products[16 * g + static_cast<size_t>(word)]));
    }
  }
  return result;
}

// By the rule of SparseHead::propose() and index_mark(). shift: of the levels' beginnings.
std::vector<bool> SignVqStep::choice(size_t s, size_t head, int shift) const {
  float unit = 0;
  const std::vector<int> all = sums(s, head, &unit);
  const int n_kept_rows = static_cast<int>(n_kept(s));
  const int n_free = static_cast<int>(all.size()) - n_kept_rows;
  const int n_wanted = cuda::sparse_counts(c_.budget, c_.tails[s] + n_kept_rows, n_free).n_rows;
  const int factor =
      static_cast<int>(std::clamp(std::rint(128 * 1.44269504f * 128 * unit), -32768.0f, 32767.0f));
  std::vector<int> levels;
  double mass = 0;
  const auto estimate = [&](int sum) { return (256 * sum * factor + 16384) >> 15; };
  for (const int sum : all) mass += std::exp2(estimate(sum) / 128.0);
  const int offset =
      static_cast<int>(std::clamp(std::round(128 * std::log2(mass)), -32768.0, 32767.0)) + shift;
  for (const int sum : all) {
    const int below = std::clamp(estimate(sum) - offset, -32768, 32767);
    levels.push_back(n_wanted >= n_free ? 1 : std::clamp((below >> 4) + 255, 0, 255));
  }
  for (int i = 0; i < n_kept_rows; ++i) {
    levels[static_cast<size_t>(positions_[pair_of(s, head) * kKept + static_cast<size_t>(i)])] = 0;
  }
  std::vector<size_t> order;
  for (size_t t = 0; t < levels.size(); ++t) {
    if (levels[t] > 0) order.push_back(t);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return levels[a] != levels[b] ? levels[a] > levels[b] : a > b; });
  order.resize(std::min(order.size(), static_cast<size_t>(n_wanted)));
  std::vector<bool> chosen(levels.size(), false);
  for (const size_t t : order) chosen[t] = true;
  return chosen;
}

// The mass may round to a neighbour.
void SignVqStep::check_choice(size_t s, size_t head) const {
  const size_t pair = pair_of(s, head);
  std::vector<bool> chosen(n_coded(s));
  int n = 0;
  for (size_t t = 0; t < chosen.size(); ++t) {
    chosen[t] = marked(pair, t);
    n += chosen[t];
  }
  ASSERT_EQ(n_read_[pair], n);
  bool agrees = false;
  for (const int shift : {0, -1, 1}) agrees = agrees || choice(s, head, shift) == chosen;
  ASSERT_TRUE(agrees) << n << " rows of " << chosen.size();
}

void SignVqStep::check_output(size_t s, size_t head) const {
  const size_t pair = pair_of(s, head);
  std::vector<Row> rows;
  for (size_t t = 0; t < static_cast<size_t>(c_.tails[s]); ++t)
    rows.push_back(exact_row(tail_.at(s, t / 64), head, t % 64));
  for (size_t t = 0; t < n_kept(s); ++t) rows.push_back(exact_row(tail_.size + s, head, t));
  for (size_t t = 0; t < n_coded(s); ++t) {
    if (marked(pair, t)) rows.push_back(coded_row(s, head, t));
  }
  // Numbers of a query are rounded to f16, so the error of a weight grows with the scores; and a zero less
  // four scales is, a hundredth of a code's own error.
  const double tolerance = 5e-3 * std::max(1.0, static_cast<double>(c_.query_size * c_.uneven));
  for (size_t g = 0; g < static_cast<size_t>(c_.group); ++g) {
    std::vector<float> q(query(pair, g), query(pair, g) + c_.d());
    for (float& x : q) x *= scale();
    const Attended wanted = attention(
        q.data(), c_.d(), rows.size(), [](size_t) { return true; },
        [&](size_t t, size_t d) { return rows[t].key[d]; },
        [&](size_t t, size_t d) { return rows[t].value[d]; });
    const size_t at = pair * static_cast<size_t>(c_.group) + g;
    double error = 0, size = 0;
    for (size_t d = 0; d < c_.d(); ++d) {
      error += std::pow(out_[at * c_.d() + d] - wanted.output[d], 2);
      size += std::pow(wanted.output[d], 2);
    }
    ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << "query head " << g;
    if (std::isinf(wanted.log_sum)) {
      ASSERT_EQ(log_sums_[at], -INFINITY);
    } else {
      ASSERT_NEAR(log_sums_[at], wanted.log_sum, tolerance) << "query head " << g;
    }
  }
}

void SignVqStep::check() const {
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head) {
      SCOPED_TRACE("sequence " + std::to_string(s) + " KV head " + std::to_string(head));
      check_choice(s, head);
      check_output(s, head);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace quire::test
