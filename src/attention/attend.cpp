#include "attention/attend.h"

#include "base/error.h"
#include "kernels/ops.h"
#include "store/page_count.h"

namespace quire {

namespace {

// From this many rows on a page is expanded to f32 once instead of by every register tile of rows. The
// arithmetic is the same either way.
constexpr size_t kRowsWorthUnpacking = 12;
bool worth_unpacking(size_t n_rows) { return n_rows >= kRowsWorthUnpacking; }

constexpr auto kF32 = static_cast<size_t>(Format::kF32);

// Tokens of a page that lie before `end`.
uint64_t tokens_before(size_t end, size_t page) {
  const size_t start = page * kTokensPerPage;
  if (end <= start) return 0;
  return end - start >= kTokensPerPage ? ~uint64_t{0} : (uint64_t{1} << (end - start)) - 1;
}

void reserve(AttendScratch& scratch, size_t n_rows, size_t page_values, bool expanding) {
  scratch.reserve_rows(n_rows);
  const size_t spare = kSpareBytes / sizeof(float);
  if (expanding && scratch.keys.size() < page_values + spare) {
    scratch.keys.resize(page_values + spare);
    scratch.values.resize(page_values + spare);
  }
}

// The running softmax and the output, once the page's scores stand in the scratch.
struct PageAttention {
  const QueryRows& queries;
  AttendScratch& scratch;
  PartialState& state;
  size_t dim;     // of a head; rows of the state may be longer
  float softcap;  // of the scores; 0: none

  int n_rows() const { return static_cast<int>(queries.n_queries * queries.group); }
  int head_dim() const { return static_cast<int>(dim); }

  bool unpacking() const { return worth_unpacking(queries.n_queries * queries.group); }

  void cap() const {
    if (softcap > 0) ops().cap_scores(scratch.scores.data(), n_rows() * kPageTokens, softcap);
  }

  void softmax() const {
    cap();
    ops().softmax(scratch.scores.data(), scratch.masks.data(), n_rows(), state.m.data(), state.l.data(),
                  scratch.correction.data());
  }

  void finish(uint64_t rows, size_t value_format, const void* values, const void* next) const {
    softmax();
    ops().accumulate[value_format](scratch.scores.data(), scratch.correction.data(), rows, n_rows(),
                                   head_dim(), values, state.o.data(), state.head_dim, next);
  }
};

// `next`: what is read after the keys.
void score_exact_page(Format key_format, const void* keys, const void* next, const PageAttention& work) {
  const bool unpacking = work.unpacking();
  const auto format = static_cast<size_t>(key_format);
  if (unpacking) {
    ops().unpack[format](keys, kTokensPerPage * work.dim, work.scratch.keys.data());
    keys = work.scratch.keys.data();
  }
  ops().score[unpacking ? kF32 : format](work.queries.q, work.dim, work.n_rows(), work.head_dim(), keys,
                                         work.scratch.scores.data(), unpacking ? nullptr : next);
}

// One page of exact rows, of which `rows` are read; the masks stand in the scratch.
void attend_exact_page(const RowLayout& layout, const void* keys, const void* values, uint64_t rows,
                       const void* next_keys, const PageAttention& work) {
  const bool unpacking = work.unpacking();
  const auto value_format = static_cast<size_t>(layout.value_format);
  score_exact_page(layout.key_format, keys, values, work);
  if (unpacking) {
    ops().unpack[value_format](values, kTokensPerPage * work.dim, work.scratch.values.data());
    values = work.scratch.values.data();
  }
  work.finish(rows, unpacking ? kF32 : value_format, values, unpacking ? nullptr : next_keys);
}

void attend_open_pages(const LayerView& view, size_t kv_head, const Parts::Part& part,
                       const Selection& selection, const PageAttention& work) {
  for (size_t page = part.first_page; page < part.last_page; ++page) {
    const uint64_t rows = row_masks(work.queries, selection.word(kv_head, page), view.n_tokens, page,
                                    work.scratch.masks.data(), view.window_tokens());
    if (rows == 0) continue;
    const void* next_keys = page + 1 < part.last_page ? view.keys(kv_head, page + 1) : nullptr;
    attend_exact_page(*view.layout, view.keys(kv_head, page), view.values(kv_head, page), rows, next_keys,
                      work);
  }
}

// Rows kept exact are of sealed pages, and every query comes after these.
void attend_kept(const LayerView& view, size_t kv_head, size_t at, const PageAttention& work) {
  const uint64_t rows = view.beside_word(at);
  if (rows == 0) return;
  std::fill_n(work.scratch.masks.begin(), work.n_rows(), rows);
  const std::byte* page = view.beside(at);
  attend_exact_page(*view.layout, page + view.layout->key_offset(kv_head),
                    page + view.layout->value_offset(kv_head), rows, nullptr, work);
}

// What a key bias that RoPE turns adds to the scores of the page's tokens.
void add_key_bias(const KeyBias& key_bias, size_t page, const PageAttention& work) {
  AttendScratch& scratch = work.scratch;
  const auto n_rows = static_cast<size_t>(work.n_rows());
  const size_t n_channels = key_bias.n_channels();
  scratch.turned.resize(std::max(scratch.turned.size(), n_rows * n_channels));
  scratch.bias_scores.resize(std::max(scratch.bias_scores.size(), n_rows * kTokensPerPage));
  key_bias.turn_back(page * kTokensPerPage, work.queries.q, n_rows, scratch.turned.data());
  ops().score[kF32](scratch.turned.data(), n_channels, work.n_rows(), static_cast<int>(n_channels),
                    key_bias.page(), scratch.bias_scores.data(), nullptr);
  for (size_t i = 0; i < n_rows * kTokensPerPage; ++i) scratch.scores[i] += scratch.bias_scores[i];
}

// Rows whose keys are exact beside their codes get the scores of the exact ones.
void score_exact_keys(const LayerView& view, size_t kv_head, size_t page, const PageAttention& work) {
  constexpr size_t kMostKeys = 16;  // of one call
  const ExactKeys& exact = *view.exact_keys;
  AttendScratch& scratch = work.scratch;
  const auto n_rows = static_cast<size_t>(work.n_rows());
  const size_t row_size = row_bytes(view.layout->key_format, work.dim);
  scratch.bias_scores.resize(std::max(scratch.bias_scores.size(), n_rows * kTokensPerPage));
  const std::byte* keys = exact.rows->data + kv_head * exact.positions.size() * row_size;
  for (size_t first = exact.first[page]; first < exact.first[page + 1]; first += kMostKeys) {
    const size_t n = std::min<size_t>(kMostKeys, exact.first[page + 1] - first);
    ops().score_rows[static_cast<size_t>(view.layout->key_format)](
        work.queries.q, work.dim, work.n_rows(), work.head_dim(), keys + first * row_size,
        static_cast<int>(n), scratch.bias_scores.data());
    for (size_t row = 0; row < n_rows; ++row) {
      for (size_t i = 0; i < n; ++i) {
        scratch.scores[row * kTokensPerPage + exact.positions[first + i] % kTokensPerPage] =
            scratch.bias_scores[row * kTokensPerPage + i];
      }
    }
  }
}

// Scores of the rows named of a sealed page, which is staged.
void score_sealed(const LayerView& view, size_t kv_head, size_t page, uint64_t rows, const HeadFrames& frames,
                  const PageAttention& work) {
  const SideFormat& format = view.layer->sealed.keys;
  AttendScratch& scratch = work.scratch;
  const size_t dim = work.dim;
  if (!format.coded) {
    ops().score[static_cast<size_t>(format.rows)](work.queries.q, dim, work.n_rows(), work.head_dim(),
                                                  scratch.staged.keys(page), scratch.scores.data(), nullptr);
    return;
  }
  const KeyPage keys = {view.index(kv_head, page),
                        reinterpret_cast<const uint8_t*>(scratch.staged.keys(page))};
  const auto code = static_cast<size_t>(format.code);
  const float* q = frames.transforms_queries() ? work.queries.framed : work.queries.q;
  if (work.unpacking()) {
    ops().codes.open_keys[code](*frames.key_book, work.head_dim(), keys, scratch.keys.data());
    ops().score[kF32](q, dim, work.n_rows(), work.head_dim(), scratch.keys.data(), scratch.scores.data(),
                      nullptr);
  } else {
    ops().codes.score[code](*frames.key_book, q, work.n_rows(), work.head_dim(), keys, rows,
                            scratch.scores.data(),
                            {scratch.staged.values(page), view.layer->sealed.value_bytes()});
  }
  if (frames.key_framed) {
    add_bias(work.queries.bias, work.queries.n_queries * work.queries.group, scratch.scores.data());
  }
  if (frames.key_bias != nullptr) add_key_bias(*frames.key_bias, page, work);
  if (view.exact_keys != nullptr && view.exact_keys->any(page)) score_exact_keys(view, kv_head, page, work);
}

void finish_sealed(const LayerView& view, size_t page, uint64_t rows, const HeadFrames& frames,
                   const PageAttention& work, BytesAhead next) {
  const SideFormat& format = view.layer->sealed.values;
  const auto* values = reinterpret_cast<const uint8_t*>(work.scratch.staged.values(page));
  if (!format.coded) return work.finish(rows, static_cast<size_t>(format.rows), values, nullptr);
  const auto code = static_cast<size_t>(format.code);
  if (work.unpacking()) {
    ops().codes.open_values[code](*frames.value_book, work.head_dim(), values, rows,
                                  work.scratch.values.data());
    return work.finish(rows, kF32, work.scratch.values.data(), nullptr);
  }
  work.softmax();
  ops().codes.accumulate[code](*frames.value_book, work.scratch.scores.data(), work.scratch.correction.data(),
                               rows, work.n_rows(), work.head_dim(), values, work.state.o.data(), next);
}

// All pages of the part, a run, are staged before the first is scored.
void attend_sealed_pages(const LayerView& view, size_t kv_head, const Parts::Part& part,
                         const Selection& selection, const HeadFrames& frames, const PageAttention& work) {
  StagedRows& staged = work.scratch.staged;
  const size_t n = part.last_page - part.first_page;
  QUIRE_CHECK(n <= kPagesPerRun);
  uint64_t selected[kPagesPerRun];
  for (size_t i = 0; i < n; ++i) {
    const size_t page = part.first_page + i;
    selected[i] = selection.word(kv_head, page) & view.coded_word(kv_head, page);
  }
  staged.load(view, kv_head, part.first_page, {selected, n},
              selection.is_all() ? PieceUse::kSwept : PieceUse::kSelected);
  for (size_t i = 0; i < n; ++i) {
    const size_t page = part.first_page + i;
    const uint64_t rows =
        row_masks(work.queries, selected[i], view.n_tokens, page, work.scratch.masks.data());
    if (rows == 0) continue;
    score_sealed(view, kv_head, page, rows, frames, work);
    const bool more = i + 1 < n && selected[i + 1] != 0;
    finish_sealed(view, page, rows, frames, work,
                  {more ? staged.keys(page + 1) : nullptr, more ? view.layer->sealed.key_bytes() : 0});
  }
}

void score_sinks(const LayerView& view, size_t kv_head, const PageAttention& work) {
  ops().score_rows[static_cast<size_t>(view.layout->key_format)](
      work.queries.q, work.dim, work.n_rows(), work.head_dim(), view.sink_keys(kv_head),
      static_cast<int>(view.layer->sink_tokens), work.scratch.scores.data());
}

void attend_sinks(const LayerView& view, size_t kv_head, const Selection& selection,
                  const PageAttention& work) {
  const size_t n_sinks = view.layer->sink_tokens;
  // Every query comes after them, as rows are sealed or dropped between steps.
  const uint64_t rows = selection.word(kv_head, 0) & ((uint64_t{1} << n_sinks) - 1);
  if (rows == 0) return;
  std::fill_n(work.scratch.masks.begin(), work.n_rows(), rows);
  score_sinks(view, kv_head, work);
  work.finish(rows, static_cast<size_t>(view.layout->value_format), view.sink_values(kv_head), nullptr);
}

}  // namespace

uint64_t row_masks(const QueryRows& queries, uint64_t selected, size_t n_tokens, size_t page, uint64_t* masks,
                   size_t window_tokens) {
  uint64_t any = 0;
  for (size_t i = 0; i < queries.n_queries; ++i) {
    const size_t end = std::min(n_tokens, queries.first_position + i + 1);
    uint64_t mask = selected & tokens_before(end, page);
    if (window_tokens > 0 && end > window_tokens) mask &= ~tokens_before(end - window_tokens, page);
    std::fill_n(masks + i * queries.group, queries.group, mask);
    any |= mask;
  }
  return any;
}

void AttendScratch::reserve_rows(size_t n_rows) {
  if (masks.size() >= n_rows) return;
  scores.resize(n_rows * kTokensPerPage);
  correction.resize(n_rows);
  masks.resize(n_rows);
}

void add_bias(const float* bias, size_t n_rows, float* scores) {
  for (size_t i = 0; i < n_rows; ++i) {
    for (size_t t = 0; t < kTokensPerPage; ++t) scores[i * kTokensPerPage + t] += bias[i];
  }
}

Parts::Parts(const LayerView& view, size_t n_visible, size_t first_seen)
    : has_sinks(view.sinks != nullptr),
      n_beside(view.n_beside()),
      n_sealed(view.n_sealed()),
      n_pages(std::max(n_sealed, std::min(view.pages.size(), pages_for(n_visible)))),
      first_open_page(std::min(n_pages, n_sealed + first_seen / kTokensPerPage)),
      left_in_run(view.left_pages % kPagesPerRun),
      n_open_runs(first_open_page == n_pages ? 0 : run_of(n_pages - 1) - run_of(first_open_page) + 1) {}

Parts::Part Parts::operator[](size_t i) const {
  if (has_sinks && i == 0) return {Kind::kSinks, 0, 1};
  if (i < first_sealed()) return {Kind::kKept, i - size_t{has_sinks}, i - size_t{has_sinks} + 1};
  if (i < first_open()) {
    const size_t first = (i - first_sealed()) * kPagesPerRun;
    return {Kind::kSealed, first, std::min(n_sealed, first + kPagesPerRun)};
  }
  // Both as pages of a layer that none have left.
  const size_t first = (run_of(first_open_page) + i - first_open()) * kPagesPerRun;
  const size_t first_page = n_sealed + std::max(first, left_in_run) - left_in_run;
  return {Kind::kOpen, std::max(first_page, first_open_page),
          std::min(n_pages, n_sealed + first + kPagesPerRun - left_in_run)};
}

void attend_part(const LayerView& view, size_t kv_head, const Parts::Part& part, const QueryRows& queries,
                 const Selection& selection, const HeadFrames* frames, AttendScratch& scratch,
                 PartialState& state) {
  const size_t n_rows = queries.n_queries * queries.group;
  reserve(scratch, n_rows, kTokensPerPage * view.layout->head_dim, worth_unpacking(n_rows));
  const PageAttention work{queries, scratch, state, view.layout->head_dim, view.score_softcap()};
  switch (part.kind) {
    case Parts::Kind::kSinks: return attend_sinks(view, kv_head, selection, work);
    case Parts::Kind::kKept: return attend_kept(view, kv_head, part.first_page, work);
    case Parts::Kind::kSealed: return attend_sealed_pages(view, kv_head, part, selection, *frames, work);
    case Parts::Kind::kOpen: return attend_open_pages(view, kv_head, part, selection, work);
  }
}

uint64_t score_page(const LayerView& view, size_t kv_head, Parts::Kind kind, size_t page,
                    const QueryRows& queries, const HeadFrames* frames, AttendScratch& scratch) {
  const size_t n_rows = queries.n_queries * queries.group;
  reserve(scratch, n_rows, kTokensPerPage * view.layout->head_dim, worth_unpacking(n_rows));
  PartialState none(0, 0);
  const PageAttention work{queries, scratch, none, view.layout->head_dim, view.score_softcap()};
  const RowLayout& layout = *view.layout;
  uint64_t rows = 0;
  switch (kind) {
    case Parts::Kind::kSinks:
      score_sinks(view, kv_head, work);
      rows = (uint64_t{1} << view.layer->sink_tokens) - 1;
      break;
    case Parts::Kind::kKept:
      score_exact_page(layout.key_format, view.kept->page->data + layout.key_offset(kv_head), nullptr, work);
      rows = ~uint64_t{0} >> (kTokensPerPage - view.kept->n);
      break;
    case Parts::Kind::kSealed:
      rows = view.coded_word(kv_head, page);
      if (rows == 0) return 0;
      scratch.staged.load(view, kv_head, page, rows, PieceUse::kSwept);
      score_sealed(view, kv_head, page, rows, *frames, work);
      break;
    case Parts::Kind::kOpen:
      score_exact_page(layout.key_format, view.keys(kv_head, page), nullptr, work);
      rows = tokens_before(view.n_tokens, page);
      break;
  }
  work.cap();
  return rows;
}

size_t sealed_width(const HeadFrames& frames, size_t n_rows, size_t head_dim) {
  return frames.values_sketched() && !worth_unpacking(n_rows) ? 2 * head_dim : head_dim;
}

void frame_queries(const HeadFrames& frames, const float* q, size_t n_rows, size_t head_dim,
                   std::vector<float>& framed, std::vector<float>& bias) {
  if (!frames.transforms_queries()) return;
  const size_t n_values = n_rows * head_dim;
  const bool sketching = frames.keys_sketched() && !worth_unpacking(n_rows);
  framed.resize(sketching ? 2 * n_values : n_values);
  bias.resize(n_rows);
  const int n = static_cast<int>(n_rows);
  const int dim = static_cast<int>(head_dim);
  ops().codes.frame_queries(frames.key, q, n, dim, framed.data(), bias.data());
  if (sketching) {
    ops().codes.sketch_queries(*frames.key_book, framed.data(), n, dim, framed.data() + n_values);
  }
}

void unframe_output(const HeadFrames& frames, PartialState& state) {
  const auto dim = static_cast<size_t>(frames.value.head_dim);
  const int n_rows = static_cast<int>(state.n_rows);
  if (state.head_dim != dim) {
    ops().codes.fold_sketch(*frames.value_book, n_rows, frames.value.head_dim, state.o.data());
    state.head_dim = dim;
    state.o.resize(state.n_rows * dim);
  }
  if (!frames.value_framed) return;
  ops().codes.unframe_output(frames.value, n_rows, frames.value.head_dim, state.o.data(), state.l.data());
}

}  // namespace quire
